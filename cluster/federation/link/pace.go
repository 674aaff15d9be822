package link

import (
	"sync"
	"time"
)

// leastCost is what a message counts as, in bytes, however small it is: reading and answering
// it takes the processor and the link's lock.
const leastCost = 1 << 10

// restRate is how many bytes a second a cluster may send beside the filters that are arranged
// with it: 64 replicas that each ask twenty times a second, or tell all that there is room for.
const restRate = 4 << 20

// pace is how fast the messages of one cluster are taken, over whichever connections they come:
// each must be read and answered while messages of other clusters wait. A second's messages may
// come at once. Who sends more waits, as the network lets him.
type pace struct {
	mu     sync.Mutex
	rate   float64 // bytes a second
	tokens float64 // below zero: owed by those who wait
	at     time.Time
	over   uint64 // messages that were beyond it
}

func newPace(filters int, now time.Time) *pace {
	rate := float64(restRate + 2*filters) // as one who asks, and as one who is asked
	return &pace{rate: rate, tokens: rate, at: now}
}

// fill adds what time has brought. p is locked.
func (p *pace) fill(now time.Time) {
	if d := now.Sub(p.at).Seconds(); d > 0 {
		p.tokens, p.at = min(p.tokens+d*p.rate, p.rate), now
	}
}

// take takes a message of n bytes, and returns after what time the next may be read.
func (p *pace) take(n int, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fill(now)
	if p.tokens -= float64(max(n, leastCost)); p.tokens >= 0 {
		return 0
	}
	p.over++
	return time.Duration(-p.tokens / p.rate * float64(time.Second))
}

// allow takes a message of n bytes unless that is beyond the pace.
func (p *pace) allow(n int, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fill(now); p.tokens <= 0 {
		p.over++
		return false
	}
	p.tokens -= float64(max(n, leastCost))
	return true
}

func (p *pace) beyond() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// rest waits, and reports whether the connection is there still.
func (l *Link) rest(c *conn, wait time.Duration) bool {
	if wait <= 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.closed:
	case <-l.ctx.Done():
	}
	return false
}
