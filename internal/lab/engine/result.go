package engine

import "time"

// Result is the outcome of one step. Its slices belong to the Engine.
type Result struct {
	Idle     bool          // nothing was scheduled; all other fields are zero
	Duration time.Duration // the step's length; the other fields take effect at its end

	Prefill  int // prompt tokens computed
	Decoding int // sequences that decoded one token
	Seqs     int // sequences scheduled

	Admitted  []uint64 // requests scheduled for the first time, at the start of the step
	First     []Mark   // requests that got their first token
	Tokens    []Mark   // every request that got a token (Config.EveryToken)
	Finished  []Mark   // requests that ended with this step; also in First or Tokens
	Preempted int
	Events    []Event // cache changes, in order (Config.Events)
}

// Mark is the state of a request at the end of a step.
type Mark struct {
	ID          uint64
	Generated   int // tokens generated so far
	Cached      int // prompt tokens found in the cache when first scheduled
	Preemptions int
}

// EventKind is the kind of a prefix cache event.
type EventKind uint8

// Kinds of cache events.
const (
	Stored  EventKind = iota // Hashes were registered
	Removed                  // Hash was dropped
	Cleared                  // everything was dropped
)

// Event is one change of the prefix cache.
type Event struct {
	Kind      EventKind
	Host      bool     // event of the host tier: only Kind and Hash are set
	HasParent bool     // Stored: there is a block before Hashes[0]
	Hash      Hash     // Removed
	Parent    Hash     // Stored
	Hashes    []Hash   // Stored: names of consecutive blocks
	Tokens    []uint32 // Stored: the tokens of these blocks; nil when the request had none
	Offset    int      // Stored: blocks before Hashes[0]
	Tag       *Tag     // Stored: the request's
}

// Stats are counters and gauges of an engine. Counters never fall.
type Stats struct {
	Running, Waiting      int
	UsedBlocks, Blocks    int
	CachedBlocks          int // blocks in the prefix cache, used and free
	CachedNames           int // different ones: blocks computed at the same time may be equal
	Steps                 uint64
	QueryTokens           uint64 // prompt tokens looked up in the prefix cache
	HitTokens             uint64
	PrefillTokens         uint64
	GeneratedTokens       uint64
	Preemptions, Finished uint64
	Aborted               uint64
	AdapterLoads          uint64
}

// Usage is the used share of the KV cache, 0 to 1.
func (s Stats) Usage() float64 {
	if s.Blocks == 0 {
		return 0
	}
	return float64(s.UsedBlocks) / float64(s.Blocks)
}
