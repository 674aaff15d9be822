package indexer

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// Options configure an Index. The zero value is usable.
type Options struct {
	Hasher          block.Hasher
	MaxNodes        int // blocks in the trie; 0 means 64 million. Stores beyond it are refused and counted.
	MaxSourceBlocks int // blocks of one source; 0 means 16 million. Stores beyond it are refused and counted.
}

// Index is the precise prefix index: which source holds which blocks of which
// chains. Match never waits for writers and does not allocate. Apply, Reset
// and RemoveEndpoint are serialised inside; deltas of one source must come in order.
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
	dying   []*grave                            // what is hidden and not released yet
	stock   int                                 // entries of it that may be released at once; see bury
	retired lockfree.Limbo                      // retired slots
	freed   []uint32                            // slots to be given out again
	slots   atomic.Pointer[lockfree.Vector[slotOwner]]
	shown   atomic.Pointer[shown]
	counts  Counts
	sink    uint32 // keeps reads ahead alive
	going   going

	scratch sync.Pool
	shards  atomic.Uint32
}

// source is what the index keeps of one event stream. Writers only.
type source struct {
	name   block.Source
	slot   uint32
	cursor uint32
	names  *names.Table
	xor    uint64
	staged bool // not among the sources; see Stage
	rules  []condition
	over   bool // blocks were refused by a limit
	ahead  ahead
}

// slotOwner tells readers whose a slot is.
type slotOwner struct {
	source block.Source
	live   bool // walks follow it; never that of a group with a rule
	rules  []condition
}

// shown tells readers of endpoints' sources.
type shown struct {
	of      *lockfree.Vector[endpoint] // by EndpointID
	several int                        // endpoints with more than one rank
}

type endpoint struct {
	ranks uint16 // sources that walks follow
	over  uint16 // those of which blocks were refused by a limit; see Overflowed
}

// at returns what is shown of an endpoint.
func (v *shown) at(ep block.EndpointID) endpoint {
	if int(ep) < v.of.Len() {
		return *v.of.At(int(ep))
	}
	return endpoint{}
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
	x := &Index{o: o, sources: map[block.Source]*source{}, ranks: map[block.EndpointID][]block.Source{}, extra: map[uint64]uint32{}, stock: buryFirst}
	x.nodes.init()
	x.sets.Init()
	x.table.Init()
	x.lists.init()
	x.slots.Store(&lockfree.Vector[slotOwner]{})
	x.shown.Store(&shown{of: &lockfree.Vector[endpoint]{}})
	x.scratch.New = func() any { return &walk{shard: x.shards.Add(1)} }
	return x
}

// Apply performs the operations of d in order. The same deltas in the same
// order give the same state everywhere. What does not fit (an unknown parent,
// a removal of something unknown, a limit) is counted and left out.
func (x *Index) Apply(name block.Source, d *block.Delta) ApplyStats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.source(name)
	return x.perform(&s, d)
}

// perform applies d to a source, which is another one after it was emptied.
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

// Lookup returns the block key that a source knows under an engine hash.
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

// Reset forgets everything that a source holds.
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

// RemoveEndpoint forgets all sources of an endpoint. Match stops seeing them at
// once.
func (x *Index) RemoveEndpoint(ep block.EndpointID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range slices.Clone(x.ranks[ep]) {
		x.clear(x.sources[name])
	}
	x.reclaim()
}

// Digest returns the number of entries of a source and an order-free hash of
// them: equal states have equal digests.
func (x *Index) Digest(name block.Source) (count, xor uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sources[name]; s != nil {
		return uint64(s.names.Len()), s.xor
	}
	return 0, 0
}

// source returns the state of a source, made on first use.
func (x *Index) source(name block.Source) *source {
	if s := x.sources[name]; s != nil {
		return s
	}
	s := x.newSource(name, names.New(), false)
	x.enter(s)
	return s
}

// enter makes s one of the sources, of which walks follow its slot.
func (x *Index) enter(s *source) {
	x.sources[s.name] = s
	x.ranks[s.name.Endpoint] = append(x.ranks[s.name.Endpoint], s.name)
	x.show(s.name.Endpoint, 1, one(s.over))
}

// remove takes s out of the sources.
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

// show tells readers of so many more sources of an endpoint, or less.
func (x *Index) show(ep block.EndpointID, ranks, over int) {
	v := x.shown.Load()
	e := v.at(ep)
	several := v.several - one(e.ranks > 1)
	e.ranks += uint16(ranks)
	e.over += uint16(over)
	x.shown.Store(&shown{v.of.With(int(ep), e), several + one(e.ranks > 1)})
}

// newSource gives a source a slot, which readers look at if it is not staged.
func (x *Index) newSource(name block.Source, table *names.Table, staged bool) *source {
	s := &source{name: name, cursor: noPage, names: table, staged: staged}
	s.slot = x.newSlot(slotOwner{source: name, live: !staged})
	return s
}

// newSlot gives out a slot.
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

// setSlot has walks go by another owner of a slot.
func (x *Index) setSlot(slot uint32, owner slotOwner) {
	x.slots.Store(x.slots.Load().With(int(slot), owner))
}

// reclaim goes on releasing what is hidden.
func (x *Index) reclaim() {
	x.stock = min(x.stock+buryNext*max(min(len(x.dying), buryMany), 1), buryFirst)
	x.bury()
	x.advance()
}

// advance moves the epoch on when something waits for it.
func (x *Index) advance() {
	if x.limbo.Pending()+x.retired.Pending()+x.sets.Pending()+x.lists.limbo.Pending() == 0 || !x.epoch.Advance() {
		return
	}
	x.retired.Reclaim(&x.epoch, func(slot uint32) { x.freed = append(x.freed, slot) })
	x.limbo.Reclaim(&x.epoch, x.nodes.free)
	x.sets.Reclaim(&x.epoch)
	x.lists.reclaim(&x.epoch)
}
