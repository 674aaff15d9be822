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
	s.demote(d)
	s.even(d)
	if s.copies != nil {
		s.spread(d)
	}
}

// price sets scores to the negative costs of the candidates, and returns the data for the rules. If
// few of the scores are needed, it prices only candidates that may be among the best (prune.go).
func (s *scorer) price(c *cycle.Cycle, scores []float64) *decision {
	d := begin(c, scores)
	s.findHolders(d)
	s.survey(d)
	s.bound(d)
	if d.pruned = c.Top() > 0 && len(scores) > cycle.Listed && s.fetch == nil; d.pruned {
		s.priceBest(d, c.Top())
		return d
	}
	open := d.open
	for k := range scores {
		s.quote(d, k, open.next(k))
	}
	s.priceZones(d)
	return d
}

// begin returns the working memory of a decision.
func begin(c *cycle.Cycle, scores []float64) *decision {
	d, ok := c.State().(*decision)
	if !ok {
		d = new(decision)
		c.SetState(d)
	}
	*d = decision{Cycle: c, scores: scores, answer: c.Answer(), target: c.Request.SLOTTFT.Seconds(), open: d.open[:0], leaders: d.leaders[:0]}
	d.input = max(c.Request.InputTokens, 1)
	n, room := len(scores), c.Scratch(10*len(scores))
	for _, list := range []*[]float64{&d.waits, &d.owns, &d.news, &d.wholes, &d.steps, &d.requests, &d.loads, &d.firsts, &d.others, &d.busys} {
		*list, room = room[:n:n], room[n:]
	}
	return d
}

// quote sets the price of candidate k, without the price of leaving the zone. why is its entry of
// decision.open.
func (s *scorer) quote(d *decision, k int, why reason) {
	var p cycle.Prediction
	if s.fetch == nil && why&fills == 0 && d.loads[k] == 0 {
		p = cycle.Prediction{Wait: d.waits[k], Own: d.owns[k], Base: s.chunks(d.Work(k)) * d.Terms(k).Base, Others: d.others[k] + d.uneven*d.busys[k]}
	} else {
		p = s.best(d, k)
	}
	d.Predict(k, p)
	d.scores[k], d.owns[k] = -s.cost(d, p), p.Own+p.Fetch+p.Load
}

// reason is why the survey does not include all terms of a candidate's cost.
type reason uint8

const (
	fills  reason = 1 << iota // it may fill the memory
	leaves                    // it is in another zone
)

// openList lists such candidates in ascending order, each with its reasons.
type openList []openEntry

type openEntry struct {
	k   int32
	why reason
}

// next returns the reasons of candidate k, 0 if it is not in the list. It is called with k ascending,
// and removes what it has returned.
func (l *openList) next(k int) reason {
	if len(*l) == 0 || (*l)[0].k != int32(k) {
		return 0
	}
	why := (*l)[0].why
	*l = (*l)[1:]
	return why
}

// survey collects the inputs of costs and rules from every candidate in one pass, because in large
// pools each pass takes as long as memory needs to deliver the candidates. Sums and bounds are local
// variables: fields would be written back for each candidate.
func (s *scorer) survey(d *decision) {
	whole := endpoint.Work{Input: d.input, New: d.input}
	least, quickest, soonest, soft, memory, alone, fastest := far, far, far, far, far, far, far
	rate, all, slowest, doubt, step := 0.0, 0.0, 0.0, 0.0, 0.0
	in, pairs, zones, needs := float64(d.input), whole.Pairs(), s.ZoneCost > 0, d.NeedsAny()
	var tracked, reported int64
	d.MissingTokens(d.news)
	for k, tokens := range d.news {
		w := endpoint.Work{Input: d.input, New: int(tokens)}
		t, now := d.Terms(k), d.Moment(k, tokens, d.answer)
		tracked, reported = tracked+int64(t.Tracked), reported+int64(t.Reported)
		wait, load := now.Wait, 0.0
		if needs {
			ready := d.Cycle.Ready(d.At(k), d.answer)
			wait, load = max(wait, ready.Wait), ready.Load
		}
		own, prompt := t.PerToken*tokens+t.PerPair*w.Pairs(), t.PerToken*in+t.PerPair*pairs
		delays := s.delays(t)
		d.wholes[k], d.waits[k], d.loads[k], d.owns[k] = prompt, wait, load, own+load
		d.steps[k], d.requests[k] = t.Step, t.Requests
		d.firsts[k] = wait + own + s.chunks(w)*t.Base + 0 + load
		d.busys[k] = s.unevenness(t.Idle, now.Busy)
		others := s.others(own, wait, delays, now.Rate, now.Busy) + s.decode(t, d)
		if load > 0 {
			others += load * (s.OwnWeight + delays)
		}
		d.others[k] = others
		var why reason
		if zones && t.InRemoteZone {
			why, d.away = leaves, true
		}
		if tokens >= t.HalfFull*almost && now.Rate != 0 {
			why |= fills
		}
		if why != 0 {
			d.open = append(d.open, openEntry{int32(k), why})
		}

		start, stalled := wait+load, prompt*(1+s.StallWeight*t.Decoding)
		least, memory = min(least, wait), min(memory, now.Memory)
		alone, quickest, soonest = min(alone, start+prompt), min(quickest, stalled), min(soonest, start+stalled)
		soft = min(soft, start+prompt*(1+delays))
		rate, all = rate+now.Rate, all+max(t.Requests, 0)
		fastest, slowest = min(fastest, prompt), max(slowest, prompt)
		doubt, step = max(doubt, t.Uncertainty), max(step, t.Step)
	}
	d.least, d.memory, d.alone, d.quickest, d.soonest, d.soft = least, memory, alone, quickest, soonest, soft
	d.rate, d.all, d.fastest, d.slowest, d.uncertainty, d.step = rate, all, fastest, slowest, doubt, step
	if d.tracked = 1; tracked < reported {
		d.tracked = float64(tracked) / float64(reported)
	}
	d.uneven = s.BusyWeight * d.tracked * d.tracked
}

// almost keeps rounding from changing which side of a bound a value is on.
const almost = 1 - 1e-9

// decision is the shared state of one decision.
type decision struct {
	*cycle.Cycle
	scores []float64 // negative costs
	waits  []float64 // seconds, by candidate
	owns   []float64 // seconds to compute or fetch missing blocks, by candidate
	loads  []float64 // seconds to load what else the request needs, by candidate
	// By candidate, used by several terms and rules: tokens to compute, and seconds of prefill of
	// the whole prompt.
	news, wholes []float64

	// By candidate, from the engine's constants and load.
	steps, requests []float64

	// Terms of the costs, by candidate: the first token, the cost to others without those of uneven
	// work and memory, and the result of unevenness.
	firsts, others, busys []float64

	home   home
	open   openList
	away   bool // some candidates are in another zone
	pruned bool // not all candidates are priced
	// leaders are the best scores of priced candidates within the limits, in descending order.
	leaders []float64

	// Values over all candidates. quickest, soonest and soft are minimum seconds: of the whole
	// prompt with its stalls, of the same including the wait, and of the same including delays of
	// others. memory is the minimum wait for memory, rate the dispatches per second, and all the
	// requests in flight. fastest and slowest are seconds of the whole prompt alone. doubt and step
	// are the greatest uncertainty and decode step.
	quickest, soonest, soft, memory, rate float64
	fastest, slowest, uncertainty, step   float64
	alone                                 float64 // minimum wait + whole prompt, without any stall
	all                                   float64

	input   int     // prompt tokens
	least   float64 // minimum wait
	answer  float64 // expected answer tokens
	uneven  float64 // price of unevenness
	tracked float64 // tracked share of the engines' requests, 0..1; below 1 while other replicas are unreachable
	target  float64 // first-token target in seconds, 0: none
	limit   float64 // maximum seconds of wait and own work
	seen    float64 // engine requests per request of this replica
	most    float64 // maximum requests of one candidate
	busy    float64 // recent prefill share over the candidates, 0..mostBusy
	full    float64 // known fill level of caches, 0..1

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
		p.Others += p.Load * (s.OwnWeight + s.delays(d.Terms(k)))
	}
	return p
}

// more returns the costs of uneven work and memory, both at least 0.
func (s *scorer) more(d *decision, k int, v *cycle.View, w endpoint.Work) float64 {
	return d.uneven*s.busy(v) + s.MemoryWeight*d.memoryCost(k, v, w)
}

// Predict returns the prediction for a request at an engine with the given constants and load, if
// it starts after wait seconds and has an answer of that many tokens.
func (s *Params) Predict(cost *endpoint.Cost, l *endpoint.Load, w endpoint.Work, wait, answer float64) cycle.Prediction {
	own, running := cost.Prefill(w), decoding(l)
	p := cycle.Prediction{Wait: wait, Own: own, Base: s.chunks(w) * cost.Base}
	step := cost.StepOf(running+1, float64(l.Context+int64(w.Input)))
	delays := s.StallWeight*running + s.QueueWeight*float64(max(l.Waiting, 0))
	p.Others = s.others(own, wait, delays, l.Rate, l.Busy) + s.DecodeWeight*answer*step
	return p
}

// others returns the cost to others of own seconds of prefill after wait seconds, at an engine with
// the given delays, rate of dispatches and busy share.
func (s *Params) others(own, wait, delays, rate, busy float64) float64 {
	longer := 1 / (1 - min(max(busy, 0), mostBusy))
	return own*(s.OwnWeight+delays) + s.ArrivalWeight*own*rate*(wait+own/2)*longer
}

// decode returns the cost of the request's own decoding at an engine with the given terms.
func (s *scorer) decode(t *cycle.Terms, d *decision) float64 {
	return s.DecodeWeight * d.answer * (t.Next + t.PerContext*(t.Context+float64(d.input)))
}

// chunks returns the number of steps in which an engine prefills w.
func (s *Params) chunks(w endpoint.Work) float64 {
	return float64((w.New + s.ChunkTokens - 1) / s.ChunkTokens)
}

// delays returns the cost in seconds, to requests already there, of one second of work.
func (s *Params) delays(t *cycle.Terms) float64 {
	return s.StallWeight*t.Decoding + s.QueueWeight*t.Queued
}

// far is later than any prediction.
const far = 1e18

// mostLate is the largest ratio of a predicted first token to the minimum wait + whole prompt.
const mostLate = 1.5

// mostBusy bounds the prefill share.
const mostBusy = .9

// bound sets the limits that candidates must not exceed (demote): the share of in-flight requests,
// and the time to first token.
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
func (s *scorer) bound(d *decision) {
	speeds, unlike := s.speeds(d)
	cold, seen := s.cold.add(d.Now, len(d.scores), speeds, d.fastest, d.rate)
	capped := min(d.soft, cold+d.memory+d.quickest)
	d.seen, d.limit = seen, max(d.soonest, capped+unlike*(d.soft-capped))
	if !d.ByPriority() {
		d.limit = min(d.limit, mostLate*max(d.alone, cold+d.memory+d.fastest))
	}
	d.most = s.most(d.all, len(d.scores))
}

// demote ranks candidates that exceed a limit behind all others.
func (s *scorer) demote(d *decision) {
	lowest := 0.0
	for _, x := range d.scores {
		lowest = min(lowest, x)
	}
	for k := range d.scores {
		if beyond := s.beyond(d, k); beyond > 0 {
			d.scores[k] = 3*lowest - beyond // no uncertainty makes it equal to others
		}
	}
}

// speeds returns the sum of all candidates' speeds relative to the fastest, and the degree of
// difference. The degree is 0 while the slowest takes at most a quarter longer beyond possible
// chance, and 1 from half as long again. The transition is continuous, so that noise does not switch
// the rule.
func (s *scorer) speeds(d *decision) (sum, unlike float64) {
	unlike = min(max((d.slowest/d.fastest-1-errorsApart*d.uncertainty-hardlyUnlike)/(surelyUnlike-hardlyUnlike), 0), 1)
	last, speed := 0.0, 0.0
	for _, own := range d.wholes {
		if own != last { // most engines of a pool are alike, and a division is slow
			last, speed = own, d.fastest/own
		}
		sum += speed
	}
	return sum, unlike
}

// The number of standard errors by which two engines must differ, and the relative differences
// beyond it at which they begin to count as different, and fully do. Replicas do not share their
// standard errors.
const (
	errorsApart  = 2
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
func (s *scorer) most(all float64, n int) float64 {
	if s.MaxShare <= 0 {
		return far
	}
	mean := (all + 1) / float64(n)
	return max(s.MaxShare*(all+1), mean) + 2*math.Sqrt(mean) + 2
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
	doubt, step := d.Terms(best).Uncertainty, d.steps[best]
	widest := max(-top*max(s.Alike, d.uncertainty), step)
	for k, x := range scores {
		if x <= top-widest || d.news[k] != missing || d.loads[k] != d.loads[best] {
			continue
		}
		t := d.Terms(k)
		if slack := max(-top*max(s.Alike, doubt, t.Uncertainty), step); x > top-slack {
			scores[k] = top - evenRequest*max(d.requests[k], 0)
			if t.InRemoteZone && s.ZoneCost > 0 {
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
func (s *scorer) busy(v *cycle.View) float64 { return s.unevenness(v.Cost.Idle, v.Load.Busy) }

// unevenness is busy for an engine whose constants include idle.
func (s *scorer) unevenness(idle, busy float64) float64 {
	return idle * endpoint.PriorCost.PerToken * float64(s.ChunkTokens) * busy * busy
}
