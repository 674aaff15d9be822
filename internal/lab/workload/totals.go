package workload

import (
	"maps"
	"sync"
	"time"
)

// Totals adds up outcomes.
type Totals struct {
	At time.Time // of this Totals

	Requests uint64 // ended requests of any outcome except aborts
	Errors   uint64 // refused, broken or timed out
	Wrong    uint64 // complete but incorrect answers
	Aborted  uint64 // by the client, on purpose
	Active   int    // in progress

	PromptTokens, CachedTokens uint64 // as engines report them
	IdealAsked, IdealHits      uint64 // tokens, by the infinite cache
	OutputTokens               uint64

	TTFT, TPOT, Latency Dist
	Engines             map[string]EngineTotals // by X-Sim-Engine
}

// EngineTotals is the part of one engine, or of one cohort.
type EngineTotals struct {
	Requests, PromptTokens, CachedTokens uint64
}

// HitRatio is the share of prompt tokens that engines found cached.
func (t *Totals) HitRatio() float64 { return ratio(t.CachedTokens, t.PromptTokens) }

// IdealRatio is the share that an infinite cache would have found.
func (t *Totals) IdealRatio() float64 { return ratio(t.IdealHits, t.IdealAsked) }

// HitRatio is the share of prompt tokens that the engine found cached.
func (t EngineTotals) HitRatio() float64 { return ratio(t.CachedTokens, t.PromptTokens) }

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Minus returns the change from old, an earlier Totals of the same Recorder, to t. At and Active
// are t's.
func (t Totals) Minus(old *Totals) Totals {
	t.Requests -= old.Requests
	t.Errors -= old.Errors
	t.Wrong -= old.Wrong
	t.Aborted -= old.Aborted
	t.PromptTokens -= old.PromptTokens
	t.CachedTokens -= old.CachedTokens
	t.IdealAsked -= old.IdealAsked
	t.IdealHits -= old.IdealHits
	t.OutputTokens -= old.OutputTokens
	t.TTFT, t.TPOT, t.Latency = t.TTFT.minus(&old.TTFT), t.TPOT.minus(&old.TPOT), t.Latency.minus(&old.Latency)
	engines := maps.Clone(t.Engines)
	for name, e := range old.Engines {
		now := engines[name]
		engines[name] = EngineTotals{now.Requests - e.Requests, now.PromptTokens - e.PromptTokens, now.CachedTokens - e.CachedTokens}
	}
	t.Engines = engines
	return t
}

// Recorder collects outcomes.
type Recorder struct {
	mu      sync.Mutex
	totals  Totals
	last    error          // of the latest error or wrong answer
	cohorts []EngineTotals // by sending time; none until NextCohort
}

// NextCohort starts a new cohort for the requests sent from now on, and returns its number for
// Cohort.
func (r *Recorder) NextCohort() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cohorts = append(r.cohorts, EngineTotals{})
	return len(r.cohorts) - 1
}

// Cohort adds up the answers to the requests of a cohort over all engines, so far.
func (r *Recorder) Cohort(n int) EngineTotals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cohorts[n]
}

// Totals returns the sums so far.
func (r *Recorder) Totals() Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.totals
	t.At, t.Engines = time.Now(), maps.Clone(t.Engines)
	if t.Engines == nil {
		t.Engines = map[string]EngineTotals{}
	}
	return t
}

// LastError returns the latest failure or wrong answer, nil when there was
// none.
func (r *Recorder) LastError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// begin records that a request is sent, and returns its cohort; -1 if there is none.
func (r *Recorder) begin() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Active++
	return len(r.cohorts) - 1
}

func (r *Recorder) end(o *Outcome, cohort, idealAsked, idealHits int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.totals
	t.Active--
	if o.Aborted {
		t.Aborted++
		return
	}
	t.Requests++
	if o.Err != nil {
		r.last = o.Err
		if o.Wrong {
			t.Wrong++
		} else {
			t.Errors++
		}
		return
	}
	t.PromptTokens += uint64(o.PromptTokens)
	t.CachedTokens += uint64(o.CachedTokens)
	t.OutputTokens += uint64(o.OutputTokens)
	t.IdealAsked += uint64(idealAsked)
	t.IdealHits += uint64(idealHits)
	t.Latency.Add(o.Latency)
	if o.TTFT > 0 {
		t.TTFT.Add(o.TTFT)
	}
	if o.TPOT > 0 {
		t.TPOT.Add(o.TPOT)
	}
	if t.Engines == nil {
		t.Engines = map[string]EngineTotals{}
	}
	t.Engines[o.Engine] = t.Engines[o.Engine].with(o)
	if cohort >= 0 {
		r.cohorts[cohort] = r.cohorts[cohort].with(o)
	}
}

// with adds an answer.
func (t EngineTotals) with(o *Outcome) EngineTotals {
	t.Requests++
	t.PromptTokens += uint64(o.PromptTokens)
	t.CachedTokens += uint64(o.CachedTokens)
	return t
}
