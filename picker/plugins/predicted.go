package plugins

import "github.com/grapevine-epp/grapevine/picker"

// predictedParams weigh what a request costs others against its own time to
// first token; all are dimensionless.
type predictedParams struct {
	OwnWeight      float64 `json:"ownWeight"`      // work itself: waste of the fleet's time and of cache
	StallWeight    float64 `json:"stallWeight"`    // stall of each request that decodes there
	ArrivalWeight  float64 `json:"arrivalWeight"`  // delay of arrivals expected meanwhile
	DecodeWeight   float64 `json:"decodeWeight"`   // slower steps for those who decode there, in steps
	MemoryWeight   float64 `json:"memoryWeight"`   // contexts that do not fit, in prefills of the excess
	TargetWeight   float64 `json:"targetWeight"`   // time beyond an SLO's first token
	ChunkTokens    int     `json:"chunkTokens"`    // tokens that an engine prefills in a step
	BatchSequences int     `json:"batchSequences"` // sequences that an engine runs at once, 0: not known
}

var predictedDefaults = predictedParams{
	OwnWeight: .5, StallWeight: .06, ArrivalWeight: .15, DecodeWeight: 20, MemoryWeight: 2, TargetWeight: 4, ChunkTokens: 8192,
}

// predicted is the default policy: the predicted time to first token of each
// candidate, plus what the request lays on others there. Its score is the
// negative sum, in seconds.
//
//	cost = wait + own + chunks × base
//	     + OwnWeight × own
//	     + StallWeight × own × decoding requests
//	     + ArrivalWeight × own × arrival rate × (wait + own/2)
//	     + DecodeWeight × growth of the decode step × decoding requests
//	     + MemoryWeight × prefill time of the tokens that exceed KV memory
//
// own = B × new + E × new × (input − new/2); wait is the same sum over the
// queue, less the time since the last first token. B, E and base are learned
// per endpoint (picker.Cost).
type predicted struct{ predictedParams }

func newPredicted(p predictedParams) (Plugin, error) {
	for _, w := range [...]float64{p.OwnWeight, p.StallWeight, p.ArrivalWeight, p.DecodeWeight, p.MemoryWeight, p.TargetWeight} {
		if w < 0 {
			return Plugin{}, &ParamError{"", "weights must not be negative"}
		}
	}
	return Plugin{Scorer: predicted{p}}, first(
		must(p.ChunkTokens > 0, "chunkTokens", "must be positive"),
		must(p.BatchSequences >= 0, "batchSequences", "must not be negative"))
}

// Score implements picker.Scorer.
func (s predicted) Score(c *picker.Cycle, scores []float64) {
	target := c.Request.SLOTTFT.Seconds()
	for k := range scores {
		p := s.predict(c, k)
		c.Predict(k, p)
		cost := p.TTFT() + p.Others
		if target > 0 {
			cost += s.TargetWeight * max(p.TTFT()-target, 0)
		}
		scores[k] = -cost
	}
}

func (s predicted) predict(c *picker.Cycle, k int) picker.Prediction {
	v, w := c.At(k), c.Work(k)
	cost, l := v.Cost, &v.Load
	own, wait := cost.Prefill(w), cost.Wait(l, c.Now)
	chunks := float64((w.New + s.ChunkTokens - 1) / s.ChunkTokens)
	p := picker.Prediction{Wait: wait, Own: own, Base: chunks * cost.Base}
	decoding := float64(max(l.Requests-l.Waiting, 0))
	p.Others = s.OwnWeight*own +
		s.StallWeight*own*decoding +
		s.ArrivalWeight*own*l.Rate*(wait+own/2) +
		s.DecodeWeight*(cost.PerSeq+cost.PerContext*float64(w.Input)) +
		s.MemoryWeight*s.excess(v, w)
	return p
}

// excess returns the seconds of prefill that would have to be repeated because
// the contexts in flight do not fit the endpoint's KV memory.
func (s predicted) excess(v *picker.View, w picker.Work) float64 {
	capacity := v.Capacity
	if capacity <= 0 {
		return 0
	}
	over := min(float64(v.Load.Tokens)+float64(w.Input)-capacity, float64(w.Input))
	if over <= 0 {
		return 0
	}
	return over * v.Cost.PerToken
}
