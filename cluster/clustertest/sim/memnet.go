package sim

import (
	"math/rand/v2"
	"time"
)

// Conditions are the properties of one direction between two members.
type Conditions struct {
	Delay time.Duration // one way; jitter adds up to the same again
	Drop  float64       // fraction of frames lost
	// Resend makes a lost frame arrive this much later, twice as late if it is lost again, and so on up
	// to resendMost, and frames behind it with it, as on a TCP connection. 0: it does not arrive.
	Resend  time.Duration
	Dup     float64 // fraction of frames duplicated, some by seconds later
	Reorder float64 // fraction of frames delayed by up to 50 ms, behind later ones
	// Rate is the limit in bytes per second; 0 means none. Frames that would wait longer than Queue
	// are lost.
	Rate  int
	Queue time.Duration
}

// resendMost is the delay at which a connection would break.
const resendMost = 2 * time.Second

// Net is the network between n members, numbered from 0.
type Net struct {
	rng     *rand.Rand
	n       int
	base    Conditions
	pairs   []pair
	Stats   netStats
	scratch [2]time.Duration
}

// netStats count frames.
type netStats struct{ Sent, Lost, Twice, Late int }

type pair struct {
	over    *Conditions // instead of base
	blocked bool
	last    time.Duration // arrival of the last in-order frame
	free    time.Duration // when a rate-limited link becomes idle
}

// newNet returns a network with the conditions base in every direction.
func newNet(rng *rand.Rand, n int, base Conditions) *Net {
	return &Net{rng: rng, n: n, base: base, pairs: make([]pair, n*n)}
}

func (n *Net) pair(from, to int) *pair { return &n.pairs[from*n.n+to] }

// SetBase changes the default conditions.
func (n *Net) SetBase(c Conditions) { n.base = c }

// Base returns the default conditions.
func (n *Net) Base() Conditions { return n.base }

// Set overrides the conditions of one direction; nil restores the default.
func (n *Net) Set(from, to int, c *Conditions) { n.pair(from, to).over = c }

// Block drops all frames of one direction, or ends that.
func (n *Net) Block(from, to int, blocked bool) { n.pair(from, to).blocked = blocked }

// Blocked reports whether a direction is blocked.
func (n *Net) Blocked(from, to int) bool { return n.pair(from, to).blocked }

// Linked reports whether a connection between two members can work.
func (n *Net) Linked(a, b int) bool { return !n.Blocked(a, b) && !n.Blocked(b, a) }

// Heal ends all blocks and overrides.
func (n *Net) Heal() {
	for i := range n.pairs {
		n.pairs[i].blocked, n.pairs[i].over = false, nil
	}
}

// Route returns the arrival times of a frame of size bytes sent now: none, one or two. The slice is
// valid until the next call.
func (n *Net) Route(now time.Duration, from, to, size int) []time.Duration {
	p := n.pair(from, to)
	c := &n.base
	if p.over != nil {
		c = p.over
	}
	n.Stats.Sent++
	lost := p.blocked || (c.Drop > 0 && n.rng.Float64() < c.Drop)
	if lost {
		n.Stats.Lost++
	}
	if lost && (p.blocked || c.Resend == 0) {
		return nil
	}
	at := now
	for wait := c.Resend; lost && at-now+wait <= resendMost; wait *= 2 {
		at += wait
		lost = n.rng.Float64() < c.Drop
	}
	if c.Rate > 0 {
		p.free = max(p.free, now) + time.Duration(size)*time.Second/time.Duration(c.Rate)
		if p.free-now > c.Queue {
			p.free -= time.Duration(size) * time.Second / time.Duration(c.Rate)
			n.Stats.Lost++
			return nil
		}
		at = p.free
	}
	at += c.Delay + n.upTo(c.Delay)
	if c.Reorder > 0 && n.rng.Float64() < c.Reorder {
		n.Stats.Late++
		at += n.upTo(50 * time.Millisecond)
	} else {
		at = max(at, p.last)
		p.last = at
	}
	out := append(n.scratch[:0], at)
	if c.Dup > 0 && n.rng.Float64() < c.Dup {
		n.Stats.Twice++
		late := 50 * time.Millisecond
		if n.rng.IntN(4) == 0 {
			late = 3 * time.Second // a replayed frame
		}
		out = append(out, at+n.upTo(late))
	}
	return out
}

func (n *Net) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(n.rng.Int64N(int64(d)))
}
