package endpoint

import (
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"slices"
	"sync/atomic"
	"time"
)

// Gauges is one sample of an engine's metrics. A stored sample is immutable.
type Gauges struct {
	At     time.Time // time of the sample; zero: never
	Engine EngineType
	Ranks  int // data-parallel ranks in the sample; 0 and 1: a single rank
	gauge.Values
	BlockSize int // tokens per KV block, 0 when unknown
	Blocks    int // KV blocks of all ranks in device memory, 0 when unknown
	Started   time.Time
	LoRA      *LoRA // nil when the engine reports none; read-only
	Progress  Progress
}

// Progress is an engine's work since its start, from its counters.
type Progress struct {
	Known    bool   // the engine reports all counters
	Computed uint64 // tokens of prompts and answers, without cached ones
	Ended    uint64 // requests with any result
}

// LoRA is an engine's report on its adapters. It is immutable.
type LoRA struct {
	Max     int // maximum loaded adapters, 0 when unknown
	Running []string
	Waiting []string
}

// Equal reports whether two reports are identical.
func (l *LoRA) Equal(o *LoRA) bool {
	if l == nil || o == nil {
		return l == o
	}
	return l.Max == o.Max && slices.Equal(l.Running, o.Running) && slices.Equal(l.Waiting, o.Waiting)
}

// gaugeCell holds the last sample. The zero value holds none.
type gaugeCell struct{ last atomic.Pointer[Gauges] }

// noGauges is the sample of an engine that was never sampled.
var noGauges Gauges

func (c *gaugeCell) store(g Gauges) { c.last.Store(&g) }

// get returns the last sample, which must not be changed.
func (c *gaugeCell) get() *Gauges {
	if g := c.last.Load(); g != nil {
		return g
	}
	return &noGauges
}

// Reading is the part of an engine's gauges that decisions use.
type Reading struct {
	Sampled bool          // false: there is no sample, and all other fields are zero
	Age     time.Duration // of the sample
	Ranks   int           // ranks in the sample; 0 and 1: a single rank
	gauge.Values
	// Capacity is the engine's KV memory in tokens, 0 if unknown.
	Capacity float64
	// Ran is the recent maximum of running sequences.
	Ran int64
	// Slots is the engine's sequence limit, 0 if not observed yet.
	Slots int64
}

// Reading returns the last sample. now is in Unix nanoseconds.
func (c *counters) Reading(now int64) Reading {
	g := c.gauges.get()
	r := g.reading()
	if r.Sampled {
		r.Age = time.Duration(now - g.At.UnixNano())
		r.Slots, r.Ran = c.slots.Read(now), c.slots.Peak(now)
	}
	return r
}

// reading returns the sample without the parts that depend on the time.
func (g *Gauges) reading() Reading {
	if g.At.IsZero() {
		return Reading{}
	}
	return Reading{Sampled: true, Ranks: g.Ranks, Values: g.Values, Capacity: float64(g.BlockSize) * float64(g.Blocks)}
}

// PerRank returns the gauges of one rank. KVUse stays the mean, because memory is full when it is
// full at every rank.
func (r Reading) PerRank() Reading {
	if n := r.Ranks; n > 1 {
		r.Waiting, r.Running, r.Capacity = r.Waiting/n, r.Running/n, r.Capacity/float64(n)
		r.Slots, r.Ran = max(r.Slots/int64(n), min(r.Slots, 1)), r.Ran/int64(n)
	}
	return r
}

// SetSlots sets the engine's sequence limit.
func (c *counters) SetSlots(limit int64, now time.Time) {
	c.slots.Set(limit, now)
	c.mark.changed()
}

// LoRA returns the engine's last report on its adapters, or nil.
func (c *counters) LoRA() *LoRA { return c.gauges.get().LoRA }

func fromUnixNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
