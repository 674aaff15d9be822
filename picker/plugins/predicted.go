package plugins

import (
	"maps"
	"slices"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// predictedParams weigh what a request costs others against its own time to
// first token; all are dimensionless unless they say otherwise.
type predictedParams struct {
	OwnWeight     float64 `json:"ownWeight"`     // work itself: waste of the fleet's time and of cache
	StallWeight   float64 `json:"stallWeight"`   // stall of each request in flight
	ArrivalWeight float64 `json:"arrivalWeight"` // delay of arrivals expected meanwhile
	FleetShare    float64 `json:"fleetShare"`    // share of the stall that counts at the candidates' mean, 0..1
	DecodeWeight  float64 `json:"decodeWeight"`  // length of the decode step there, in steps
	BusyWeight    float64 `json:"busyWeight"`    // square of the time's share that prefill took there of late, in full steps of an idle engine
	TargetWeight  float64 `json:"targetWeight"`  // time beyond an SLO's first token
	Alike         float64 `json:"alike"`         // share of the least cost by which others may be above it and count as equal
	ChunkTokens   int     `json:"chunkTokens"`   // tokens that an engine prefills in a step
}

var predictedDefaults = predictedParams{
	OwnWeight: .75, StallWeight: .016, ArrivalWeight: .25, FleetShare: .5,
	DecodeWeight: 20, BusyWeight: 30, TargetWeight: 4, Alike: .02, ChunkTokens: 8192,
}

// predicted is the default policy: the predicted time to first token of each
// candidate, plus what the request lays on others. Its score is the negative
// sum, in seconds.
//
//	cost = wait + own + chunks × base
//	     + OwnWeight × own
//	     + own × (FleetShare × mean stall + (1 − FleetShare) × stall)
//	     + ArrivalWeight × mean stretch × own × arrival rate × (wait + own/2)
//	     + min(own, half a full step), where requests wait
//	     + DecodeWeight × decode step with the request in it
//	     + BusyWeight × full step of an idle engine × (told × busy)²
//
//	stall = StallWeight × requests × stretch² / mean stretch
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
// dodge longer and longer waits: that is the part at the mean. The part of each
// candidate sends prompts that nobody holds to where few requests are delayed;
// its square keeps engines even when all of them are full.
//
// Where requests wait, the step in which the last of them ends its prefill takes
// a part of this one too, and ends later: half a full step in the mean.
//
// busy is the share of the last minutes' time that prefill took there. It says
// how much of the coming work is at home there, which no moment shows, and how
// fast caches turn over: work that is even over minutes makes caches equally old,
// and fewer prompts are computed again. Its square lets caches decide while
// engines are idle. told is the share of the engines' requests that the book
// tells of: a replica that sees a part of the work cannot even it out.
type predicted struct{ predictedParams }

func newPredicted(p predictedParams) (plugin.Plugin, error) {
	weights := map[string]float64{
		"ownWeight": p.OwnWeight, "stallWeight": p.StallWeight, "arrivalWeight": p.ArrivalWeight, "decodeWeight": p.DecodeWeight,
		"busyWeight": p.BusyWeight, "targetWeight": p.TargetWeight, "alike": p.Alike,
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if weights[name] < 0 {
			return plugin.Plugin{}, &plugin.ParamError{Field: name, Message: "must not be negative"}
		}
	}
	return plugin.Plugin{Scorer: predicted{p}}, plugin.Faults(
		plugin.Require(p.FleetShare >= 0 && p.FleetShare <= 1, "fleetShare", "must be between 0 and 1"),
		plugin.Require(p.ChunkTokens > 0 && p.ChunkTokens <= 1<<20, "chunkTokens", "must be from 1 to 1048576"))
}

// Score implements picker.Scorer.
func (s predicted) Score(c *picker.Cycle, scores []float64) {
	if len(scores) == 0 {
		return
	}
	for k := range scores {
		scores[k] = stretch(c.At(k))
	}
	level := mean(scores)
	for k, x := range scores { // of a second of work there
		scores[k] = s.StallWeight * float64(max(c.At(k).Load.Requests, 0)) * x * x / level
	}
	common, arrival, told := s.FleetShare*mean(scores), s.ArrivalWeight*level, told(c)
	target := c.Request.SLOTTFT.Seconds()
	for k, stall := range scores {
		p := s.predict(c, k, common+(1-s.FleetShare)*stall, arrival)
		p.Others += s.BusyWeight * told * told * s.busy(c.At(k))
		c.Predict(k, p)
		cost := p.TTFT() + p.Others
		if target > 0 {
			cost += s.TargetWeight * max(p.TTFT()-target, 0)
		}
		scores[k] = -cost
	}
	even(c, scores, s.Alike)
}

// even makes the scores of candidates that hold as much of the prompt as the
// best, and are nearly as good or worse by less than what is known of both,
// equal to its score: chance decides among equals, not the last digit of what
// was learned.
func even(c *picker.Cycle, scores []float64, alike float64) {
	best := 0
	for k, x := range scores {
		if x > scores[best] {
			best = k
		}
	}
	top, missing, doubt := scores[best], c.Work(best).New, c.At(best).Cost.Doubt
	for k, x := range scores {
		if x > top*(1+max(alike, doubt, c.At(k).Cost.Doubt)) && c.Work(k).New == missing {
			scores[k] = top
		}
	}
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func decoding(l *endpoint.Load) float64 { return float64(max(l.Requests-l.Waiting, 0)) }

// stretch returns the length of a step at v in steps of an idle engine, at
// least 1.
func stretch(v *picker.View) float64 {
	return max(v.Cost.StepOf(decoding(&v.Load), float64(v.Load.Context))/endpoint.PriorCost.Step, 1)
}

// busy returns the square of the busy share at v times a full step of an idle
// engine.
func (s predicted) busy(v *picker.View) float64 {
	return v.Cost.Idle * endpoint.PriorCost.PerToken * float64(s.ChunkTokens) * v.Load.Busy * v.Load.Busy
}

// told returns the share of the requests at the candidates' engines that the
// book tells of, 0..1. It is less than 1 when other replicas are cut off.
func told(c *picker.Cycle) float64 {
	var book, engines int64
	for k := range c.Len() {
		if v := c.At(k); v.Sampled {
			book += max(v.Load.Requests, 0)
			engines += int64(v.Waiting + v.Running)
		}
	}
	if book >= engines {
		return 1
	}
	return float64(book) / float64(engines)
}

// predict returns what the request would meet at candidate k, where a second
// of its work costs the requests that are there stall seconds, and those that
// arrive meanwhile arrival times their delay.
func (s predicted) predict(c *picker.Cycle, k int, stall, arrival float64) picker.Prediction {
	v, w := c.At(k), c.Work(k)
	cost, l := v.Cost, &v.Load
	own, wait := cost.Prefill(w), cost.Wait(l, c.Now)
	chunks := float64((w.New + s.ChunkTokens - 1) / s.ChunkTokens)
	p := picker.Prediction{Wait: wait, Own: own, Base: chunks * cost.Base}
	p.Others = own*(s.OwnWeight+stall+arrival*l.Rate*(wait+own/2)) +
		s.DecodeWeight*cost.StepOf(decoding(l)+1, float64(l.Context+int64(w.Input)))
	if l.Waiting > 0 {
		p.Others += min(own, cost.PerToken*float64(s.ChunkTokens)/2)
	}
	return p
}
