package endpoint

import (
	"math"
	"sync"
	"time"
)

// WholeAnswer is an answer whose first token was not observed, only its end.
type WholeAnswer struct {
	Queued *Queued
	Took   time.Duration // from the dispatch to the end
	Tokens float64       // generated
	// Reported means that the engine reported Tokens; otherwise they are the expected number.
	Reported bool
	// Sequences and Context describe the engine's decode steps at the end.
	Sequences, Context float64
}

// LearnWhole trains the constants of ep and its fleet with the duration of a whole answer. Prefill
// and decoding are assumed to be wrong by the same factor. Over answers of different shapes, both
// converge to the observed times; with equal ones, their ratio stays as assumed. If the engine
// reports its time between tokens, decoding is known, and the prefill is the remainder.
func (p *Pool) LearnWhole(ep *Endpoint, a *WholeAnswer) {
	c, s := ep.Cost(), a.Queued.first(0)
	first := max(c.Base+c.PerToken*s.tokens+c.PerPair*s.pairs-s.seconds, c.Base)
	steps, took, end := max(a.Tokens-1, 0), a.Took.Seconds(), a.Queued.At.Add(a.Took)
	decode := steps * c.StepOf(a.Sequences, a.Context)
	known := ep.latency.missed(&s, took, steps, end)
	if !(took > 0) || known && !a.Reported {
		return // the engine's counters are better samples
	}
	if known {
		first = max(took-decode, leastFirst*first)
	} else {
		by := took / (first + decode)
		first, decode = by*first, by*decode
	}
	s.seconds += first
	p.learnFirst(ep, s, end)
	if !known && steps > 0 {
		p.learnStep(ep, a.Sequences, a.Context, decode/steps, s.trust, end)
	}
}

// leastFirst is the least ratio of a first token to its prediction.
const leastFirst = .25

// Latency holds an engine's own latency counters since its start. A count of 0 means that the
// engine does not report them.
type Latency struct {
	First LatencySum // times to first token
	Gap   LatencySum // times between tokens
}

// LatencySum is the sum and count of a histogram.
type LatencySum struct{ Seconds, Count float64 }

// since returns the growth of s from an older value, false if there is none or the engine restarted.
func (s LatencySum) since(old LatencySum) (LatencySum, bool) {
	d := LatencySum{s.Seconds - old.Seconds, s.Count - old.Count}
	return d, d.Count > 0 && d.Seconds > 0
}

// latencyCell compares an engine's latency counters with the requests whose first tokens this
// replica did not observe.
type latencyCell struct {
	mu     sync.Mutex
	last   Latency
	at     time.Time // of last
	work   firstSample
	unseen float64 // requests in work since at
	took   float64 // their durations in seconds
	steps  float64 // their decode steps
	shown  float64 // requests with an observed first token since at
	gapsAt time.Time
}

const (
	latencyWindow = time.Second // minimum interval of samples from latency counters
	latencyFirsts = 4           // minimum number of first tokens in a sample
	latencyMost   = 8           // maximum weight of such a sample, in samples of one request
	gapsCount     = time.Minute // how long the engine's time between tokens counts as known
)

func (c *latencyCell) seen(n float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown += n
}

// missed records a request without an observed first token: its work, with the time since the first
// token before its dispatch, its duration and its decode steps. It reports whether the engine's own
// time between tokens is known at a time.
func (c *latencyCell) missed(s *firstSample, took, steps float64, now time.Time) (gapsKnown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unseen++
	c.took += took
	c.steps += steps
	c.work.tokens += s.tokens
	c.work.pairs += s.pairs
	c.work.seconds += s.seconds
	c.work.trust += s.trust
	return !c.gapsAt.IsZero() && now.Sub(c.gapsAt) < gapsCount
}

// window returns the growth of the counters and the mean prefill work since the last window, and
// begins the next one. ok is false while the window is too short. first and gap are zero unless
// most first tokens of the window were not observed: observed ones are better samples.
func (c *latencyCell) window(l Latency, now time.Time) (first, gap LatencySum, work firstSample, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := now.Sub(c.at)
	if passed < latencyWindow && !c.at.IsZero() {
		return first, gap, work, false
	}
	news, grown := l.First.since(c.last.First)
	if grown && news.Count < latencyFirsts && passed < gapsCount {
		return first, gap, work, false
	}
	begun := !c.at.IsZero()
	if begun && c.unseen > c.shown && c.unseen >= latencyFirsts {
		n := c.unseen
		if grown && news.Count >= latencyFirsts {
			first, work = news, firstSample{c.work.tokens / n, c.work.pairs / n, c.work.seconds / n, c.work.trust / n * min(news.Count, latencyMost)}
		}
		if gap, grown = l.Gap.since(c.last.Gap); !grown && first.Count > 0 {
			gap = LatencySum{c.took - n*first.Seconds/first.Count, c.steps}
		}
		if gap.Count <= 0 || gap.Seconds <= 0 {
			gap = LatencySum{}
		} else {
			c.gapsAt = now
		}
	}
	c.last, c.at, c.work, c.unseen, c.shown, c.took, c.steps = l, now, firstSample{}, 0, 0, 0, 0
	return first, gap, work, true
}

// LearnLatency trains the constants of ep and its fleet with the engine's latency counters, as read
// at now. They count while this replica does not observe first tokens itself. The fit is linear, so
// the mean work and the mean time of a window form a sample.
func (p *Pool) LearnLatency(ep *Endpoint, l Latency, now time.Time) {
	if l.First.Count == 0 && l.Gap.Count == 0 {
		return
	}
	began := ep.latency.began()
	first, gap, work, ok := ep.latency.window(l, now)
	if !ok {
		return
	}
	if gap.Count > 0 {
		load := p.LoadTracker().RankLoad(ep, now)
		sequences := max(gap.Seconds/max(now.Sub(began).Seconds(), latencyWindow.Seconds()), 1)
		p.learnStep(ep, sequences, float64(load.Context), gap.Seconds/gap.Count, min(max(first.Count, 1), latencyMost), now)
	}
	if first.Count > 0 {
		work.seconds += first.Seconds / first.Count
		p.learnFirst(ep, work, now)
	}
}

func (c *latencyCell) began() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Forecast compares an endpoint's predicted times with the observed ones: of first tokens, or of
// whole answers where first tokens are not observed. Both are decayed means in seconds.
type Forecast struct {
	Predicted, Observed float64
	Samples             float64 // decayed; 0: none
}

type forecastCell struct {
	mu  sync.Mutex
	now Forecast
}

// forecastFade is the decay of older samples per sample.
const forecastFade = .95

// ObserveForecast records a predicted time and the observed one, in seconds.
func (c *counters) ObserveForecast(predicted, observed float64) {
	if !(predicted >= 0) || !(observed >= 0) || math.IsInf(predicted, 0) || math.IsInf(observed, 0) {
		return
	}
	c.forecast.mu.Lock()
	defer c.forecast.mu.Unlock()
	f := &c.forecast.now
	f.Samples = f.Samples*forecastFade + 1
	f.Predicted += (predicted - f.Predicted) / f.Samples
	f.Observed += (observed - f.Observed) / f.Samples
}

// Forecast returns this replica's comparison.
func (c *counters) Forecast() Forecast {
	c.forecast.mu.Lock()
	defer c.forecast.mu.Unlock()
	return c.forecast.now
}
