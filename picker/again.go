package picker

import (
	"math"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// again counts second tries, so that engines that fail do not get everything twice. It is
// safe for concurrent use; its zero value is ready.
type again struct {
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

// add counts requests and second tries, and reports whether there may be more of these.
func (a *again) add(now time.Time, requests, tries float64) bool {
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

// tries says what the proxy may do when the first endpoint of a request fails before its
// answer. What an engine keeps or goes on with by itself is asked for once, and so is a prompt
// of which engines may die. Others lose nothing by a second engine that begins anew. The next
// endpoint is the only one then, so that both must be well: a proxy that is told nothing goes
// down the whole list, where no engine has begun.
func (s *Scheduler) tries(c *Cycle, f *flight) Tries {
	r, prompt := f.request, f.vitals.prompt
	within := s.again.add(c.Now, 1, 0)
	switch {
	case r.Background, r.Previous != "", s.prompts.Suspected(prompt, c.Now):
		return TriesNone
	case !within, r.Kind != request.KindChat && r.Kind != request.KindCompletions, s.prompts.Failing(prompt, c.Now):
		return TriesSafe
	}
	if len(f.Endpoints) < 2 || len(c.plan.Order) < 2 || len(c.plan.Also) > 0 || !c.well(0) || !c.well(1) {
		return TriesSafe
	}
	return TriesOnce
}

// well reports whether nothing speaks against the endpoint at a place of the plan.
func (c *Cycle) well(place int) bool {
	ep := c.endpoints[c.plan.Order[place]]
	return !far(ep) && ep.Share() == health.Full && !ep.Down() && !ep.Tracker().FullAt(c.Now.UnixNano())
}
