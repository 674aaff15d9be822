package health

import (
	"math"
	"sync"
	"time"
)

// Again limits retries, so that failing engines do not double the load. It is safe for concurrent
// use. Its zero value is ready.
type Again struct {
	mu       sync.Mutex
	at       time.Time
	requests float64 // decayed count
	tries    float64 // decayed count of those retried at another endpoint
}

const (
	againShare = .1 // maximum retried share of requests
	againFew   = 3. // retries allowed regardless of the share
	againHalf  = 10 * time.Second
)

// Add counts requests and retries, and reports whether another retry is allowed.
func (a *Again) Add(now time.Time, requests, tries float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.After(a.at) {
		if !a.at.IsZero() {
			fade := math.Exp2(-float64(now.Sub(a.at)) / float64(againHalf))
			a.requests, a.tries = a.requests*fade, a.tries*fade
		}
		a.at = now
	}
	a.requests += requests
	a.tries += tries
	return a.tries < max(againFew, againShare*a.requests)
}
