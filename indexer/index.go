package indexer

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// Options configures an Index. The zero value is usable.
type Options struct {
	Hasher          block.Hasher
	MaxNodes        int // maximum blocks in the trie; 0 means 64 million. Further stores are rejected and counted.
	MaxSourceBlocks int // maximum blocks of one source; 0 means 16 million. Further stores are rejected and counted.
}

// Index is the precise prefix index: it records which source holds which blocks of which chains.
// Match never waits for writers and does not allocate. Apply, Reset and RemoveEndpoint are
// serialized internally; deltas of one source must arrive in order.
type Index struct {
	o     Options
	epoch lockfree.Epochs
	nodes arena
	sets  lockfree.Sets
	table lockfree.Keys
	lists branchList

	mu      sync.Mutex     // writers
	limbo   lockfree.Limbo // retired nodes
	sources map[block.Source]*source
	ranks   map[block.EndpointID][]block.Source // of sources, by endpoint
	extra   map[uint64]uint32                   // references of (node, slot, tier) beyond the first
	dying   []*grave                            // hidden sources that are not fully released
	stock   int                                 // entries that may be released at once; see bury
	retired lockfree.Limbo                      // retired slots
	freed   []uint32                            // free slots
	slots   atomic.Pointer[lockfree.Vector[slotOwner]]
	shown   atomic.Pointer[shown]
	counts  Counts
	sink    uint32 // keeps prefetches from being optimized away
	going   going

	scratch sync.Pool
	shards  atomic.Uint32
}

// source is the state of one event stream. Writers only.
type source struct {
	name   block.Source
	slot   uint32
	cursor uint32
	names  *names.Table
	xor    uint64
	staged bool // not among the sources; see Stage
	rules  []condition
	over   bool // blocks were rejected by a limit
	ahead  ahead
}

// slotOwner identifies the owner of a slot to readers.
type slotOwner struct {
	source block.Source
	live   bool // walks follow it; never set for a group with a rule
	rules  []condition
}

// shown holds the endpoints' sources for readers.
type shown struct {
	of      *lockfree.Vector[endpoint] // by EndpointID
	several int                        // endpoints with more than one rank
}

type endpoint struct {
	ranks uint16 // sources that walks follow
	over  uint16 // sources with blocks rejected by a limit; see Overflowed
}

// at returns the entry of an endpoint.
func (v *shown) at(ep block.EndpointID) endpoint {
	if int(ep) < v.of.Len() {
		return *v.of.At(int(ep))
	}
	return endpoint{}
}

// Counts are totals since the index was created.
type Counts struct {
	Stored        uint64 // blocks stored
	Removed       uint64 // blocks removed
	UnknownRemove uint64 // removals of unknown blocks
	UnknownParent uint64 // blocks rejected because their parent is unknown
	Refused       uint64 // blocks rejected by a limit
}

// ApplyStats counts the effects of one Apply.
type ApplyStats struct {
	Stored, Removed, UnknownRemove, UnknownParent, Refused int
}

func (st *ApplyStats) add(o ApplyStats) {
	st.Stored += o.Stored
	st.Removed += o.Removed
	st.UnknownRemove += o.UnknownRemove
	st.UnknownParent += o.UnknownParent
	st.Refused += o.Refused
}

// New returns an empty index.
func New(o Options) *Index {
	if o.MaxNodes == 0 {
		o.MaxNodes = 64 << 20
	}
	if o.MaxSourceBlocks == 0 {
		o.MaxSourceBlocks = 16 << 20
	}
	x := &Index{o: o, sources: map[block.Source]*source{}, ranks: map[block.EndpointID][]block.Source{}, extra: map[uint64]uint32{}, stock: reclaimFirst}
	x.nodes.init()
	x.sets.Init()
	x.table.Init()
	x.lists.init()
	x.slots.Store(&lockfree.Vector[slotOwner]{})
	x.shown.Store(&shown{of: &lockfree.Vector[endpoint]{}})
	x.scratch.New = func() any { return &walk{shard: x.shards.Add(1)} }
	return x
}

// Apply performs the operations of d in order. The same deltas in the same order give the same
// state everywhere. Operations that do not fit (an unknown parent, a removal of an unknown block, a
// limit) are counted and skipped.
func (x *Index) Apply(name block.Source, d *block.Delta) ApplyStats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.source(name)
	return x.perform(&s, d)
}

// perform applies d to a source. A clear replaces the source.
func (x *Index) perform(at **source, d *block.Delta) ApplyStats {
	var st ApplyStats
	s, warm := *at, 0
	for i := 0; i < len(d.Ops); i++ {
		op := &d.Ops[i]
		if i >= warm && s.ahead.empty() {
			warm = min(len(d.Ops), i+window)
			x.warmOps(s, d, d.Ops[i:warm])
		}
		switch op.Kind {
		case block.OpStore:
			x.store(s, op, d.Blocks[op.First:op.First+op.N], &st)
		case block.OpRemove:
			i += x.removals(s, d, d.Ops[i:], &st) - 1
		case block.OpMove:
			if op.Group == block.GroupRules {
				x.enterRules(s, d.Hashes[op.First:op.First+op.N])
				break
			}
			for _, h := range d.Hashes[op.First : op.First+op.N] {
				x.move(s, h, op, &st)
			}
		case block.OpClear:
			st.Removed += s.names.Len()
			x.clear(s)
			s = x.successor(s)
		}
	}
	*at = s
	s.ahead.clear()
	x.counts.Stored += uint64(st.Stored)
	x.counts.Removed += uint64(st.Removed)
	x.counts.UnknownRemove += uint64(st.UnknownRemove)
	x.counts.UnknownParent += uint64(st.UnknownParent)
	x.counts.Refused += uint64(st.Refused)
	x.reclaim()
	return st
}

// Lookup returns the block key of a source's engine hash.
func (x *Index) Lookup(name block.Source, h block.EngineHash) (block.Key, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sources[name]
	if s == nil {
		return 0, false
	}
	e := s.names.First(uint64(h))
	if e == nil {
		return 0, false
	}
	return block.Key(x.nodes.at(e.Node).key.Load()), true
}

// Reset removes all blocks of a source.
func (x *Index) Reset(name block.Source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sources[name]; s != nil {
		x.clear(s)
		x.advance()
		return
	}
	x.reclaim()
}

// RemoveEndpoint removes all sources of an endpoint. Match stops seeing them immediately.
func (x *Index) RemoveEndpoint(ep block.EndpointID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range slices.Clone(x.ranks[ep]) {
		x.clear(x.sources[name])
	}
	x.reclaim()
}

// Digest returns the number of a source's entries and their order-independent hash: equal states
// have equal digests.
func (x *Index) Digest(name block.Source) (count, xor uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sources[name]; s != nil {
		return uint64(s.names.Len()), s.xor
	}
	return 0, 0
}

// source returns the state of a source, creating it if needed.
func (x *Index) source(name block.Source) *source {
	if s := x.sources[name]; s != nil {
		return s
	}
	s := x.newSource(name, names.New(), false)
	x.enter(s)
	return s
}

// enter adds s to the sources, so that walks follow its slot.
func (x *Index) enter(s *source) {
	x.sources[s.name] = s
	x.ranks[s.name.Endpoint] = append(x.ranks[s.name.Endpoint], s.name)
	x.show(s.name.Endpoint, 1, one(s.over))
}

// remove removes s from the sources.
func (x *Index) remove(s *source) {
	ep := s.name.Endpoint
	delete(x.sources, s.name)
	if x.ranks[ep] = slices.DeleteFunc(x.ranks[ep], func(n block.Source) bool { return n == s.name }); len(x.ranks[ep]) == 0 {
		delete(x.ranks, ep)
	}
	x.show(ep, -1, -one(s.over))
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// show changes the number of an endpoint's sources for readers.
func (x *Index) show(ep block.EndpointID, ranks, over int) {
	v := x.shown.Load()
	e := v.at(ep)
	several := v.several - one(e.ranks > 1)
	e.ranks += uint16(ranks)
	e.over += uint16(over)
	x.shown.Store(&shown{v.of.With(int(ep), e), several + one(e.ranks > 1)})
}

// newSource assigns a slot to a source. Readers use it unless the source is staged.
func (x *Index) newSource(name block.Source, table *names.Table, staged bool) *source {
	s := &source{name: name, cursor: noPage, names: table, staged: staged}
	s.slot = x.newSlot(slotOwner{source: name, live: !staged})
	return s
}

// newSlot returns a free slot.
func (x *Index) newSlot(owner slotOwner) (slot uint32) {
	if n := len(x.freed); n > 0 {
		slot = x.freed[n-1]
		x.freed = x.freed[:n-1]
	} else {
		slot = uint32(x.slots.Load().Len())
	}
	x.setSlot(slot, owner)
	return slot
}

// setSlot changes the owner of a slot for walks.
func (x *Index) setSlot(slot uint32, owner slotOwner) {
	x.slots.Store(x.slots.Load().With(int(slot), owner))
}

// reclaim continues releasing hidden sources.
func (x *Index) reclaim() {
	x.stock = min(x.stock+reclaimNext*max(min(len(x.dying), reclaimMany), 1), reclaimFirst)
	x.reclaimRemoved()
	x.advance()
}

// advance advances the epoch if removed data waits to be freed.
func (x *Index) advance() {
	if x.limbo.Pending()+x.retired.Pending()+x.sets.Pending()+x.lists.limbo.Pending() == 0 || !x.epoch.Advance() {
		return
	}
	x.retired.Reclaim(&x.epoch, func(slot uint32) { x.freed = append(x.freed, slot) })
	x.limbo.Reclaim(&x.epoch, x.nodes.free)
	x.sets.Reclaim(&x.epoch)
	x.lists.reclaim(&x.epoch)
}
