package fit

import (
	"sync/atomic"
	"time"
)

// Slots estimates the maximum number of concurrent sequences of an engine from its gauges. This is
// the number that it runs repeatedly, and never exceeds, while at least one request per rank waits.
//
// Samples do not count while the engine has a prefill backlog of a step or more, while all waiting
// requests fit (they arrived since the last step), or after it has recently run more. The zero
// value has no estimate. Any goroutine may read; one goroutine observes.
type Slots struct {
	learned atomic.Uint64 // packed: maximum running while requests waited, and how often it was seen
	at      atomic.Int64  // when it was last seen, in Unix nanoseconds
	peak    atomic.Int64  // maximum running overall
	peakAt  atomic.Int64  // when the peak was last seen
}

const (
	slotsSeen  = 2 // agreeing samples for an estimate
	slotsSure  = 8 // maximum count of agreeing samples
	slotsLast  = 10 * time.Minute
	slotsQueue = 4096 // tokens that any engine prefills in a step or two
)

// Observe adds a sample of the gauges of all ranks. prefill is the tracked number of tokens that
// wait for their prefill.
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
	case waits && running+waiting > most: // another limit keeps them waiting
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

// Set sets the sequence limit; 0 clears it.
func (c *Slots) Set(limit int64, now time.Time) {
	c.learned.Store(pack(int(limit), slotsSeen))
	c.at.Store(now.UnixNano())
	c.peak.Store(limit)
	c.peakAt.Store(now.UnixNano())
}

// Peak returns the recent maximum of running sequences. now is in Unix nanoseconds.
func (c *Slots) Peak(now int64) int64 {
	if now-c.peakAt.Load() > int64(slotsLast) {
		return 0
	}
	return c.peak.Load()
}

// Read returns the limit, 0 if it is unknown or has not been seen recently. now is in Unix
// nanoseconds.
func (c *Slots) Read(now int64) int64 {
	most, seen := unpack(c.learned.Load())
	if seen < slotsSeen || now-c.at.Load() > int64(slotsLast) {
		return 0
	}
	return int64(most)
}

// KeptSlots is the estimate at one time. Until the next sample, later estimates follow from it.
type KeptSlots struct {
	Limit, Peak     int64
	limitAt, peakAt int64 // when each was last seen, in Unix nanoseconds
}

// Keep returns the estimate.
func (c *Slots) Keep() KeptSlots {
	k := KeptSlots{Peak: c.peak.Load(), peakAt: c.peakAt.Load(), limitAt: c.at.Load()}
	if most, seen := unpack(c.learned.Load()); seen >= slotsSeen {
		k.Limit = int64(most)
	}
	return k
}

// PerRank returns the estimate for one of the engine's ranks.
func (k KeptSlots) PerRank(ranks int) KeptSlots {
	if n := int64(ranks); n > 1 {
		k.Limit, k.Peak = max(k.Limit/n, min(k.Limit, 1)), k.Peak/n
	}
	return k
}

// At returns the results of Read and Peak at that time, in Unix nanoseconds.
func (k *KeptSlots) At(now int64) (limit, peak int64) {
	if now-k.limitAt <= int64(slotsLast) {
		limit = k.Limit
	}
	if now-k.peakAt <= int64(slotsLast) {
		peak = k.Peak
	}
	return limit, peak
}

func pack(most, seen int) uint64 { return uint64(uint32(most))<<32 | uint64(uint32(seen)) }

func unpack(v uint64) (most, seen int) { return int(v >> 32), int(uint32(v)) }
