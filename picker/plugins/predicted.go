package plugins

import "github.com/grapevine-epp/grapevine/picker"

// predictedParams weigh what a request costs others against its own time to
// first token; all are dimensionless unless they say otherwise.
type predictedParams struct {
	OwnWeight      float64 `json:"ownWeight"`      // work itself: waste of the fleet's time and of cache
	StallWeight    float64 `json:"stallWeight"`    // stall of each request that decodes there
	QueueWeight    float64 `json:"queueWeight"`    // stall of each request that waits there and will decode by then
	ArrivalWeight  float64 `json:"arrivalWeight"`  // delay of arrivals expected meanwhile
	PressureWeight float64 `json:"pressureWeight"` // growth of ArrivalWeight per second of the candidates' mean wait
	DecodeWeight   float64 `json:"decodeWeight"`   // length of the decode step there, in steps
	MemoryWeight   float64 `json:"memoryWeight"`   // contexts that do not fit, in prefills of the excess
	TargetWeight   float64 `json:"targetWeight"`   // time beyond an SLO's first token
	ChunkTokens    int     `json:"chunkTokens"`    // tokens that an engine prefills in a step
}

// maxPressure bounds what pressure adds to ArrivalWeight.
const maxPressure = 4

var predictedDefaults = predictedParams{
	OwnWeight: .5, StallWeight: .06, QueueWeight: .12, ArrivalWeight: .15, PressureWeight: .1,
	DecodeWeight: 20, MemoryWeight: 2, TargetWeight: 4, ChunkTokens: 8192,
}

// predicted is the default policy: the predicted time to first token of each
// candidate, plus what the request lays on others there. Its score is the
// negative sum, in seconds.
//
//	cost = wait + own + chunks × base
//	     + OwnWeight × own
//	     + StallWeight × own × decoding requests
//	     + QueueWeight × own × waiting requests
//	     + (ArrivalWeight + PressureWeight × mean wait) × own × arrival rate × (wait + own/2)
//	     + DecodeWeight × decode step with the request in it
//	     + MemoryWeight × prefill time of the tokens that exceed KV memory
//
// Pressure makes work dearer when everybody is behind: then a session that
// leaves its cache to dodge a wait makes the waits longer for all.
//
// own = B × new + E × new × (input − new/2); wait is the same sum over the
// queue, less the time since the last first token. B, E and base are learned
// per endpoint (picker.Cost).
type predicted struct{ predictedParams }

func newPredicted(p predictedParams) (Plugin, error) {
	weights := map[string]float64{
		"ownWeight": p.OwnWeight, "stallWeight": p.StallWeight, "queueWeight": p.QueueWeight, "arrivalWeight": p.ArrivalWeight,
		"pressureWeight": p.PressureWeight, "decodeWeight": p.DecodeWeight, "memoryWeight": p.MemoryWeight, "targetWeight": p.TargetWeight,
	}
	for name, w := range weights {
		if w < 0 {
			return Plugin{}, &ParamError{name, "must not be negative"}
		}
	}
	return Plugin{Scorer: predicted{p}}, must(p.ChunkTokens > 0, "chunkTokens", "must be positive")
}

// Score implements picker.Scorer.
func (s predicted) Score(c *picker.Cycle, scores []float64) {
	sum := 0.0
	for k := range scores { // scores hold the waits first
		v := c.At(k)
		scores[k] = v.Cost.Wait(&v.Load, c.Now)
		sum += scores[k]
	}
	arrival := s.ArrivalWeight + min(s.PressureWeight*sum/float64(max(len(scores), 1)), maxPressure)
	target := c.Request.SLOTTFT.Seconds()
	for k := range scores {
		p := s.predict(c, k, scores[k], arrival)
		c.Predict(k, p)
		cost := p.TTFT() + p.Others
		if target > 0 {
			cost += s.TargetWeight * max(p.TTFT()-target, 0)
		}
		scores[k] = -cost
	}
}

func (s predicted) predict(c *picker.Cycle, k int, wait, arrival float64) picker.Prediction {
	v, w := c.At(k), c.Work(k)
	cost, l := v.Cost, &v.Load
	own := cost.Prefill(w)
	chunks := float64((w.New + s.ChunkTokens - 1) / s.ChunkTokens)
	p := picker.Prediction{Wait: wait, Own: own, Base: chunks * cost.Base}
	decoding := float64(max(l.Requests-l.Waiting, 0))
	p.Others = own*(s.OwnWeight+s.StallWeight*decoding+s.QueueWeight*float64(max(l.Waiting, 0))) +
		arrival*own*l.Rate*(wait+own/2) +
		s.DecodeWeight*(cost.Step+cost.PerSeq*(decoding+1)+cost.PerContext*float64(l.Context+int64(w.Input))) +
		s.MemoryWeight*excess(v, w)
	return p
}

// excess returns the seconds of prefill that would have to be repeated because
// the contexts in flight do not fit the endpoint's KV memory.
func excess(v *picker.View, w picker.Work) float64 {
	if v.Capacity <= 0 {
		return 0
	}
	over := min(float64(v.Load.Tokens)+float64(w.Input)-v.Capacity, float64(w.Input))
	return max(over, 0) * v.Cost.PerToken
}
