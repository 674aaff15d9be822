package predicted

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Params are the scorer's parameters. They weigh a request's cost to others against its own time to
// first token. All are dimensionless unless noted.
type Params struct {
	OwnWeight     float64 `json:"ownWeight"`     // own prefill: evictions and fleet time
	StallWeight   float64 `json:"stallWeight"`   // stall of each decoding request
	QueueWeight   float64 `json:"queueWeight"`   // delay of each waiting request
	ArrivalWeight float64 `json:"arrivalWeight"` // delay of requests expected to arrive during the prefill
	DecodeWeight  float64 `json:"decodeWeight"`  // one second of the request's own decoding
	MemoryWeight  float64 `json:"memoryWeight"`  // delay of later requests by the request's memory
	BusyWeight    float64 `json:"busyWeight"`    // square of the recent prefill share there, in full steps of an idle engine
	CopyThreshold float64 `json:"copyThreshold"` // how many times savings must cover a copy's cost to others; 0: no copies
	MaxShare      float64 `json:"maxShare"`      // maximum share of all in-flight requests at one endpoint; 0: unlimited
	TargetWeight  float64 `json:"targetWeight"`  // time beyond the first-token target
	ZoneCost      float64 `json:"zoneCost"`      // cost of crossing to another zone in seconds; 0: zones have no effect
	Alike         float64 `json:"alike"`         // relative difference to the lowest cost that counts as equal
	ChunkTokens   int     `json:"chunkTokens"`   // tokens that an engine prefills per step
	WarmUp        bool    `json:"warmUp"`        // also copy to idle engines by separate warm-up requests
}

// Defaults are the default parameters.
var Defaults = Params{
	OwnWeight: .5, StallWeight: .1, QueueWeight: 1, ArrivalWeight: .5, DecodeWeight: .1, MemoryWeight: 1, BusyWeight: 30,
	CopyThreshold: 3, TargetWeight: 4, ZoneCost: .001, Alike: .02, ChunkTokens: 8192,
}

// scorer is the default policy: the predicted time to first token of each candidate, plus the
// request's cost to others there. Its score is the negative sum, in seconds.
//
//	cost = wait + load + own + chunks × base
//	     + OwnWeight × (load + own)
//	     + (load + own) × (StallWeight × decoding + QueueWeight × waiting)
//	     + ArrivalWeight × own × arrival rate × (wait + own/2) / (1 − busy)
//	     + DecodeWeight × answer × (step with the request in it)
//	     + MemoryWeight × P(memory full) × hold × arrival rate × (wait for memory beyond the minimum + hold/2)
//	     + BusyWeight × full step of an idle engine × (told × busy)²
//	     + the price of leaving this replica's zone (zone.go)
//
// own = B × new + E × new × (input − new/2). wait is the largest of the known bounds
// (cycle.View.Wait). B, E, base and the decode step are learned per endpoint (endpoint.Cost), the
// answer length per model (fit.Answers).
//
// load is the learned time to load other resources that the request needs and the engine lacks
// (cycle.Cycle.Ready).
//
// hold is the request's share of the engine's KV memory times the seconds for which it keeps it
// (memory.go).
//
// The request's contribution to other requests' decode steps has no cost: it is the same at every
// candidate. If it were included next to the stall, long contexts would gather where few requests
// decode and wait for memory there (docs/adr/0033).
//
// busy is the share of recent minutes spent on prefill: even work over minutes makes caches equally
// old. told is the tracked share of the engines' requests: a replica that sees only a part of the
// work cannot even it out.
//
// Every term is the marginal cost at that candidate alone. A mean over candidates would be
// misleading: one hot engine raises it for idle ones too, which makes leaving the hot engine
// expensive and heats it further.
//
// Unknown terms are 0: with nothing cached and nothing learned, the cost depends on the in-flight
// requests alone.
//
// Two rules complement the cost. No candidate is chosen where the first token would be later than
// with a full prefill elsewhere (limit). A popular prefix is copied to another candidate before its
// holder is overloaded (copies).
type scorer struct {
	Params
	copies *copies // nil: no copies
	cold   *coldFleet
	fetch  *Fetch // nil: no fetches
}

// New returns the scorer. fetch may be nil.
func New(p Params, fetch *Fetch) cycle.Scorer {
	s := scorer{Params: p, cold: new(coldFleet), fetch: fetch}
	if p.CopyThreshold > 0 {
		s.copies = new(copies)
	}
	return s
}

// Score implements cycle.Scorer.
func (s scorer) Score(c *cycle.Cycle, scores []float64) {
	if len(scores) == 0 {
		return
	}
	d := s.price(c, scores)
	s.limit(&d)
	s.even(&d)
	if s.copies != nil {
		s.spread(&d)
	}
}

// price sets scores to the negative costs of the candidates, and returns the data for the rules.
func (s *scorer) price(c *cycle.Cycle, scores []float64) decision {
	d := decision{Cycle: c, scores: scores, answer: c.Answer(), target: c.Request.SLOTTFT.Seconds()}
	d.input = max(c.Request.InputTokens, 1)
	d.place(c.Scratch(10 * len(scores)))
	s.findHolders(&d)
	s.survey(&d)
	for k := range scores {
		p := s.best(&d, k)
		c.Predict(k, p)
		scores[k], d.owns[k] = -s.cost(&d, p), p.Own+p.Fetch+p.Load
	}
	s.priceZones(&d)
	return d
}

// place divides room into the per-candidate arrays.
func (d *decision) place(room []float64) {
	n := len(d.scores)
	for _, list := range []*[]float64{&d.waits, &d.owns, &d.news, &d.memories, &d.wholes, &d.steps, &d.doubts, &d.requests, &d.loads, &d.crossings} {
		*list, room = room[:n:n], room[n:]
	}
}

// survey collects the inputs of costs and rules from every candidate in one pass, because views are
// large.
func (s *scorer) survey(d *decision) {
	whole := endpoint.Work{Input: d.input, New: d.input}
	d.least, d.quickest, d.soonest, d.soft, d.memory, d.alone = far, far, far, far, far, far
	var book, engines int64
	for k := range d.scores {
		view := d.Cycle.At(k)
		v := view.Rank()
		if view.Sampled {
			book, engines = book+max(view.Load.Requests, 0), engines+int64(view.Waiting+view.Running)
		}
		d.news[k], d.wholes[k] = float64(d.Cycle.Work(k).New), v.Cost.Prefill(whole)
		d.waits[k], d.memories[k] = v.Waits(d.Now, d.news[k], d.answer)
		ready := d.Cycle.Ready(v, d.answer)
		d.waits[k], d.loads[k] = max(d.waits[k], ready.Wait), ready.Load
		d.steps[k], d.doubts[k], d.requests[k] = v.Cost.Step, v.Cost.Uncertainty, float64(v.Load.Requests)
		d.least, d.memory = min(d.least, d.waits[k]), min(d.memory, d.memories[k])

		d.alone = min(d.alone, d.waits[k]+d.loads[k]+d.wholes[k])
		own, stall := d.wholes[k], 1+s.StallWeight*decoding(&v.Load)
		d.quickest, d.soonest = min(d.quickest, own*stall), min(d.soonest, d.waits[k]+d.loads[k]+own*stall)
		d.soft = min(d.soft, d.waits[k]+d.loads[k]+own*(1+s.delays(&v.Load)))
		d.rate, d.all = d.rate+v.Load.Rate, d.all+max(v.Load.Requests, 0)
	}
	if d.told = 1; book < engines {
		d.told = float64(book) / float64(engines)
	}
}

// decision is the shared state of one decision.
type decision struct {
	*cycle.Cycle
	scores []float64 // negative costs
	waits  []float64 // seconds, by candidate
	owns   []float64 // seconds to compute or fetch missing blocks, by candidate
	// By candidate, used by several terms and rules: tokens to compute, wait for their memory
	// (cycle.View.WaitOfMemory), and seconds of prefill of the whole prompt.
	news, memories, wholes []float64

	// By candidate, from the engine's constants and load.
	steps, doubts, requests []float64

	loads     []float64 // seconds to load what else the request needs, by candidate
	crossings []float64 // price of leaving the zone in seconds, by candidate
	home      home

	// Values over all candidates. quickest, soonest and soft are minimum seconds: of the whole
	// prompt with its stalls, of the same including the wait, and of the same including delays of
	// others. memory is the minimum wait for memory, rate the dispatches per second, and all the
	// requests in flight.
	quickest, soonest, soft, memory, rate float64
	alone                                 float64 // minimum wait + whole prompt, without any stall
	all                                   int64

	input  int     // prompt tokens
	least  float64 // minimum wait
	answer float64 // expected answer tokens
	told   float64 // tracked share of the engines' requests, 0..1; below 1 while other replicas are unreachable
	target float64 // first-token target in seconds, 0: none
	limit  float64 // maximum seconds of wait and own work
	seen   float64 // engine requests per request of this replica
	most   float64 // maximum requests of one candidate
	busy   float64 // recent prefill share over the candidates, 0..mostBusy
	full   float64 // known fill level of caches, 0..1

	holders [2]holder
}

// Work returns the request's work at candidate k, like cycle.Cycle.Work.
func (d *decision) Work(k int) endpoint.Work {
	return endpoint.Work{Input: d.input, New: int(d.news[k])}
}

// At returns candidate k; for an engine with several data-parallel ranks, the rank that would get
// the request.
func (d *decision) At(k int) *cycle.View { return d.Cycle.At(k).Rank() }

func (s *scorer) cost(d *decision, p cycle.Prediction) float64 {
	cost := p.TTFT() + p.Others
	if d.target > 0 {
		cost += s.TargetWeight * max(p.TTFT()-d.target, 0)
	}
	return cost
}

// predict returns the prediction for candidate k if its work were w, including the cost to others.
func (s *scorer) predict(d *decision, k int, w endpoint.Work) cycle.Prediction {
	p, v := s.predictOwn(d, k, w), d.At(k)
	p.Others += s.more(d, k, v, w)
	return p
}

// predictOwn is predict without the costs of uneven work and memory. A load keeps the engine
// from all other work, and may evict what another request needs, so it costs others as much as a
// prefill of the same time.
func (s *scorer) predictOwn(d *decision, k int, w endpoint.Work) cycle.Prediction {
	v := d.At(k)
	p := s.Predict(v.Cost, &v.Load, w, d.waits[k], d.answer)
	if p.Load = d.loads[k]; p.Load > 0 {
		p.Others += p.Load * (s.OwnWeight + s.delays(&v.Load))
	}
	return p
}

// more returns the costs of uneven work and memory, both at least 0.
func (s *scorer) more(d *decision, k int, v *cycle.View, w endpoint.Work) float64 {
	return s.BusyWeight*d.told*d.told*s.busy(v) + s.MemoryWeight*d.memoryCost(v, w, d.memoryWait(k, v, w))
}

// Predict returns the prediction for a request at an engine with the given constants and load, if
// it starts after wait seconds and has an answer of that many tokens.
func (s *Params) Predict(cost *endpoint.Cost, l *endpoint.Load, w endpoint.Work, wait, answer float64) cycle.Prediction {
	own, running := cost.Prefill(w), decoding(l)
	chunks := float64((w.New + s.ChunkTokens - 1) / s.ChunkTokens)
	p := cycle.Prediction{Wait: wait, Own: own, Base: chunks * cost.Base}
	step := cost.StepOf(running+1, float64(l.Context+int64(w.Input)))
	longer := 1 / (1 - min(max(l.Busy, 0), mostBusy))
	p.Others = own*(s.OwnWeight+s.delays(l)) +
		s.ArrivalWeight*own*l.Rate*(wait+own/2)*longer +
		s.DecodeWeight*answer*step
	return p
}

// delays returns the cost in seconds, to requests already there, of one second of work.
func (s *Params) delays(l *endpoint.Load) float64 {
	return s.StallWeight*decoding(l) + s.QueueWeight*float64(max(l.Waiting, 0))
}

// far is later than any prediction.
const far = 1e18

// mostLate is the largest ratio of a predicted first token to the minimum wait + whole prompt.
const mostLate = 1.5

// mostBusy bounds the prefill share.
const mostBusy = .9

// limit ranks candidates that must not be chosen behind all others: candidates above their share of
// in-flight requests, and candidates with a first token that would be too late.
//
// The bound is the minimum over candidates of wait + whole prompt, including the prompt's delay of
// requests already there. If all candidates decode or have queues, moving a request for its own
// sake repeats prefill at the expense of others. This delay counts at most as far as a fleet
// without caches would be late itself.
//
// With equal engines, exact waits and FIFO order, no request then has its first token later than
// without caches, for any costs (docs/adr/0017). If requests wait for memory at every engine, that
// fleet would wait for memory at least as long as the engine with the most space. It holds the same
// prompts, shares none, and is no faster at any.
//
// No weight moves the bound beyond mostLate times the minimum over candidates of wait + whole prompt,
// or the same in a fleet without caches if that is later. The candidate with the minimum is always
// within it. Otherwise the stall of decoding requests, which grows with the prompt, would keep long
// prompts in the queue of a few engines while others are idle. This does not hold for engines that
// order requests by the picker's priority: short prompts overtake long ones there, so waits are not
// those of a queue, and spreading long prompts costs the short ones more than it gains.
//
// If engines differ in speed, no bound guarantees this, and the lateness of that fleet does not
// count: no request waits longer than if it left its cache at that moment.
func (s *scorer) limit(d *decision) {
	lowest := 0.0
	for _, x := range d.scores {
		lowest = min(lowest, x)
	}
	alone, speeds, unlike := s.speeds(d)
	cold, seen := s.cold.add(d.Now, len(d.scores), speeds, alone, d.rate)
	capped := min(d.soft, cold+d.memory+d.quickest)
	d.seen, d.limit = seen, max(d.soonest, capped+unlike*(d.soft-capped))
	if !d.ByPriority() {
		d.limit = min(d.limit, mostLate*max(d.alone, cold+d.memory+alone))
	}
	d.most = s.most(d.all, len(d.scores))
	for k := range d.scores {
		if beyond := s.beyond(d, k); beyond > 0 {
			d.scores[k] = 3*lowest - beyond // no uncertainty makes it equal to others
		}
	}
}

// speeds returns the seconds of the whole prompt at the fastest candidate, the sum of all
// candidates' speeds relative to the fastest, and the degree of difference. The degree is 0 while
// the slowest takes at most a quarter longer beyond possible chance, and 1 from half as long again.
// The transition is continuous, so that noise does not switch the rule.
func (s *scorer) speeds(d *decision) (quickest, sum, unlike float64) {
	quickest = far
	slowest, doubt := 0.0, 0.0
	for k, own := range d.wholes {
		quickest, slowest, doubt = min(quickest, own), max(slowest, own), max(doubt, d.doubts[k])
	}
	unlike = min(max((slowest/quickest-1-doubtfully*doubt-hardlyUnlike)/(surelyUnlike-hardlyUnlike), 0), 1)
	for _, own := range d.wholes {
		sum += quickest / own
	}
	return quickest, sum, unlike
}

// The number of standard errors by which two engines must differ, and the relative differences
// beyond it at which they begin to count as different, and fully do. Replicas do not share their
// standard errors.
const (
	doubtfully   = 2
	hardlyUnlike = .25
	surelyUnlike = .5
)

// beyond returns the amount by which candidate k exceeds the limits, 0 or less if it may be chosen.
// Within one step of the limit it may.
func (s *scorer) beyond(d *decision, k int) float64 {
	late := d.waits[k] + d.owns[k] - d.limit - d.steps[k]
	return max(late, d.requests[k]+1-d.most)
}

// most returns the maximum number of requests for one of n endpoints with all in flight. With few
// in flight, chance alone makes shares uneven.
func (s *scorer) most(all int64, n int) float64 {
	if s.MaxShare <= 0 {
		return far
	}
	mean := float64(all+1) / float64(n)
	return max(s.MaxShare*float64(all+1), mean) + 2*math.Sqrt(mean) + 2
}

// even sets the scores of candidates that are practically as good as the best one to its score,
// except for zone and in-flight requests. These must hold as much of the prompt, and their costs
// must differ by less than the uncertainty or one step, the resolution of any prediction. Among
// equals, the order is this replica's zone, then the fewest requests, then random. The last digit
// of a learned constant must not decide.
func (s *scorer) even(d *decision) {
	scores := d.scores
	best := greatest(scores)
	top, missing := scores[best], d.news[best]
	doubt, step := d.doubts[best], d.steps[best]
	for k, x := range scores {
		slack := max(-top*max(s.Alike, doubt, d.doubts[k]), step)
		if x > top-slack && d.news[k] == missing && d.loads[k] == d.loads[best] {
			scores[k] = top - evenRequest*max(d.requests[k], 0)
			if s.leaves(d.At(k)) {
				scores[k] -= evenZone
			}
		}
	}
}

// Weights among equals of an in-flight request and of another zone. The zone outweighs any number
// of requests.
const (
	evenRequest = 1e-12
	evenZone    = 1e-7
)

func decoding(l *endpoint.Load) float64 { return float64(max(l.Requests-l.Waiting, 0)) }

// busy returns the squared busy share at v times a full step of an idle engine.
func (s *scorer) busy(v *cycle.View) float64 {
	return v.Cost.Idle * endpoint.PriorCost.PerToken * float64(s.ChunkTokens) * v.Load.Busy * v.Load.Busy
}
