package indexer

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// View is a snapshot of a source, read while others write. It must be used by one goroutine at a
// time.
type View struct {
	x     *Index
	names *names.Table // frozen; nil when that is over
	slots [][]names.Entry
	rules []condition
	inner *lockfree.Counter // keeps nodes from being used again; nil when closed
	pages int               // of the arena
	dump  *dump
	left  int    // blocks that may still be given
	node  uint32 // to go on with
}

// ErrViewSize means that a view exceeds its block limit.
var ErrViewSize = errors.New("indexer: view over its limit")

// View begins a snapshot of a source: stores that, applied in order to an empty source, give it the
// current blocks, counts and digest. Its duration does not depend on the source's size. Reading
// fails if it needs more than that many blocks, counting intermediate blocks that the source does
// not hold each time they are passed. Close must follow soon: until then no memory of removed
// blocks is reused.
func (x *Index) View(name block.Source, blocks int) *View {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := &View{x: x, pages: len(x.nodes.pages), left: blocks}
	if s := x.sources[name]; s != nil && s.names.Len() > 0 {
		v.names, v.slots, v.rules = s.names, s.names.Freeze(), s.rules
	}
	v.inner = x.epoch.Enter(0)
	return v
}

// viewBlocks is the approximate number of blocks per Next.
const viewBlocks = 1 << 12

// Next fills d with the next stores, of at most that many blocks each, and reports whether there
// are more. The first call sorts the entries and takes longer. Until Close, a view uses 16 bytes
// per block of the source and a fifth of a byte per block of the index. It takes no lock that
// writers wait for.
func (v *View) Next(d *block.Delta, most int) (more bool, err error) {
	d.Reset()
	if v.dump == nil && v.slots != nil {
		v.appendRules(d)
		v.dump = &dump{x: v.x}
		v.dump.collect(v.slots, v.pages)
		v.thaw()
	}
	u := v.dump
	if u == nil {
		return false, nil
	}
	u.out, u.most, u.room, u.tail = d, max(most, 1), v.left, 0
	for int(v.node>>pageShift) < len(u.rank) && len(d.Blocks) < viewBlocks {
		word := u.rank[v.node>>pageShift].bits[v.node>>6&1] >> (v.node & 63)
		if word == 0 {
			v.node = (v.node | 63) + 1
			continue
		}
		v.node += uint32(bits.TrailingZeros64(word))
		u.chain(v.node)
		v.node++
	}
	if u.room < 0 {
		return false, ErrViewSize
	}
	v.left = u.room
	return int(v.node>>pageShift) < len(u.rank), nil
}

// appendRules begins a snapshot with the rules of the source's groups.
func (v *View) appendRules(d *block.Delta) {
	if len(v.rules) == 0 {
		return
	}
	for i := range v.rules {
		d.Hashes = append(d.Hashes, v.rules[i].Word())
	}
	d.Ops = append(d.Ops, block.Op{Kind: block.OpMove, Group: block.GroupRules, N: uint32(len(v.rules))})
}

// thaw lets writers change segments in place again.
func (v *View) thaw() {
	if v.names == nil {
		return
	}
	v.x.mu.Lock()
	v.names.Unfreeze()
	v.x.mu.Unlock()
	v.names, v.slots, v.rules = nil, nil, nil
}

// Close ends the view. It may be called twice.
func (v *View) Close() {
	v.thaw()
	if v.inner != nil {
		v.x.epoch.Leave(v.inner)
		v.inner = nil
	}
	v.dump = nil
}

// dump walks a source's blocks in arena order, in which chains are mostly contiguous.
type dump struct {
	x    *Index
	rank []pageRank    // by page of the arena
	held []heldBlock   // by rank
	more []names.Entry // further entries of nodes that have several, by node
	sent []uint64      // bits by rank

	path  []uint32
	above block.Op // the place below which the next op may start: the root, or a block that was sent
	holes []uint32 // blocks since then that the source does not hold
	tail  uint32   // the block at which the last op can be continued, or 0
	out   *block.Delta
	most  int // blocks of an operation
	room  int // blocks that may be sent; below 0: more were needed
}

// pageRank numbers the nodes of a page that the source holds.
type pageRank struct {
	bits [pageNodes / 64]uint64
	base uint32
}

// heldBlock is an entry of a node; moreEntries in meta means that the node has others.
type heldBlock struct {
	hash block.EngineHash
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
func (d *dump) collect(slots [][]names.Entry, pages int) {
	d.rank = make([]pageRank, pages)
	for _, g := range slots {
		for i := range g {
			if e := &g[i]; e.Meta != 0 {
				d.rank[e.Node>>pageShift].bits[e.Node>>6&1] |= 1 << (e.Node & 63)
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
			if e := &g[i]; e.Meta != 0 {
				d.enter(e)
			}
		}
	}
	slices.SortFunc(d.more, func(a, b names.Entry) int { return cmp.Compare(a.Node, b.Node) })
}

func (d *dump) enter(e *names.Entry) {
	at, _ := d.find(e.Node)
	h := &d.held[at]
	if h.meta == 0 {
		*h = heldBlock{block.EngineHash(e.Hash), e.Meta}
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
			break // the next page continues here
		}
		n := d.x.nodes.at(id)
		at, sent := d.wasSent(id)
		if sent || n.parent == 0 {
			d.above = block.Op{From: block.Key(n.key.Load()), Root: !sent}
			if sent {
				d.above.Parent = d.held[at].hash
			}
			d.tail, d.holes = 0, d.holes[:0]
			break
		}
	}
	for i := len(d.path) - 1; i >= 0; i-- {
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
		i, _ := slices.BinarySearchFunc(d.more, id, func(e names.Entry, id uint32) int { return cmp.Compare(e.Node, id) })
		for ; i < len(d.more) && d.more[i].Node == id; i++ {
			d.copies(id, block.EngineHash(d.more[i].Hash), d.more[i].Meta)
		}
		last = false
	}
	d.sent[at>>6] |= 1 << (at & 63)
	d.above = block.Op{From: block.Key(d.x.nodes.at(id).key.Load()), Parent: h.hash}
	d.tail, d.holes = 0, d.holes[:0]
	if last {
		d.tail = id
	}
}

// copies sends a block as often as it was announced under one name.
func (d *dump) copies(id uint32, h block.EngineHash, meta uint32) {
	op := d.above
	op.Tier, op.Group = block.Tier(names.TierOf(meta)), uint8(meta>>8)
	for range meta >> 16 {
		if d.room -= 1 + len(d.holes); d.room < 0 {
			return
		}
		if d.tail == 0 || !d.takes(&op) {
			op.First, op.N = uint32(len(d.out.Blocks)), 0
			d.out.Ops = append(d.out.Ops, op)
		}
		d.tail = 0 // a second copy starts above again
		for _, hole := range d.holes {
			d.add(d.stored(hole, 0, FlagHole))
		}
		d.add(d.stored(id, h, 0))
	}
}

// takes reports whether the last operation can be extended with a block of op's kind.
func (d *dump) takes(op *block.Op) bool {
	last := &d.out.Ops[len(d.out.Ops)-1]
	return int(last.N) < d.most && last.Tier == op.Tier && last.Group == op.Group
}

func (d *dump) add(b block.StoredBlock) {
	d.out.Blocks = append(d.out.Blocks, b)
	d.out.Ops[len(d.out.Ops)-1].N++
}

func (d *dump) stored(id uint32, h block.EngineHash, flags block.Flags) block.StoredBlock {
	n := d.x.nodes.at(id)
	return block.StoredBlock{
		Hash: h, Key: block.Key(n.key.Load()), Bytes: n.length.Load(), Tokens: n.tokens(), Flags: n.flags() | flags,
	}
}
