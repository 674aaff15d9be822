package health

import (
	"math"
	"sync"
	"time"
)

// Overrun knows how long answers may take before that speaks against the endpoint:
// as long as the prediction and what the pool's answers took beyond it explain. It
// keeps the ratio of times seen to times predicted, over all endpoints, in
// logarithms. It is safe for concurrent use; its zero value is ready.
type Overrun struct {
	mu           sync.Mutex
	mean, square float64
	n            float64
}

const (
	patienceFade  = 1. / 64
	patienceKnown = 8   // samples, below which nothing is known
	patienceNew   = 10. // times the prediction, until then
	patienceLeast = 3.
	patienceMost  = 30.
	slackNew      = 20 * time.Second // on top, until then
	slack         = time.Second
)

// Limit returns how long something that is predicted to take so many seconds may
// take.
func (w *Overrun) Limit(predicted float64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n < patienceKnown {
		return seconds(patienceNew*predicted) + slackNew
	}
	spread := math.Sqrt(max(w.square-w.mean*w.mean, 0))
	factor := min(max(math.Exp(w.mean+3*spread), patienceLeast), patienceMost)
	return seconds(factor*predicted) + slack
}

// Observe learns from one answer. Far outliers count as the limit.
func (w *Overrun) Observe(predicted float64, took time.Duration) {
	if !(predicted > 0) || took <= 0 {
		return
	}
	x := math.Log(took.Seconds() / predicted)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return
	}
	x = min(max(x, -math.Log(patienceMost)), math.Log(patienceMost))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	rate := max(1/w.n, patienceFade)
	w.mean += rate * (x - w.mean)
	w.square += rate * (x*x - w.square)
}

// seconds returns a duration of an hour at most.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 3600) * float64(time.Second))
}
