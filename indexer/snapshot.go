package indexer

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
)

// ErrSnapshotSize tells that a source cannot be put into a snapshot of the size allowed.
var ErrSnapshotSize = errors.New("indexer: snapshot over its limit")

// SnapshotLimits bound a snapshot, in bytes.
type SnapshotLimits struct {
	Page  int // of one page; larger only where most of a page of blocks in a row is not held
	Total int // of all pages
}

// View is what a source holds at one moment, to be put into pages while others
// write. One goroutine uses it at a time.
type View struct {
	x     *Index
	names *aliases // frozen; nil when that is over
	slots [][]entry
	inner *paddedCounter // keeps nodes from being used again; nil when closed
	pages int            // of the arena
	dump  *dump
	out   pager
	at    int // page of the arena to go on with
	ended bool
}

// View begins a snapshot of a source: encoded deltas that, applied in order to a
// source that holds nothing, give it the blocks, counts and digest that it has
// now. It does not take longer for larger sources. Close must follow, soon: until
// then no memory of removed blocks is used again.
func (x *Index) View(name Source, limits SnapshotLimits) *View {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := &View{x: x, pages: len(x.nodes.pages), out: newPager(limits)}
	if s := x.sources[name]; s != nil && s.names.n > 0 {
		v.names, v.slots = s.names, s.names.freeze()
	}
	v.inner = x.epoch.enter(0)
	return v
}

// Next returns the next page; nil after the last. The first call sorts the entries
// and takes longer than others; until the view is closed that costs 16 bytes for each
// block of the source and a fifth of a byte for each of the index. It takes no lock
// that writers wait for.
func (v *View) Next() ([]byte, error) {
	if v.dump == nil && v.slots != nil {
		v.dump = &dump{x: v.x, out: &v.out}
		v.dump.collect(v.slots, v.pages)
		v.thaw()
	}
	for len(v.out.pages) == 0 && !v.ended {
		if v.dump != nil && v.at < len(v.dump.rank) {
			v.dump.chains(v.at)
			v.at++
		} else if err := v.out.finish(); err != nil {
			return nil, err
		} else {
			v.ended = true
		}
		if v.out.failed {
			return nil, ErrSnapshotSize
		}
	}
	if len(v.out.pages) == 0 {
		return nil, nil
	}
	p := v.out.pages[0]
	v.out.pages = v.out.pages[1:]
	return p, nil
}

// thaw lets writers change segments in place again.
func (v *View) thaw() {
	if v.names == nil {
		return
	}
	v.x.mu.Lock()
	v.names.thaw()
	v.x.mu.Unlock()
	v.names, v.slots = nil, nil
}

// Close ends the view. It may be called twice.
func (v *View) Close() {
	v.thaw()
	if v.inner != nil {
		v.x.epoch.leave(v.inner)
		v.inner = nil
	}
	v.dump, v.out, v.ended = nil, pager{}, true
}

// Snapshot returns all pages of a view of a source.
func (x *Index) Snapshot(name Source, limits SnapshotLimits) (pages [][]byte, err error) {
	v := x.View(name, limits)
	defer v.Close()
	for {
		p, err := v.Next()
		if err != nil {
			return nil, err
		}
		if p == nil {
			return pages, nil
		}
		pages = append(pages, p)
	}
}

// dump walks what a source holds in the order of the arena, in which a chain
// nearly always lies in a row.
type dump struct {
	x    *Index
	rank []pageRank  // by page of the arena
	held []heldBlock // by rank
	more []entry     // further entries of nodes that have several, by node
	sent []uint64    // bits by rank

	path  []uint32
	above Op       // the place below which the next op may start: the root, or a block that was sent
	holes []uint32 // blocks since then that the source does not hold
	tail  uint32   // the block at which the last op can be continued, or 0
	out   *pager
}

// pageRank numbers the nodes of a page that the source holds.
type pageRank struct {
	bits [pageNodes / 64]uint64
	base uint32
}

// heldBlock is an entry of a node; moreEntries in meta says that it has others.
type heldBlock struct {
	hash EngineHash
	meta uint32
}

const moreEntries = 0x40 // a bit that no kind uses

// find returns the rank of a node, if the source holds it.
func (d *dump) find(id uint32) (uint32, bool) {
	p, w, bit := &d.rank[id>>pageShift], id>>6&1, uint64(1)<<(id&63)
	n := p.base + uint32(bits.OnesCount64(p.bits[w]&(bit-1)))
	if w == 1 {
		n += uint32(bits.OnesCount64(p.bits[0]))
	}
	return n, p.bits[w]&bit != 0
}

// collect sorts the entries by node: first it counts, then it places.
func (d *dump) collect(slots [][]entry, pages int) {
	d.rank = make([]pageRank, pages)
	for _, g := range slots {
		for i := range g {
			if e := &g[i]; e.meta != 0 {
				d.rank[e.node>>pageShift].bits[e.node>>6&1] |= 1 << (e.node & 63)
			}
		}
	}
	n := 0
	for i := range d.rank {
		p := &d.rank[i]
		p.base = uint32(n)
		n += bits.OnesCount64(p.bits[0]) + bits.OnesCount64(p.bits[1])
	}
	d.held, d.sent = make([]heldBlock, n), make([]uint64, n/64+1)
	for _, g := range slots {
		for i := range g {
			if e := &g[i]; e.meta != 0 {
				d.enter(e)
			}
		}
	}
	slices.SortFunc(d.more, func(a, b entry) int { return cmp.Compare(a.node, b.node) })
}

// chains sends what is held of a page of the arena, and what it is chained to.
func (d *dump) chains(page int) {
	for w, word := range d.rank[page].bits {
		for ; word != 0; word &= word - 1 {
			d.chain(uint32(page)<<pageShift | uint32(w<<6|bits.TrailingZeros64(word)))
		}
	}
}

func (d *dump) enter(e *entry) {
	at, _ := d.find(e.node)
	h := &d.held[at]
	if h.meta == 0 {
		*h = heldBlock{e.hash, e.meta}
		return
	}
	h.meta |= moreEntries
	d.more = append(d.more, *e)
}

func (d *dump) wasSent(id uint32) (at uint32, sent bool) {
	at, held := d.find(id)
	return at, held && d.sent[at>>6]&(1<<(at&63)) != 0
}

// chain sends node id and its unsent ancestors, the highest first.
func (d *dump) chain(id uint32) {
	if _, sent := d.wasSent(id); sent {
		return
	}
	d.path = d.path[:0]
	for {
		d.path = append(d.path, id)
		id = d.x.nodes.at(id).parent
		if id == d.tail && id != 0 {
			break // goes on where the last one ended
		}
		n := d.x.nodes.at(id)
		at, sent := d.wasSent(id)
		if sent || n.parent == 0 {
			d.above = Op{From: BlockKey(n.key.Load()), Root: !sent}
			if sent {
				d.above.Parent = d.held[at].hash
			}
			d.tail, d.holes = 0, d.holes[:0]
			break
		}
	}
	for i := len(d.path) - 1; i >= 0 && !d.out.failed; i-- {
		d.block(d.path[i])
	}
}

// block sends one block of a path: all its copies, or a hole.
func (d *dump) block(id uint32) {
	at, held := d.find(id)
	if !held {
		d.holes = append(d.holes, id)
		return
	}
	h := &d.held[at]
	d.copies(id, h.hash, h.meta&^moreEntries)
	last := h.meta>>16 == 1
	if h.meta&moreEntries != 0 {
		i, _ := slices.BinarySearchFunc(d.more, id, func(e entry, id uint32) int { return cmp.Compare(e.node, id) })
		for ; i < len(d.more) && d.more[i].node == id; i++ {
			d.copies(id, d.more[i].hash, d.more[i].meta)
		}
		last = false
	}
	d.sent[at>>6] |= 1 << (at & 63)
	d.above = Op{From: BlockKey(d.x.nodes.at(id).key.Load()), Parent: h.hash}
	d.tail, d.holes = 0, d.holes[:0]
	if last {
		d.tail = id
	}
}

// copies sends a block as often as it was announced under one name.
func (d *dump) copies(id uint32, h EngineHash, meta uint32) {
	op := d.above
	op.Tier, op.Group = tierOf(meta), uint8(meta>>8)
	for range meta >> 16 {
		if d.out.failed {
			return
		}
		if d.tail == 0 || !d.out.takes(&op) {
			d.out.begin(op)
		}
		d.tail = 0 // a second copy starts above again
		for _, hole := range d.holes {
			d.out.add(d.stored(hole, 0, FlagHole))
		}
		d.out.add(d.stored(id, h, 0))
	}
}

func (d *dump) stored(id uint32, h EngineHash, flags BlockFlags) StoredBlock {
	n := d.x.nodes.at(id)
	return StoredBlock{
		Hash: h, Key: BlockKey(n.key.Load()), Bytes: n.length.Load(), Tokens: n.tokens(), Flags: n.flags() | flags,
	}
}
