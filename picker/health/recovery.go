package health

import (
	"math"
	"sync"
	"time"
)

// Again counts second tries, so that engines that fail do not get everything twice. It is safe
// for concurrent use; its zero value is ready.
type Again struct {
	mu       sync.Mutex
	at       time.Time
	requests float64 // of the last seconds
	tries    float64 // of them, those that went on to another endpoint
}

const (
	againShare = .1 // of the requests that may be tried a second time
	againFew   = 3. // that may be, of however few
	againHalf  = 10 * time.Second
)

// Add counts requests and second tries, and reports whether there may be more of these.
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
