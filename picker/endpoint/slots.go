package endpoint

import (
	"sync/atomic"
	"time"
)

// slotsCell learns how many sequences an engine runs at once, from its gauges: the number
// that it runs again and again, and never exceeds, while requests wait in it, enough for
// each of its ranks to have one. Engines that have work for a step or more to prefill run
// fewer for that reason, and teach nothing; nor does one with places for all that wait,
// which came since its last step.
type slotsCell struct {
	learned atomic.Uint64 // most that it ran while requests waited, and how often it was seen to; one scraper writes
	at      atomic.Int64  // when that was seen last, in Unix nanoseconds
}

const (
	slotsSeen  = 2 // samples that agree make it known
	slotsSure  = 8 // more of them count for no more
	slotsLast  = 10 * time.Minute
	slotsQueue = 4096 // tokens that any engine prefills in a step or two
)

// observe takes a sample, with the tokens that the book says wait for their prefill.
func (c *slotsCell) observe(g *Gauges, prefill int64) {
	most, seen := unpack(c.learned.Load())
	waits := g.Waiting >= max(g.Ranks, 1) && prefill < slotsQueue
	switch {
	case g.At.IsZero() || g.Running <= 0:
		return
	case g.Running > most && waits:
		most, seen = g.Running, 1
	case g.Running > most:
		most, seen = 0, 0
	case g.Running == most && waits:
		seen = min(seen+1, slotsSure)
	case waits && g.Running+g.Waiting > most: // something else keeps them waiting
		if seen--; seen <= 0 {
			most, seen = 0, 0
		}
	default:
		return
	}
	if g.Running == most {
		c.at.Store(g.At.UnixNano())
	}
	c.learned.Store(pack(most, seen))
}

// SetSlots makes known how many sequences the engine runs at once.
func (c *counters) SetSlots(limit int64, now time.Time) {
	c.slots.learned.Store(pack(int(limit), slotsSeen))
	c.slots.at.Store(now.UnixNano())
}

// read returns the limit, 0 when it is not known, or was not seen for long.
func (c *slotsCell) read(now int64) int64 {
	most, seen := unpack(c.learned.Load())
	if seen < slotsSeen || now-c.at.Load() > int64(slotsLast) {
		return 0
	}
	return int64(most)
}
