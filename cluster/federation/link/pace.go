package link

import (
	"sync"
	"time"
)

// leastCost is the minimum cost of a message in bytes: reading and answering it takes CPU time and
// the link's lock.
const leastCost = 1 << 10

// restRate is the bytes per second that a cluster may send in addition to its filters. It suffices
// for 64 replicas that each ask twenty times a second, or send complete states of maximum size.
const restRate = 4 << 20

// pace limits the rate of one cluster's messages over all its connections, because each is read and
// answered while messages of other clusters wait. It allows a burst of one second. Beyond it,
// reading pauses and the network applies backpressure.
type pace struct {
	mu     sync.Mutex
	rate   float64 // bytes per second
	tokens float64 // negative: owed by waiting connections
	at     time.Time
	over   uint64 // messages over the limit
}

func newPace(filters int, now time.Time) *pace {
	rate := float64(restRate + 2*filters) // as the asking and as the answering side
	return &pace{rate: rate, tokens: rate, at: now}
}

// fill adds the tokens for the elapsed time. p is locked.
func (p *pace) fill(now time.Time) {
	if d := now.Sub(p.at).Seconds(); d > 0 {
		p.tokens, p.at = min(p.tokens+d*p.rate, p.rate), now
	}
}

// take charges a message of n bytes and returns how long to wait before reading the next.
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

// allow charges a message of n bytes unless it exceeds the limit.
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

// rest waits, and reports whether the connection is still open.
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
