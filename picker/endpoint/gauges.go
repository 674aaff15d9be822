package endpoint

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Gauges is one sample of an engine's metrics.
type Gauges struct {
	At        time.Time // time of the sample; zero: never
	Engine    EngineType
	Ranks     int     // data-parallel ranks in the sample; 0 and 1: a single rank
	Waiting   int     // all ranks
	Running   int     // all ranks
	KVUse     float64 // 0..1, mean over ranks
	BlockSize int     // tokens per KV block, 0 when unknown
	Blocks    int     // KV blocks of all ranks in device memory, 0 when unknown
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

// gaugeCell holds the last sample in atomics. A reader may see fields of two consecutive samples,
// but never a torn value.
type gaugeCell struct {
	at            atomic.Int64 // Unix nanoseconds
	queue         atomic.Uint64
	kvUse         atomic.Uint64 // float64 bits
	cache         atomic.Uint64 // block size and number of blocks
	started       atomic.Int64
	engine, ranks atomic.Uint32
	lora          atomic.Pointer[LoRA]
	// The order of stores and loads guarantees that a reader never sees more tokens than the
	// requests it sees have computed.
	ended    atomic.Uint64 // ended requests plus one; 0: unknown
	computed atomic.Uint64
}

func (c *gaugeCell) store(g Gauges) {
	c.queue.Store(pack(g.Waiting, g.Running))
	c.kvUse.Store(math.Float64bits(g.KVUse))
	c.cache.Store(pack(g.BlockSize, g.Blocks))
	c.engine.Store(uint32(g.Engine))
	c.ranks.Store(uint32(max(g.Ranks, 0)))
	c.started.Store(unixNano(g.Started))
	c.lora.Store(g.LoRA)
	if g.Progress.Known {
		c.ended.Store(g.Progress.Ended + 1)
		c.computed.Store(g.Progress.Computed)
	} else {
		c.ended.Store(0)
	}
	c.at.Store(unixNano(g.At))
}

// blockSize returns the block size without a full load, for hot paths.
func (c *gaugeCell) blockSize() int {
	size, _ := unpack(c.cache.Load())
	return size
}

func (c *gaugeCell) load() Gauges {
	g := Gauges{At: fromUnixNano(c.at.Load())}
	if g.At.IsZero() {
		return g
	}
	g.Waiting, g.Running = unpack(c.queue.Load())
	g.KVUse = math.Float64frombits(c.kvUse.Load())
	g.BlockSize, g.Blocks = unpack(c.cache.Load())
	g.Engine = EngineType(c.engine.Load())
	g.Ranks = int(c.ranks.Load())
	g.Started = fromUnixNano(c.started.Load())
	g.LoRA = c.lora.Load()
	computed := c.computed.Load()
	if ended := c.ended.Load(); ended > 0 {
		g.Progress = Progress{Known: true, Computed: computed, Ended: ended - 1}
	}
	return g
}

// Reading is the part of an engine's gauges that decisions use.
type Reading struct {
	Sampled bool          // false: there is no sample, and all other fields are zero
	Age     time.Duration // of the sample
	Ranks   int           // ranks in the sample; 0 and 1: a single rank
	Waiting int
	Running int
	KVUse   float64 // 0..1
	// Capacity is the engine's KV memory in tokens, 0 if unknown.
	Capacity float64
	// Ran is the recent maximum of running sequences.
	Ran int64
	// Slots is the engine's sequence limit, 0 if not observed yet.
	Slots int64
}

// Reading returns the last sample. now is in Unix nanoseconds.
func (c *counters) Reading(now int64) Reading {
	r := c.gauges.reading()
	if r.Sampled {
		r.Age = time.Duration(now - c.gauges.at.Load())
		r.Slots, r.Ran = c.slots.Read(now), c.slots.Peak(now)
	}
	return r
}

// reading returns the last sample without the parts that depend on the time.
func (c *gaugeCell) reading() Reading {
	if c.at.Load() == 0 {
		return Reading{}
	}
	r := Reading{Sampled: true, KVUse: math.Float64frombits(c.kvUse.Load()), Ranks: int(c.ranks.Load())}
	r.Waiting, r.Running = unpack(c.queue.Load())
	size, blocks := unpack(c.cache.Load())
	r.Capacity = float64(size) * float64(blocks)
	return r
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
func (c *counters) LoRA() *LoRA { return c.gauges.lora.Load() }

func pack(a, b int) uint64 {
	return uint64(min(max(a, 0), math.MaxUint32))<<32 | uint64(min(max(b, 0), math.MaxUint32))
}

func unpack(v uint64) (a, b int) { return int(v >> 32), int(v & math.MaxUint32) }

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromUnixNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
