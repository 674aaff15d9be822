package plugins

import "github.com/grapevine-epp/grapevine/picker"

// predictedParams weigh what a request costs others against its own time to
// first token; all are dimensionless unless they say otherwise.
type predictedParams struct {
	OwnWeight     float64 `json:"ownWeight"`     // work itself: waste of the fleet's time and of cache
	StallWeight   float64 `json:"stallWeight"`   // stall of each request that decodes
	QueueWeight   float64 `json:"queueWeight"`   // stall of each request that waits and will decode by then
	ArrivalWeight float64 `json:"arrivalWeight"` // delay of arrivals expected meanwhile
	FleetShare    float64 `json:"fleetShare"`    // share of the stall that counts at the candidates' mean, 0..1
	DecodeWeight  float64 `json:"decodeWeight"`  // length of the decode step there, in steps
	TargetWeight  float64 `json:"targetWeight"`  // time beyond an SLO's first token
	ChunkTokens   int     `json:"chunkTokens"`   // tokens that an engine prefills in a step
}

var predictedDefaults = predictedParams{
	OwnWeight: .5, StallWeight: .014, QueueWeight: .028, ArrivalWeight: .09, FleetShare: .5,
	DecodeWeight: 20, TargetWeight: 4, ChunkTokens: 8192,
}

// predicted is the default policy: the predicted time to first token of each
// candidate, plus what the request lays on others. Its score is the negative
// sum, in seconds.
//
//	cost = wait + own + chunks × base
//	     + OwnWeight × own
//	     + own × (FleetShare × mean stall + (1 − FleetShare) × stall)
//	     + ArrivalWeight × stretch × own × arrival rate × (wait + own/2)
//	     + DecodeWeight × decode step with the request in it
//
//	stall = stretch × (StallWeight × decoding + QueueWeight × waiting requests)
//
// own = B × new + E × new × (input − new/2); wait is the same sum over the
// queue, less the time since the last first token. B, E and base are learned
// per endpoint (picker.Cost).
//
// stretch is how many times as long as an idle engine's the step there is. An
// engine whose time is used to a share ρ takes about 1/(1 − ρ) as long for a
// step, and a second of further work delays each request there by that many
// seconds: whoever is delayed stays longer and is in the way of the next. So
// work becomes dear as engines fill up, and a session leaves its cache only to
// dodge longer and longer waits. The part at the mean does just that; the part
// of each candidate also sends prompts that nobody holds to where few requests
// are delayed.
type predicted struct{ predictedParams }

func newPredicted(p predictedParams) (Plugin, error) {
	weights := map[string]float64{
		"ownWeight": p.OwnWeight, "stallWeight": p.StallWeight, "queueWeight": p.QueueWeight, "arrivalWeight": p.ArrivalWeight,
		"decodeWeight": p.DecodeWeight, "targetWeight": p.TargetWeight,
	}
	for name, w := range weights {
		if w < 0 {
			return Plugin{}, &ParamError{name, "must not be negative"}
		}
	}
	return Plugin{Scorer: predicted{p}}, first(
		must(p.FleetShare >= 0 && p.FleetShare <= 1, "fleetShare", "must be between 0 and 1"),
		must(p.ChunkTokens > 0, "chunkTokens", "must be positive"))
}

// Score implements picker.Scorer.
func (s predicted) Score(c *picker.Cycle, scores []float64) {
	mean := 0.0
	for k := range scores { // scores hold the stalls first
		scores[k] = s.stall(c.At(k))
		mean += scores[k]
	}
	mean /= float64(max(len(scores), 1))
	target := c.Request.SLOTTFT.Seconds()
	for k := range scores {
		p := s.predict(c, k, s.FleetShare*mean+(1-s.FleetShare)*scores[k])
		c.Predict(k, p)
		cost := p.TTFT() + p.Others
		if target > 0 {
			cost += s.TargetWeight * max(p.TTFT()-target, 0)
		}
		scores[k] = -cost
	}
}

// stall returns what a second of work at v costs the requests that are there.
func (s predicted) stall(v *picker.View) float64 {
	l := &v.Load
	return stretch(v) * (s.StallWeight*decoding(l) + s.QueueWeight*float64(max(l.Waiting, 0)))
}

func decoding(l *picker.Load) float64 { return float64(max(l.Requests-l.Waiting, 0)) }

// stretch returns the length of a step at v in steps of an idle engine.
func stretch(v *picker.View) float64 {
	return max(v.Cost.StepOf(decoding(&v.Load), float64(v.Load.Context))/picker.PriorCost.Step, 1)
}

// predict returns what the request would meet at candidate k, where a second
// of its work costs the requests that are there stall seconds.
func (s predicted) predict(c *picker.Cycle, k int, stall float64) picker.Prediction {
	v, w := c.At(k), c.Work(k)
	cost, l := v.Cost, &v.Load
	own, wait := cost.Prefill(w), cost.Wait(l, c.Now)
	chunks := float64((w.New + s.ChunkTokens - 1) / s.ChunkTokens)
	p := picker.Prediction{Wait: wait, Own: own, Base: chunks * cost.Base}
	p.Others = own*(s.OwnWeight+stall+s.ArrivalWeight*stretch(v)*l.Rate*(wait+own/2)) +
		s.DecodeWeight*cost.StepOf(decoding(l)+1, float64(l.Context+int64(w.Input)))
	return p
}
