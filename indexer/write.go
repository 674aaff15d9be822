package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"

	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
)

// FlagHole marks a block of a snapshot that the source does not hold. It only positions the blocks
// below it.
const FlagHole block.Flags = 1 << 7

// store chains blocks below the operation's parent and adds the source as a holder.
func (x *Index) store(s *source, op *block.Op, blocks []block.StoredBlock, st *ApplyStats) {
	parent, ok := x.parent(s, op)
	if !ok {
		st.UnknownParent += len(blocks)
		return
	}
	kind := names.KindOf(uint8(op.Tier), op.Group)
	for i := range blocks {
		if i%window == 0 && len(blocks) > 1 {
			x.warmBlocks(s, blocks[i:min(len(blocks), i+window)])
		}
		b := &blocks[i]
		id := x.place(s, parent, b)
		fresh := id == 0
		if fresh {
			if s.names.Len() >= x.o.MaxSourceBlocks || x.nodes.live >= x.o.MaxNodes {
				x.overflow(s)
				st.Refused += len(blocks) - i
				break
			}
			if id = x.newNode(s, parent, b, kind); id == 0 {
				st.Refused += len(blocks) - i
				break
			}
		}
		if b.Flags&FlagHole == 0 {
			x.name(s, b, id, kind, fresh)
			st.Stored++
		}
		parent = id
	}
	x.prune(parent)
}

// parent finds the node below which an op stores.
func (x *Index) parent(s *source, op *block.Op) (uint32, bool) {
	if op.Root {
		if id := x.table.Find(uint64(op.From)); id != 0 {
			return id, true
		}
		id := x.nodes.alloc(&s.cursor)
		n := x.nodes.at(id)
		n.reset(uint64(op.From), 0)
		x.table.Insert(uint64(op.From), id)
		return id, true
	}
	if id := s.ahead.take(op.Parent); id != 0 && x.nodes.at(id).key.Load() == uint64(op.From) {
		return id, true
	}
	h := uint64(op.Parent)
	g, at := s.names.Find(h)
	for e, i := g.Next(h, at); e != nil; e, i = g.Next(h, i) {
		if x.nodes.at(e.Node).key.Load() == uint64(op.From) {
			return e.Node, true
		}
	}
	return 0, false
}

// place finds the node for a block below parent, or returns 0. A block already named by the source
// keeps its first classification: another one for the same copy would be counted twice and removed
// once.
func (x *Index) place(s *source, parent uint32, b *block.StoredBlock) uint32 {
	p := x.nodes.at(parent)
	if p.first.Load() == 0 {
		return 0
	}
	apart := b.Flags&block.FlagNonCanonical != 0
	if id := x.child(p, uint64(b.Key), !apart); id != 0 && s.names.Has(uint64(b.Hash), id) {
		return id
	}
	return x.child(p, uint64(b.Key), apart)
}

// child finds a block below p, or returns 0.
func (x *Index) child(p *node, key uint64, apart bool) uint32 {
	first := p.first.Load()
	if first&branchBit != 0 {
		return x.branchChild(p, key, apart)
	}
	for id := first; id != 0; {
		n := x.nodes.at(id)
		if n.key.Load() == key && n.apart() == apart {
			return id
		}
		id = n.next.Load()
	}
	return 0
}

// branchChild finds a block below a branch point, or returns 0.
func (x *Index) branchChild(p *node, key uint64, apart bool) uint32 {
	s := x.table.Segment(key)
	if !s.MayContain(key) {
		return 0
	}
	for id, i := s.Next(key, key); id != 0; id, i = s.Next(key, i) {
		if n := x.nodes.at(id); n.key.Load() == key && n.apart() == apart && x.nodes.at(n.parent) == p {
			return id
		}
	}
	return 0
}

// newNode adds a block below parent, held by the source in a tier and group unless it is a hole; 0
// if the branch has too many forms.
func (x *Index) newNode(s *source, parent uint32, b *block.StoredBlock, kind uint32) uint32 {
	p := x.nodes.at(parent)
	first := p.first.Load()
	if first&branchBit != 0 {
		if !x.lists.get(first &^ branchBit).add(formOf(b.Bytes, b.Flags)) {
			return 0
		}
		id := x.alloc(s, parent, b, kind, 0)
		x.table.Insert(uint64(b.Key), id)
		return id
	}
	children := 0
	for id := first; id != 0; id = x.nodes.at(id).next.Load() {
		children++
	}
	id := x.alloc(s, parent, b, kind, first)
	if children+1 < branchAt {
		p.first.Store(id)
		return id
	}
	br := &branch{}
	for c := id; c != 0; c = x.nodes.at(c).next.Load() {
		n := x.nodes.at(c)
		br.add(n.form())
		x.table.Insert(n.key.Load(), c)
	}
	p.first.Store(x.lists.add(br) | branchBit)
	return id
}

// alloc fills a node that no reader can see yet.
func (x *Index) alloc(s *source, parent uint32, b *block.StoredBlock, kind, next uint32) uint32 {
	id := x.nodes.alloc(&s.cursor)
	n := x.nodes.at(id)
	n.reset(uint64(b.Key), parent)
	n.length.init(b.Bytes)
	n.meta.init(min(b.Tokens, 1<<24-1)<<8 | uint32(b.Flags&block.FlagNonCanonical))
	n.next.init(next)
	if b.Flags&FlagHole == 0 {
		set := x.sets.ToggleTier(0, s.slotOfKind(kind), names.TierOf(kind))
		x.sets.Retain(set)
		n.set.init(set)
	}
	return id
}

// name counts one more copy of a block under its engine hash. held means that the source is already
// a holder of the block.
func (x *Index) name(s *source, b *block.StoredBlock, id, kind uint32, held bool) {
	if !s.names.Raise(uint64(b.Hash), id, kind, b.Flags&block.FlagAgain != 0) {
		return
	}
	s.xor ^= imprint(b.Hash, uint64(b.Key), kind)
	if !held {
		x.hold(s.slotOfKind(kind), id, block.Tier(names.TierOf(kind)))
	}
}

// imprint is an entry's share of the digest. It must not depend on node numbers.
func imprint(h block.EngineHash, key uint64, kind uint32) uint64 {
	return block.Fold(uint64(h)^0x589965cc75374cc3, key^uint64(kind))
}

// hold enters a slot into a node's holder set.
func (x *Index) hold(slot, id uint32, tier block.Tier) {
	n := x.nodes.at(id)
	old := n.set.Load()
	if x.holds(old, slot, tier) {
		x.extra[extraKey(id, slot, tier)]++
		n.meta.Store(n.meta.Load() | uint32(flagExtra))
		return
	}
	x.flip(n, old, slot, tier)
}

func extraKey(id, slot uint32, tier block.Tier) uint64 {
	return uint64(id)<<32 | uint64(slot)<<2 | uint64(tier)
}

func (x *Index) holds(set, slot uint32, tier block.Tier) bool {
	if set == 0 {
		return false
	}
	for _, m := range x.sets.Get(set).Members {
		if m>>lockfree.TierBits == slot {
			return m&(1<<tier) != 0
		}
	}
	return false
}

func (x *Index) flip(n *node, old, slot uint32, tier block.Tier) {
	set := x.sets.ToggleTier(old, slot, uint8(tier))
	x.sets.Retain(set)
	n.set.Store(set)
	if old != 0 {
		x.sets.Release(&x.epoch, old)
	}
}

// release reverts the effect of an entry that was removed from the names.
func (x *Index) release(s *source, e *names.Entry) {
	s.ahead.clear()
	n := x.nodes.at(e.Node)
	s.xor ^= imprint(block.EngineHash(e.Hash), n.key.Load(), e.Kind())
	x.drop(s.slotOfKind(e.Kind()), n, e.Node, block.Tier(e.Tier()))
}

// move enters known hashes into another tier.
func (x *Index) move(s *source, h block.EngineHash, op *block.Op, st *ApplyStats) {
	e := s.names.First(uint64(h))
	if e == nil {
		st.UnknownParent++
		return
	}
	id := e.Node
	b := block.StoredBlock{Hash: h, Key: block.Key(x.nodes.at(id).key.Load())}
	x.name(s, &b, id, names.KindOf(uint8(op.Tier), op.Group), false)
	st.Stored++
}

// drop removes a slot from a node's holder set and frees unused nodes.
func (x *Index) drop(slot uint32, n *node, id uint32, tier block.Tier) {
	if block.Flags(n.meta.Load())&flagExtra != 0 {
		k := extraKey(id, slot, tier)
		if c := x.extra[k]; c > 1 {
			x.extra[k] = c - 1
			return
		} else if c == 1 {
			delete(x.extra, k)
			return
		}
	}
	old := n.set.Load()
	if set := x.sets.ToggleTier(old, slot, uint8(tier)); set == 0 && n.first.Load() == 0 {
		// Current readers may still see the holder; later ones do not.
		x.sets.Release(&x.epoch, old)
		x.prune(x.retire(id))
		return
	}
	x.flip(n, old, slot, tier)
	x.prune(id)
}

// prune frees id and its ancestors while they have neither holder nor child.
func (x *Index) prune(id uint32) {
	for id != 0 {
		n := x.nodes.at(id)
		first := n.first.Load()
		if n.set.Load() != 0 || (first&branchBit == 0 && first != 0) {
			return
		}
		if first&branchBit != 0 {
			if x.lists.get(first&^branchBit).n > 0 {
				return
			}
			x.lists.drop(&x.epoch, first&^branchBit)
		}
		id = x.retire(id)
	}
}

// retire takes a node out of the trie and returns its parent.
func (x *Index) retire(id uint32) (parent uint32) {
	n := x.nodes.at(id)
	parent = n.parent
	x.unlink(n, id, parent)
	x.limbo.Retire(&x.epoch, id)
	return parent
}

func (x *Index) unlink(n *node, id, parent uint32) {
	if parent == 0 {
		x.table.Remove(n.key.Load(), id)
		return
	}
	p := x.nodes.at(parent)
	first := p.first.Load()
	if first&branchBit != 0 {
		x.table.Remove(n.key.Load(), id)
		x.lists.get(first &^ branchBit).drop(n.form())
		return
	}
	if first == id {
		p.first.Store(n.next.Load())
		return
	}
	prev := x.nodes.at(first)
	for prev.next.Load() != id {
		prev = x.nodes.at(prev.next.Load())
	}
	prev.next.Store(n.next.Load())
}
