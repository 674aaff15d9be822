package endpoint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// answer is a request to an engine whose constants are by times the prior's.
type answer struct {
	q      Queued
	tokens float64
}

// first and whole return the true durations.
func (a *answer) first(by float64) float64 { return by * (PriorCost.Base + PriorCost.Prefill(a.q.Own)) }
func (a *answer) whole(by float64) float64 {
	return a.first(by) + by*(a.tokens-1)*PriorCost.StepOf(1, float64(a.q.Own.Input))
}

// TestAnswersCorrectPredictions checks that 20 answers correct constants that are up to ten times
// off, for streamed answers and for whole ones, of equal and of different shapes.
func TestAnswersCorrectPredictions(t *testing.T) {
	for _, by := range []float64{.1, .3, 3, 10} {
		for _, equal := range []bool{true, false} {
			for _, streamed := range []bool{true, false} {
				t.Run(fmt.Sprintf("by=%g equal=%v streamed=%v", by, equal, streamed), func(t *testing.T) {
					p := NewPool(PoolOptions{})
					p.Set(specs(1))
					ep, rng, now := p.Snapshot().Endpoints[0], rand.New(rand.NewPCG(1, 2)), time.Unix(1_700_000_000, 0)
					request := func() answer {
						a := answer{tokens: 8}
						a.q.Own = Work{Input: 1000, New: 1000}
						if !equal {
							a.q.Own.Input = 50 + rng.IntN(8000)
							a.q.Own.New, a.tokens = a.q.Own.Input, float64(2+rng.IntN(200))
						}
						return a
					}
					for range 20 {
						now = now.Add(time.Minute / 20)
						a := request()
						if a.q.At = now; streamed {
							p.LearnPrefill(ep, &a.q, time.Duration(a.first(by)*1e9))
							p.LearnStep(ep, 1, float64(a.q.Own.Input), by*PriorCost.StepOf(1, float64(a.q.Own.Input)), now)
							continue
						}
						p.LearnWhole(ep, &WholeAnswer{Queued: &a.q, Took: time.Duration(a.whole(by) * 1e9), Tokens: a.tokens, Reported: true, Sequences: 1, Context: float64(a.q.Own.Input)})
					}
					for range 5 {
						a, c := request(), ep.Cost()
						first := c.Base + c.Prefill(a.q.Own)
						whole := first + (a.tokens-1)*c.StepOf(1, float64(a.q.Own.Input))
						if want := a.whole(by); math.Abs(whole/want-1) > .2 {
							t.Errorf("prediction of the whole answer %.3f s, want %.3f s", whole, want)
						}
						if want := a.first(by); math.Abs(first/want-1) > .25 {
							t.Errorf("prediction of the first token %.3f s, want %.3f s", first, want)
						}
					}
				})
			}
		}
	}
}

// TestLatencyCounters checks that the counters of an engine separate prefill from decoding, which
// whole answers of one shape do not, and that counters are ignored while first tokens are observed.
func TestLatencyCounters(t *testing.T) {
	for _, gaps := range []bool{true, false} {
		p := NewPool(PoolOptions{})
		p.Set(specs(1))
		ep, now := p.Snapshot().Endpoints[0], time.Unix(1_700_000_000, 0)
		var l Latency
		for range 10 {
			for range 5 {
				now = now.Add(time.Second / 2)
				a := answer{tokens: 8}
				a.q.Own, a.q.At = Work{Input: 1000, New: 1000}, now
				first, decode := 10*a.first(1), 7*.001
				l.First.Seconds, l.First.Count = l.First.Seconds+first, l.First.Count+1
				if gaps {
					l.Gap.Seconds, l.Gap.Count = l.Gap.Seconds+decode, l.Gap.Count+7
				}
				p.LearnWhole(ep, &WholeAnswer{Queued: &a.q, Took: time.Duration((first + decode) * 1e9), Tokens: 8, Reported: true, Sequences: 1, Context: 1000})
			}
			p.LearnLatency(ep, l, now)
		}
		c := ep.Cost()
		if first, want := c.Base+c.Prefill(Work{1000, 1000}), 10*(PriorCost.Base+PriorCost.Prefill(Work{1000, 1000})); math.Abs(first/want-1) > .15 {
			t.Errorf("gaps %v: prefill of %.3f s, want %.3f s", gaps, first, want)
		}
		if step := c.StepOf(1, 1000); step > .004 {
			t.Errorf("gaps %v: step of %.1f ms, want 1 ms", gaps, 1e3*step)
		}
	}
	p := NewPool(PoolOptions{})
	p.Set(specs(1))
	ep, now := p.Snapshot().Endpoints[0], time.Unix(1_700_000_000, 0)
	for i := range 10 {
		now = now.Add(10 * time.Second)
		for range 5 {
			a := answer{}
			a.q.Own, a.q.At = Work{Input: 1000, New: 1000}, now
			p.LearnPrefill(ep, &a.q, time.Duration(a.first(1)*1e9))
		}
		p.LearnLatency(ep, Latency{First: LatencySum{50 * float64(i+1), 5 * float64(i+1)}}, now)
	}
	if c := ep.Cost(); c.Base+c.Prefill(Work{1000, 1000}) > .1 {
		t.Errorf("prefill of %.3f s, want 0.070 s as observed", c.Base+c.Prefill(Work{1000, 1000}))
	}
}
