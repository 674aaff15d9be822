package wire

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// The short form of a Delta is for readers with the writer's state just before it. It names known
// blocks by shortBytes of their mixed hash, and parents by how many stores ago they were stored. It
// has no version byte, because the surrounding message has one. Operations follow each other, each
// with a head of one byte:
//
//	bits 0-1 kind, bit 2 tier and group follow (1 byte each; absent: both are 0), bit 3 N is 1.
//	A store: bits 4-6 kind of parent, bit 7 tokens as in the previous store.
//	A removal or move: bit 4 hashes are whole.
//
// These fields follow, in this order: tier and group, and N (varint). A store continues with the
// parent (see shortParent), the tokens of a usual block (varint) and the blocks as in the long
// form. A removal or a move continues with the hashes, 4 or 8 bytes each. A clear has neither.
const (
	shortBytes = 4  // of a short name
	window     = 64 // names prefetched at a time
)

const (
	shortPlace     = 1 << 2
	shortOne       = 1 << 3
	shortWhole     = 1 << 4
	shortParentBit = 4
	shortUsual     = 1 << 7
)

// shortParent is the encoding of a store's parent.
type shortParent byte

const (
	parentRootAgain shortParent = iota // the root key of the previous root store
	parentRoot                         // a root key (8)
	parentTail                         // varint: 1 is the last block of the previous store, in this delta or an earlier one
	parentName                         // a short name (4)
	parentWhole                        // key and hash (8 each)
	parentKinds
)

// shortWriter encodes one delta.
type shortWriter struct {
	n    indexer.Named
	some bool // readers have known blocks
	t    *Tails
	d    *block.Delta
	dst  []byte
	warm uint32 // hashes before it were prefetched

	root     block.Key
	haveRoot bool
	usual    uint32
	stores   int // so far
}

// AppendShort appends the short form of d to dst. It must be called before d is applied, with the
// tails of the previous deltas. With nil tails the form assumes no knowledge of its readers.
// Operations without blocks or hashes are omitted, and d must be within the limits of an encoded
// Delta.
func AppendShort(dst []byte, x *indexer.Index, name block.Source, t *Tails, d *block.Delta) []byte {
	w := shortWriter{n: x.Named(name, t != nil), some: t != nil, t: t, d: d, dst: dst}
	defer w.n.Release()
	if t == nil {
		w.t = &Tails{}
	}
	for i := range d.Ops {
		switch op := &d.Ops[i]; {
		case op.Kind == block.OpClear:
			w.head(op, 0)
		case op.N == 0:
		case op.Kind == block.OpStore:
			w.store(i)
		default:
			w.list(op)
		}
	}
	return w.dst
}

func (w *shortWriter) head(op *block.Op, more byte) {
	h := byte(op.Kind) | more
	place := op.Tier != 0 || op.Group != 0
	if place {
		h |= shortPlace
	}
	if op.N == 1 && op.Kind != block.OpClear {
		h |= shortOne
	}
	w.dst = append(w.dst, h)
	if place {
		w.dst = append(w.dst, byte(op.Tier), op.Group)
	}
	if op.N != 1 && op.Kind != block.OpClear {
		w.dst = binary.AppendUvarint(w.dst, uint64(op.N))
	}
}

func (w *shortWriter) store(i int) {
	op := &w.d.Ops[i]
	blocks := w.d.Blocks[op.First : op.First+op.N]
	more := byte(0)
	if w.stores > 0 && blocks[0].Tokens == w.usual {
		more = shortUsual
	}
	w.parent(i, more)
	if w.usual = blocks[0].Tokens; more == 0 {
		w.dst = binary.AppendUvarint(w.dst, uint64(w.usual))
	}
	w.dst = appendBlockList(w.dst, blocks, w.usual)
	w.stores++
}

// parent writes the head of store i and its parent.
func (w *shortWriter) parent(i int, more byte) {
	op := &w.d.Ops[i]
	as := func(p shortParent) { w.head(op, more|byte(p)<<shortParentBit) }
	switch {
	case op.Root && w.haveRoot && w.root == op.From:
		as(parentRootAgain)
		return
	case op.Root:
		as(parentRoot)
		w.dst = binary.LittleEndian.AppendUint64(w.dst, uint64(op.From))
		w.root, w.haveRoot = op.From, true
		return
	}
	if n := w.tail(i); n > 0 {
		as(parentTail)
		w.dst = binary.AppendUvarint(w.dst, uint64(n))
		return
	}
	if name, ok := w.n.Short(op.Parent); ok && w.has(op) {
		as(parentName)
		w.dst = binary.LittleEndian.AppendUint32(w.dst, uint32(name))
		return
	}
	as(parentWhole)
	w.dst = binary.LittleEndian.AppendUint64(w.dst, uint64(op.From))
	w.dst = binary.LittleEndian.AppendUint64(w.dst, uint64(op.Parent))
}

// tail returns how many stores before store i its parent was stored, or 0.
func (w *shortWriter) tail(i int) int {
	op, n := &w.d.Ops[i], 0
	for j := i - 1; j >= max(0, i-tailReach); j-- {
		end, ok := endOf(w.d, j)
		if !ok {
			continue
		}
		if n++; end.Hash == op.Parent && end.Key == op.From {
			return n
		}
	}
	if back := w.t.find(op.Parent, tailReach-w.stores); back > 0 && w.has(op) {
		return w.stores + back
	}
	return 0
}

// endOf returns the last block of operation i, if it stores any.
func endOf(d *block.Delta, i int) (b *block.StoredBlock, ok bool) {
	op := &d.Ops[i]
	if op.Kind != block.OpStore || op.N == 0 {
		return nil, false
	}
	return &d.Blocks[op.First+op.N-1], true
}

// has reports whether the parent of op is known, and under no other key.
func (w *shortWriter) has(op *block.Op) bool {
	key, ok := w.n.Key(op.Parent)
	return ok && key == op.From
}

// short returns the short name of a hash, held or not.
func (w *shortWriter) short(h block.EngineHash) uint32 {
	name, _ := w.n.Short(h)
	return uint32(name)
}

// list writes a removal or move, as several operations if some hashes must be whole.
func (w *shortWriter) list(op *block.Op) {
	for at, end := op.First, op.First+op.N; at < end; {
		part := *op
		whole := !w.named(at)
		for part.N = 1; at+part.N < end && w.named(at+part.N) != whole; part.N++ {
		}
		if whole {
			w.head(&part, shortWhole)
		} else {
			w.head(&part, 0)
		}
		for _, h := range w.d.Hashes[at : at+part.N] {
			if whole {
				w.dst = binary.LittleEndian.AppendUint64(w.dst, uint64(h))
			} else {
				w.dst = binary.LittleEndian.AppendUint32(w.dst, w.short(h))
			}
		}
		at += part.N
	}
}

// named reports whether hash i of the delta can be encoded by its short name.
func (w *shortWriter) named(i uint32) bool {
	if w.some && i >= w.warm {
		w.warm = min(uint32(len(w.d.Hashes)), i+window)
		w.n.Ahead(w.d.Hashes[i:w.warm])
	}
	_, ok := w.n.Short(w.d.Hashes[i])
	return ok
}
