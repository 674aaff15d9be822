package health

import (
	"math"
	"sync"
	"time"
)

// Overrun estimates how long answers may take before lateness counts against the endpoint. It
// tracks the ratio of observed to predicted times over all endpoints, in logarithms. It is safe for
// concurrent use. Its zero value is ready.
type Overrun struct {
	mu           sync.Mutex
	mean, square float64
	n            float64
}

const (
	limitFade  = 1. / 64
	limitKnown = 8   // minimum samples for an estimate
	limitNew   = 10. // factor until then
	limitLeast = 3.
	limitMost  = 30.
	slackNew   = 20 * time.Second // added until then
	slack      = time.Second
)

// Limit returns the longest acceptable time for an event predicted to take the given seconds.
func (w *Overrun) Limit(predicted float64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n < limitKnown {
		return seconds(limitNew*predicted) + slackNew
	}
	spread := math.Sqrt(max(w.square-w.mean*w.mean, 0))
	factor := min(max(math.Exp(w.mean+3*spread), limitLeast), limitMost)
	return seconds(factor*predicted) + slack
}

// Observe adds one answer to the estimate. Outliers are clipped to the limit.
func (w *Overrun) Observe(predicted float64, took time.Duration) {
	if !(predicted > 0) || took <= 0 {
		return
	}
	x := math.Log(took.Seconds() / predicted)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return
	}
	x = min(max(x, -math.Log(limitMost)), math.Log(limitMost))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	rate := max(1/w.n, limitFade)
	w.mean += rate * (x - w.mean)
	w.square += rate * (x*x - w.square)
}

// seconds converts to a Duration of at most one hour.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 3600) * float64(time.Second))
}
