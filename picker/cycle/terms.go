package cycle

import (
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Terms are the parts of the cost model's formulas that depend on an engine's load, gauges and
// constants, but not on the request or the time. For an engine with several ranks, they are those of
// the rank that would get the request. They are kept between decisions. The fields that every
// candidate of every request needs come first, since large pools are read from memory.
type Terms struct {
	Requests, Decoding, Queued float64 // requests in flight, past their first token, and before it
	// Constants of endpoint.Cost.
	PerToken, PerPair, PerContext float64
	Base, Step, Uncertainty, Idle float64

	// Next is a decode step with one more request, without contexts. Context is the tokens of
	// requests past their first token.
	Next, Context float64
	// HalfFull is the number of tokens that fill half of the memory; infinite if that is unknown.
	HalfFull float64
	// Tracked and Reported are the requests of the whole engine: by the load tracker, and by its
	// gauges. Both are 0 without gauges.
	Tracked, Reported int32

	rates      endpoint.Rates
	freshUntil int64   // Unix nanoseconds; 0: no gauges
	free       float64 // tokens of memory; infinite if unknown
	promised   float64 // tokens of queued prompts
	step       float64 // of the running requests
	ranks      float64 // at least 1

	InRemoteZone bool // see endpoint.Endpoint

	// The engine's own queue: its requests, their ratio to the load tracker's (0: it has none), and to
	// the running ones (0: they do not wait for a slot).
	waiting, excess, turnover float64
	used                      float64 // tokens of memory
	queue                     endpoint.Queue
}

// Half is the share of memory use of Terms.HalfFull.
const Half = .5

// set computes the terms of an engine with one rank, or of the rank that would get the request.
func (t *Terms) set(c *endpoint.Cost, l *endpoint.Load, r *endpoint.Reading) {
	*t = Terms{
		Requests: float64(l.Requests), Decoding: float64(max(l.Requests-l.Waiting, 0)), Queued: float64(max(l.Waiting, 0)),
		PerToken: c.PerToken, PerPair: c.PerPair, PerContext: c.PerContext,
		Base: c.Base, Step: c.Step, Uncertainty: c.Uncertainty, Idle: c.Idle,
		HalfFull: math.Inf(1), queue: c.Queue(l), ranks: 1, free: math.Inf(1), promised: float64(max(l.Prefill, 0)),
	}
	t.Next, t.Context = c.StepOf(t.Decoding+1, 0), float64(l.Context)
	t.step = stepOf(c, l, r)
	t.waiting = float64(r.Waiting)
	if known := max(l.Waiting, 0); known > 0 {
		t.excess = 1 + float64(max(int64(r.Waiting)-known, 0))/float64(known)
	}
	if r.Running > 0 && l.Prefill < smallQueue {
		t.turnover = float64(r.Waiting+1) / float64(r.Running)
	}
	if r.Capacity > 0 {
		t.HalfFull = (Half - r.KVUse) * r.Capacity
		if r.KVUse > 0 {
			t.used = r.KVUse * r.Capacity
			t.free = r.Capacity - t.used
		}
	}
}

// read sets the terms of an endpoint.
func (t *Terms) read(k *storedView) {
	v := &k.View
	if v.Ranks > 1 {
		load, reading := v.Load.PerRank(v.Ranks), v.Reading.PerRank()
		t.set(v.Cost, &load, &reading)
		t.ranks = float64(v.Ranks)
	} else {
		t.set(v.Cost, &v.Load, &v.Reading)
	}
	t.rates, t.InRemoteZone = k.timed.Rates, v.InRemoteZone
	if v.Sampled {
		t.Tracked, t.Reported = int32(max(v.Load.Requests, 0)), int32(v.Waiting+v.Running)
		t.freshUntil = k.timed.Sampled() + int64(gaugesCount)
	}
}

// moment is the part of an engine's state that depends on the time and on other candidates.
type moment struct {
	now   int64 // Unix nanoseconds
	fresh bool  // the gauges are recent; see View.Fresh
	slots int64 // sequence limit, 0: unknown, or every candidate is at its own
	rate  float64
}

// waits is View.Waits.
func (t *Terms) waits(m *moment, tokens, answer float64) (wait, memory float64) {
	wait = t.queue.Wait(m.now)
	if !m.fresh {
		return wait, 0
	}
	memory = t.waitOfMemory(tokens, answer)
	return max(wait, t.waitOfQueue(answer, m.rate, wait), t.waitOfSlots(answer, m.slots), memory), memory
}

// waitOfQueue bounds the wait by the engine's own queue. If more requests wait there than the load
// tracker has, the excess belongs to other clients and counts the same.
//
// If more requests wait than can have arrived since the last steps, with less work than one step
// does, the engine is at its sequence limit. Then one request ends every answer/running steps.
func (t *Terms) waitOfQueue(answer, rate, wait float64) float64 {
	if t.waiting == 0 {
		return 0
	}
	if t.excess == 0 {
		return t.step
	}
	wait *= t.excess
	if t.turnover > 0 && t.waiting > 4+2*rate*t.step {
		wait = max(wait, t.turnover*answer*t.step)
	}
	return wait
}

// waitOfSlots bounds the wait by the engine's sequence limit, if known: with all slots in use, one
// request ends every answer/slots steps. If no candidate has a free slot it returns 0: every
// request waits then, and total work matters more than a queue shorter by one.
func (t *Terms) waitOfSlots(answer float64, slots int64) float64 {
	if beyond := t.Requests + 1 - float64(slots); slots > 0 && beyond > 0 {
		return beyond / float64(slots) * answer * t.step
	}
	return 0
}

// waitOfMemory is View.WaitOfMemory with recent gauges.
func (t *Terms) waitOfMemory(tokens, answer float64) float64 {
	missing := tokens + t.promised - t.free
	if missing <= 0 {
		return 0
	}
	return missing / t.used * answer * t.step
}

// Moment is the part of an engine's state that depends on the time of the decision. Wait and Memory
// are the results of View.Waits.
type Moment struct {
	Wait, Memory, Rate, Busy float64
}

// Moment returns the state of remaining candidate k for a request that computes that many tokens.
func (c *Cycle) Moment(k int, tokens, answer float64) (now Moment) {
	t, m := c.Terms(k), moment{now: c.fleet.clock.Now()}
	now.Rate, now.Busy = t.rates.At(&c.fleet.clock)
	if t.ranks > 1 {
		now.Rate, now.Busy = now.Rate/t.ranks, now.Busy/t.ranks
	}
	m.rate, m.fresh = now.Rate, m.now <= t.freshUntil
	m.slots = c.fleet.freeSlots(c.places[c.live[k]])
	now.Wait, now.Memory = t.waits(&m, tokens, answer)
	return now
}

// MissingTokens sets tokens[k] to the number of tokens that remaining candidate k would compute.
func (c *Cycle) MissingTokens(tokens []float64) {
	if !c.matched {
		c.match()
	}
	in := max(c.Request.InputTokens, 1)
	for k, i := range c.live {
		tokens[k] = float64(c.missing(in, &c.held[i].Run))
	}
}

// missing returns the number of tokens to compute of a prompt of in tokens.
func (c *Cycle) missing(in int, run *block.Run) int {
	if run.Tokens == [block.NumTiers]int32{} {
		return in
	}
	return max(in-int(c.saves.Of(run)), 1)
}

// WaitOfMemory is View.WaitOfMemory for the rank of remaining candidate k.
func (c *Cycle) WaitOfMemory(k int, tokens, answer float64) float64 {
	t := c.Terms(k)
	if c.fleet.clock.Now() > t.freshUntil {
		return 0
	}
	return t.waitOfMemory(tokens, answer)
}

// Terms returns the terms of remaining candidate k.
func (c *Cycle) Terms(k int) *Terms { return &c.fleet.terms[c.places[c.live[k]]] }

// Wait returns the seconds until v, an engine or one of its ranks (View.Rank), can start a request.
// The request needs KV memory for tokens new tokens and has an expected answer of answer tokens.
// The result is the largest of the known bounds: the tracked queue, requests of other clients, the
// sequence limit, and memory.
func (v *View) Wait(now time.Time, tokens, answer float64) float64 {
	wait, _ := v.Waits(now, tokens, answer)
	return wait
}

// Waits returns Wait and its memory bound (WaitOfMemory).
func (v *View) Waits(now time.Time, tokens, answer float64) (wait, memory float64) {
	var t Terms
	t.set(v.Cost, &v.Load, &v.Reading)
	m := moment{now: now.UnixNano(), fresh: v.Fresh(), rate: v.Load.Rate}
	if v.otherFree {
		m.slots = v.Slots
	}
	return t.waits(&m, tokens, answer)
}
