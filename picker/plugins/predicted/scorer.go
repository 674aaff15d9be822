package predicted

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Params are the scorer's parameters. They weigh what a request costs others against its own time to
// first token; all are dimensionless unless they say otherwise.
type Params struct {
	OwnWeight     float64 `json:"ownWeight"`     // work itself: what it evicts, and the fleet's time
	StallWeight   float64 `json:"stallWeight"`   // stall of each decoding request
	QueueWeight   float64 `json:"queueWeight"`   // delay of each request that waits
	ArrivalWeight float64 `json:"arrivalWeight"` // delay of arrivals expected meanwhile
	DecodeWeight  float64 `json:"decodeWeight"`  // a second of decoding of the request itself
	MemoryWeight  float64 `json:"memoryWeight"`  // delay of those who come while memory is full, by what the request holds of it
	BusyWeight    float64 `json:"busyWeight"`    // square of the time's share that prefill took there of late, in full steps of an idle engine
	CopyThreshold float64 `json:"copyThreshold"` // how many times what a copy of a prefix costs others is to be covered by what it would have saved; 0: none are made
	MaxShare      float64 `json:"maxShare"`      // share of all requests in flight that one endpoint may have; 0: any
	TargetWeight  float64 `json:"targetWeight"`  // time beyond an SLO's first token
	ZoneCost      float64 `json:"zoneCost"`      // seconds by which an endpoint of another zone than this replica's is dearer
	Alike         float64 `json:"alike"`         // share of the least cost by which others may be above it and count as equal
	ChunkTokens   int     `json:"chunkTokens"`   // tokens that an engine prefills in a step
	WarmUp        bool    `json:"warmUp"`        // copies are also made at idle engines, by requests of our own
}

// Defaults are the values of parameters that nobody gives.
var Defaults = Params{
	OwnWeight: .5, StallWeight: .1, QueueWeight: 1, ArrivalWeight: .5, DecodeWeight: .1, MemoryWeight: 1, BusyWeight: 30,
	CopyThreshold: 3, TargetWeight: 4, ZoneCost: .001, Alike: .02, ChunkTokens: 8192,
}

// scorer is the default policy: the predicted time to first token of each
// candidate, plus what the request costs others there. Its score is the negative
// sum, in seconds.
//
//	cost = wait + own + chunks × base
//	     + OwnWeight × own
//	     + own × (StallWeight × decoding + QueueWeight × waiting)
//	     + ArrivalWeight × own × arrival rate × (wait + own/2) / (1 − busy)
//	     + DecodeWeight × answer × (step with the request in it)
//	     + MemoryWeight × P(memory full) × hold × arrival rate × (wait for memory beyond the least wait + hold/2)
//	     + BusyWeight × full step of an idle engine × (told × busy)²
//	     + ZoneCost, where the candidate is in another zone than this replica
//
// own = B × new + E × new × (input − new/2); wait is the greatest of the bounds
// that are known (cycle.View.Wait). B, E, base and the decode step are learned
// per endpoint (endpoint.Cost), the length of the answer per model
// (fit.Answers).
//
// hold is the share of the engine's KV memory that the request takes times the
// seconds that it keeps it (memory.go).
//
// What the request adds to the steps of those who decode beside it has no price: it adds
// that wherever it goes, and with the stall priced as well, long contexts gather where few
// decode and wait for memory there (docs/adr/0033).
//
// busy is the share of the last minutes' time that prefill took there: work that
// is even over minutes makes caches equally old. told is the share of the engines'
// requests that the book tells of: a replica that sees a part of the work cannot
// even it out.
//
// Every term is the marginal one at that candidate alone. A mean over candidates
// is nobody's price: one hot engine raises it for idle ones too, leaving the hot
// one becomes dear, and it gets hotter.
//
// Unknown terms are 0: with nothing held and nothing learned the cost grows with
// the requests in flight alone.
//
// Two rules stand beside the cost. No candidate is chosen where the first token
// would come later than if the prompt were built anew elsewhere (limit). And a
// prefix that is asked for often is copied to another candidate before its holder
// is overloaded (copies).
type scorer struct {
	Params
	copies *copies // nil: none are bought
	cold   *coldFleet
	fetch  *Fetch // nil: nothing is fetched
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

// price sets scores to the negative costs of the candidates, and returns what the rules need.
func (s *scorer) price(c *cycle.Cycle, scores []float64) decision {
	d := decision{Cycle: c, scores: scores, answer: c.Answer(), target: c.Request.SLOTTFT.Seconds()}
	d.input = max(c.Request.InputTokens, 1)
	d.place(c.Scratch(8 * len(scores)))
	s.findHolders(&d)
	s.survey(&d)
	for k := range scores {
		p := s.best(&d, k)
		c.Predict(k, p)
		scores[k], d.owns[k] = -s.cost(&d, p), p.Own+p.Fetch
	}
	return d
}

// place divides room into the arrays by candidate.
func (d *decision) place(room []float64) {
	n := len(d.scores)
	for _, list := range []*[]float64{&d.waits, &d.owns, &d.news, &d.memories, &d.wholes, &d.steps, &d.doubts, &d.requests} {
		*list, room = room[:n:n], room[n:]
	}
}

// survey takes from every candidate what prices and rules need, in one pass: views are large.
func (s *scorer) survey(d *decision) {
	whole := endpoint.Work{Input: d.input, New: d.input}
	d.least, d.quickest, d.soonest, d.soft, d.memory = far, far, far, far, far
	var book, engines int64
	for k := range d.scores {
		view := d.Cycle.At(k)
		v := view.Rank()
		if view.Sampled {
			book, engines = book+max(view.Load.Requests, 0), engines+int64(view.Waiting+view.Running)
		}
		d.news[k], d.wholes[k] = float64(d.Cycle.Work(k).New), v.Cost.Prefill(whole)
		d.waits[k], d.memories[k] = v.Waits(d.Now, d.news[k], d.answer)
		d.steps[k], d.doubts[k], d.requests[k] = v.Cost.Step, v.Cost.Uncertainty, float64(v.Load.Requests)
		d.least, d.memory = min(d.least, d.waits[k]), min(d.memory, d.memories[k])

		own, stall := d.wholes[k], 1+s.StallWeight*decoding(&v.Load)
		d.quickest, d.soonest = min(d.quickest, own*stall), min(d.soonest, d.waits[k]+own*stall)
		d.soft = min(d.soft, d.waits[k]+own*(1+s.delays(&v.Load)))
		d.rate, d.all = d.rate+v.Load.Rate, d.all+max(v.Load.Requests, 0)
	}
	if d.told = 1; book < engines {
		d.told = float64(book) / float64(engines)
	}
}

// decision is what the parts of a decision share.
type decision struct {
	*cycle.Cycle
	scores []float64 // negative costs
	waits  []float64 // seconds, by candidate
	owns   []float64 // seconds to compute or fetch what is missing, by candidate
	// What several terms and rules need, by candidate: the tokens to compute, the wait for their
	// memory (cycle.View.WaitOfMemory), and the seconds of prefill of the whole prompt.
	news, memories, wholes []float64

	// Of its engine's constants and load, the same.
	steps, doubts, requests []float64

	// Over all candidates: the least of the seconds of the whole prompt with its stalls, the same
	// after the wait, the same with what it delays, and of the waits for memory; the dispatches
	// per second and the requests in flight.
	quickest, soonest, soft, memory, rate float64
	all                                   int64

	input  int     // tokens of the prompt
	least  float64 // of waits
	answer float64 // expected tokens
	told   float64 // share of the requests at the candidates' engines that the book has, 0..1; less than 1 while other replicas are cut off
	target float64 // seconds to first token, 0: none
	limit  float64 // most seconds of wait and own work
	seen   float64 // requests that the engines have for one of this replica's
	most   float64 // most requests of one candidate
	busy   float64 // share of the candidates' time that prefill takes of late, 0..mostBusy
	full   float64 // how full caches are, as far as is known, 0..1

	holders [2]holder
}

// Work returns what the request asks of candidate k, as cycle.Cycle.Work does.
func (d *decision) Work(k int) endpoint.Work {
	return endpoint.Work{Input: d.input, New: int(d.news[k])}
}

// At returns candidate k as what its price is of: of an engine with several data-parallel
// ranks the one that would have the request.
func (d *decision) At(k int) *cycle.View { return d.Cycle.At(k).Rank() }

func (s *scorer) cost(d *decision, p cycle.Prediction) float64 {
	cost := p.TTFT() + p.Others
	if d.target > 0 {
		cost += s.TargetWeight * max(p.TTFT()-d.target, 0)
	}
	return cost
}

// predict returns what the request would meet at candidate k if its work there
// were w, and what it would cost others.
func (s *scorer) predict(d *decision, k int, w endpoint.Work) cycle.Prediction {
	v := d.At(k)
	p := s.Predict(v.Cost, &v.Load, w, d.waits[k], d.answer)
	p.Others += s.more(d, k, v, w)
	return p
}

// more returns the costs of even work, of memory and of another zone, none of which is negative.
func (s *scorer) more(d *decision, k int, v *cycle.View, w endpoint.Work) float64 {
	return s.BusyWeight*d.told*d.told*s.busy(v) + s.MemoryWeight*d.memoryCost(v, w, d.memoryWait(k, v, w)) + s.zoneCost(v)
}

// Predict returns what is expected of a request at an engine that has such constants and
// such a load, when it begins after wait seconds and its answer has so many tokens.
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

// delays returns what a second of work costs those that are there, in seconds.
func (s *Params) delays(l *endpoint.Load) float64 {
	return s.StallWeight*decoding(l) + s.QueueWeight*float64(max(l.Waiting, 0))
}

// far is later than any prediction.
const far = 1e18

// mostBusy bounds the share of time that counts as taken by prefill.
const mostBusy = .9

// limit puts the candidates that must not be chosen behind all others: those
// that would have more than their share of what is in flight, and those where the
// first token would come too late.
//
// The bound is the least of wait + whole prompt over the candidates, the prompt's
// delay of those who are there included: where all decode or have queues, moving a
// request for its own sake repeats prefill that everybody waits for. But those who
// wait count no further than a fleet without caches would be late itself: with
// equal engines, exact waits and first come first served no request has its first
// token later than without caches, whatever the costs prefer (docs/adr/0017). Where
// every engine makes requests wait for memory, that fleet would wait for it at
// least as long as the engine with the most room does: it holds the same prompts,
// shares none of them, and takes no less time for each.
//
// Where engines differ in speed no bound gives that, and how late that fleet would be
// does not count: no request waits longer than if it left its cache at that moment.
func (s *scorer) limit(d *decision) {
	lowest := 0.0
	for _, x := range d.scores {
		lowest = min(lowest, x)
	}
	alone, speeds, unlike := s.speeds(d)
	cold, seen := s.cold.add(d.Now, len(d.scores), speeds, alone, d.rate)
	capped := min(d.soft, cold+d.memory+d.quickest)
	d.seen, d.limit = seen, max(d.soonest, capped+unlike*(d.soft-capped))
	d.most = s.most(d.all, len(d.scores))
	for k := range d.scores {
		if beyond := s.beyond(d, k); beyond > 0 {
			d.scores[k] = 3*lowest - beyond // no doubt makes it equal to others
		}
	}
}

// speeds returns the seconds of the whole prompt at the candidate that is quickest at it, the sum
// of all candidates' speeds against that one, and how much they count as different: 0
// while the slowest takes no more than a quarter longer beyond what may be chance, 1
// from half as long again on. There is no step between, so that noise does not turn the
// rule.
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

// By how many standard errors two engines must differ to count as different at all,
// and by which shares of the quickest one's time beyond that to begin to, and to do so
// entirely. Replicas do not tell each other their errors.
const (
	doubtfully   = 2
	hardlyUnlike = .25
	surelyUnlike = .5
)

// beyond returns by how much candidate k is beyond what may be chosen, 0 or less
// when it may be. What is within a step of the limit is not beyond it.
func (s *scorer) beyond(d *decision, k int) float64 {
	late := d.waits[k] + d.owns[k] - d.limit - d.steps[k]
	return max(late, d.requests[k]+1-d.most)
}

// most returns how many requests one of n endpoints may have while all are in
// flight. With few in flight chance alone makes shares uneven.
func (s *scorer) most(all int64, n int) float64 {
	if s.MaxShare <= 0 {
		return far
	}
	mean := float64(all+1) / float64(n)
	return max(s.MaxShare*float64(all+1), mean) + 2*math.Sqrt(mean) + 2
}

// even makes the scores of candidates that hold as much of the prompt as the
// best, and are nearly as good or worse by less than what is known of both,
// equal to its score, but for the zone and the requests in flight: those in this
// replica's zone come first among equals, then those with the fewest requests, then
// chance decides, not the last digit of what was learned. Nothing is known
// to less than a step, which a request may come just before or just after.
func (s *scorer) even(d *decision) {
	scores := d.scores
	best := greatest(scores)
	top, missing := scores[best], d.news[best]
	doubt, step := d.doubts[best], d.steps[best]
	for k, x := range scores {
		slack := max(-top*max(s.Alike, doubt, d.doubts[k]), step)
		if x > top-slack && d.news[k] == missing {
			scores[k] = top - evenRequest*max(d.requests[k], 0)
			if s.zoneCost(d.At(k)) > 0 {
				scores[k] -= evenZone
			}
		}
	}
}

// By how much a request in flight counts among equals, and another zone, which counts
// for more than any number of them.
const (
	evenRequest = 1e-12
	evenZone    = 1e-7
)

// zoneCost is what a request's bytes cost on their way into another zone. The
// time that they take is part of what is learned of the endpoint.
func (s *scorer) zoneCost(v *cycle.View) float64 {
	if !v.InRemoteZone {
		return 0
	}
	return s.ZoneCost
}

func decoding(l *endpoint.Load) float64 { return float64(max(l.Requests-l.Waiting, 0)) }

// busy returns the square of the busy share at v times a full step of an idle
// engine.
func (s *scorer) busy(v *cycle.View) float64 {
	return v.Cost.Idle * endpoint.PriorCost.PerToken * float64(s.ChunkTokens) * v.Load.Busy * v.Load.Busy
}
