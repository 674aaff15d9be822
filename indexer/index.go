package indexer

import (
	"sync"
	"sync/atomic"
)

// Options configure an Index. The zero value is usable.
type Options struct {
	Hasher          Hasher
	MaxNodes        int // blocks in the trie; 0 means 64 million. Stores beyond it are refused and counted.
	MaxSourceBlocks int // blocks of one source; 0 means 4 million
}

// Index is the precise prefix index: which source holds which blocks of which
// chains. Match never waits for writers and does not allocate. Apply, Reset
// and RemoveEndpoint are serialised inside; deltas of one source must come in order.
type Index struct {
	o     Options
	epoch epochs
	nodes arena
	sets  setTable
	table branchTable
	lists branchList

	mu      sync.Mutex // writers
	limbo   limbo      // retired nodes
	sources map[Source]*source
	extra   map[uint64]uint32 // references of (node, slot, tier) beyond the first
	retired limbo             // retired slots
	freed   []uint32          // slots to be given out again
	slots   atomic.Pointer[[]slotOwner]
	counts  Counts
	sink    uint32 // keeps the reads of touch alive

	scratch sync.Pool
	shards  atomic.Uint32
}

// source is what the index keeps of one event stream. Writers only.
type source struct {
	name   Source
	slot   uint32
	cursor uint32
	names  *aliases
	xor    uint64
}

// slotOwner tells readers whose a slot is.
type slotOwner struct {
	source Source
	live   bool
}

// Counts are totals since the index was made.
type Counts struct {
	Stored        uint64 // blocks stored
	Removed       uint64 // blocks removed
	UnknownRemove uint64 // removals of blocks that were not there
	UnknownParent uint64 // blocks refused because their parent is not there
	Refused       uint64 // blocks refused by a limit
}

// ApplyStats tell what one Apply did.
type ApplyStats struct {
	Stored, Removed, UnknownRemove, UnknownParent, Refused int
}

// New returns an empty index.
func New(o Options) *Index {
	if o.MaxNodes == 0 {
		o.MaxNodes = 64 << 20
	}
	if o.MaxSourceBlocks == 0 {
		o.MaxSourceBlocks = 4 << 20
	}
	x := &Index{o: o, sources: map[Source]*source{}, extra: map[uint64]uint32{}}
	x.nodes.init()
	x.sets.init()
	x.table.init()
	x.lists.init()
	slots := []slotOwner{}
	x.slots.Store(&slots)
	x.scratch.New = func() any { return &walk{shard: x.shards.Add(1)} }
	return x
}

// Apply performs the operations of d in order. The same deltas in the same
// order give the same state everywhere. What does not fit (an unknown parent,
// a removal of something unknown, a limit) is counted and left out.
func (x *Index) Apply(name Source, d *Delta) ApplyStats {
	x.mu.Lock()
	defer x.mu.Unlock()
	var st ApplyStats
	s, warm := x.source(name), uint32(0)
	for i := range d.Ops {
		op := &d.Ops[i]
		if i%window == 0 {
			x.warmOps(s, d, d.Ops[i:min(len(d.Ops), i+window)])
		}
		switch op.Kind {
		case OpStore:
			x.store(s, op, d.Blocks[op.First:op.First+op.N], &st)
		case OpRemove:
			if end := op.First + op.N; end > warm {
				warm = min(uint32(len(d.Hashes)), op.First+window)
				x.warmHashes(s, d.Hashes[op.First:warm])
			}
			for _, h := range d.Hashes[op.First : op.First+op.N] {
				x.remove(s, h, entryMeta(op.Tier, op.Group), &st)
			}
		case OpMove:
			for _, h := range d.Hashes[op.First : op.First+op.N] {
				x.move(s, h, op, &st)
			}
		case OpClear:
			st.Removed += s.names.n
			x.clear(s)
			s = x.source(name)
		}
	}
	x.counts.Stored += uint64(st.Stored)
	x.counts.Removed += uint64(st.Removed)
	x.counts.UnknownRemove += uint64(st.UnknownRemove)
	x.counts.UnknownParent += uint64(st.UnknownParent)
	x.counts.Refused += uint64(st.Refused)
	x.reclaim()
	return st
}

// Warm reads what Lookup and Apply are going to need of a source for blocks that
// are going to be stored, and for their parents. It changes nothing. Places in memory
// that are read in a row are fetched side by side, where one Lookup after the other
// would wait for each.
func (x *Index) Warm(name Source, parents, blocks []EngineHash) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sources[name]
	if s == nil {
		return
	}
	for _, h := range parents {
		x.sink += s.names.touch(h)
	}
	for _, h := range blocks {
		x.sink += s.names.touch(h)
	}
	for _, h := range parents {
		if e := s.names.first(h); e != nil {
			x.sink += x.nodes.at(e.node).first.Load()
		}
	}
}

// Lookup returns the block key that a source knows under an engine hash.
func (x *Index) Lookup(name Source, h EngineHash) (BlockKey, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sources[name]
	if s == nil {
		return 0, false
	}
	e := s.names.first(h)
	if e == nil {
		return 0, false
	}
	return BlockKey(x.nodes.at(e.node).key.Load()), true
}

// Reset forgets everything that a source holds.
func (x *Index) Reset(name Source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sources[name]; s != nil {
		x.clear(s)
	}
	x.reclaim()
}

// Refill forgets everything that a source holds and makes room for as many blocks,
// which are going to be stored: a source that does not grow step by step takes them faster.
func (x *Index) Refill(name Source, blocks int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sources[name]; s != nil {
		x.clear(s)
	}
	x.source(name).names = sized(min(blocks, x.o.MaxSourceBlocks))
	x.reclaim()
}

// RemoveEndpoint forgets all sources of an endpoint. Match stops seeing them at
// once; their blocks are released before it returns.
func (x *Index) RemoveEndpoint(ep EndpointID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, s := range x.sources {
		if name.Endpoint == ep {
			x.clear(s)
		}
	}
	x.reclaim()
}

// Digest returns the number of entries of a source and an order-free hash of
// them: equal states have equal digests.
func (x *Index) Digest(name Source) (count, xor uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sources[name]; s != nil {
		return uint64(s.names.n), s.xor
	}
	return 0, 0
}

// source returns the state of a source, made on first use.
func (x *Index) source(name Source) *source {
	if s := x.sources[name]; s != nil {
		return s
	}
	s := &source{name: name, cursor: noPage, names: newAliases()}
	slots := *x.slots.Load()
	next := append([]slotOwner(nil), slots...)
	if n := len(x.freed); n > 0 {
		s.slot = x.freed[n-1]
		x.freed = x.freed[:n-1]
		next[s.slot] = slotOwner{name, true}
	} else {
		s.slot = uint32(len(next))
		next = append(next, slotOwner{name, true})
	}
	x.slots.Store(&next)
	x.sources[name] = s
	return s
}

// clear hides a source from readers and releases all that it holds.
func (x *Index) clear(s *source) {
	next := append([]slotOwner(nil), *x.slots.Load()...)
	next[s.slot].live = false
	x.slots.Store(&next)
	delete(x.sources, s.name)
	s.names.each(func(g *segment) {
		for i := range g.slots {
			if e := &g.slots[i]; e.meta != 0 {
				x.drop(s, x.nodes.at(e.node), e.node, e.tier())
			}
		}
	})
	x.nodes.release(s.cursor)
	x.retired.retire(&x.epoch, s.slot)
}

// reclaim moves the epoch on when something waits for it.
func (x *Index) reclaim() {
	if x.limbo.pending()+x.retired.pending()+x.sets.limbo.pending()+x.lists.limbo.pending() == 0 || !x.epoch.advance() {
		return
	}
	x.retired.reclaim(&x.epoch, func(slot uint32) { x.freed = append(x.freed, slot) })
	x.limbo.reclaim(&x.epoch, x.nodes.free)
	x.sets.reclaim(&x.epoch)
	x.lists.reclaim(&x.epoch)
}
