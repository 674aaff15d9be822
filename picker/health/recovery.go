package health

import (
	"math"
	"sync"
	"time"
)

// RetryLimit limits retries, so that failing engines do not double the load. It is safe for concurrent
// use. Its zero value is ready.
type RetryLimit struct {
	mu       sync.Mutex
	at       time.Time
	requests float64 // decayed count
	tries    float64 // decayed count of those retried at another endpoint
}

const (
	retryShare    = .1 // maximum retried share of requests
	retriesAlways = 3. // retries allowed regardless of the share
	retryHalfLife = 10 * time.Second
)

// Add counts requests and retries, and reports whether another retry is allowed.
func (a *RetryLimit) Add(now time.Time, requests, tries float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.After(a.at) {
		if !a.at.IsZero() {
			fade := math.Exp2(-float64(now.Sub(a.at)) / float64(retryHalfLife))
			a.requests, a.tries = a.requests*fade, a.tries*fade
		}
		a.at = now
	}
	a.requests += requests
	a.tries += tries
	return a.tries < max(retriesAlways, retryShare*a.requests)
}
