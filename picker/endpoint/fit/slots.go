package fit

import (
	"sync/atomic"
	"time"
)

// Slots learns how many sequences an engine runs at once, from its gauges: the number
// that it runs again and again, and never exceeds, while requests wait in it, enough for
// each of its ranks to have one. Engines that have work for a step or more to prefill run
// fewer for that reason, and teach nothing; nor does one with places for all that wait,
// which came since its last step; nor one that has run more lately. The zero value knows
// nothing. Readers are free, one goroutine observes.
type Slots struct {
	learned atomic.Uint64 // most that it ran while requests waited, and how often it was seen to; packed
	at      atomic.Int64  // when that was seen last, in Unix nanoseconds
	peak    atomic.Int64  // most that it ran at all
	peakAt  atomic.Int64  // when it was seen to last
}

const (
	slotsSeen  = 2 // samples that agree make it known
	slotsSure  = 8 // more of them count for no more
	slotsLast  = 10 * time.Minute
	slotsQueue = 4096 // tokens that any engine prefills in a step or two
)

// Observe takes a sample of the gauges of so many ranks together, with the tokens that the
// book says wait for their prefill.
func (c *Slots) Observe(at time.Time, running, waiting, ranks int, prefill int64) {
	most, seen := unpack(c.learned.Load())
	waits := waiting >= max(ranks, 1) && prefill < slotsQueue
	if at.IsZero() || running <= 0 {
		return
	}
	peak := c.Peak(at.UnixNano())
	if int64(running) >= peak {
		c.peak.Store(int64(running))
		c.peakAt.Store(at.UnixNano())
	}
	switch {
	case running > most && waits && int64(running) >= peak:
		most, seen = running, 1
	case running > most:
		most, seen = 0, 0
	case running == most && waits:
		seen = min(seen+1, slotsSure)
	case waits && running+waiting > most: // something else keeps them waiting
		if seen--; seen <= 0 {
			most, seen = 0, 0
		}
	default:
		return
	}
	if running == most {
		c.at.Store(at.UnixNano())
	}
	c.learned.Store(pack(most, seen))
}

// Set makes known how many sequences the engine runs at once; 0 forgets it.
func (c *Slots) Set(limit int64, now time.Time) {
	c.learned.Store(pack(int(limit), slotsSeen))
	c.at.Store(now.UnixNano())
	c.peak.Store(limit)
	c.peakAt.Store(now.UnixNano())
}

// Peak returns the most that the engine was seen to run lately before now, in Unix
// nanoseconds.
func (c *Slots) Peak(now int64) int64 {
	if now-c.peakAt.Load() > int64(slotsLast) {
		return 0
	}
	return c.peak.Load()
}

// Read returns the limit, 0 when it is not known, or was not seen for long before now, in Unix nanoseconds.
func (c *Slots) Read(now int64) int64 {
	most, seen := unpack(c.learned.Load())
	if seen < slotsSeen || now-c.at.Load() > int64(slotsLast) {
		return 0
	}
	return int64(most)
}

func pack(most, seen int) uint64 { return uint64(uint32(most))<<32 | uint64(uint32(seen)) }

func unpack(v uint64) (most, seen int) { return int(v >> 32), int(uint32(v)) }
