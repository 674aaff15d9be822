package wire

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/varint"

	"github.com/grapevine-epp/grapevine/indexer"
)

// shortReader decodes one delta.
type shortReader struct {
	varint.Reader
	n indexer.Named
	t *Tails
	d *block.Delta

	root     block.Key
	haveRoot bool
	usual    uint32
	stores   int
	ends     [tailReach]uint32 // last blocks of the latest stores, a ring of indexes in d.Blocks
	unsure   int
}

// DecodeShort decodes an encoding of AppendShort into d, whose memory it reuses. Call it before d
// is applied, with the tails of the previous deltas. Blocks that the writer held and this index
// does not are skipped, as Apply would: removals are dropped, and stores keep an unknown parent.
//
// Names that cannot be resolved, because tails are missing or several blocks have the name, are
// skipped in the same way. unsure is their number, and means that this index differs from the
// writer's. Any input is safe, as for DecodeDelta. After an error d is empty.
func DecodeShort(b []byte, x *indexer.Index, name block.Source, t *Tails, d *block.Delta) (unsure int, err error) {
	d.Reset()
	r := shortReader{Reader: varint.Reader{B: b}, n: x.Named(name, true), t: t, d: d}
	defer r.n.Release()
	for len(r.B) > 0 && r.Err == nil {
		r.op()
	}
	if r.Err != nil {
		d.Reset()
		return 0, r.Err
	}
	return r.unsure, nil
}

func (r *shortReader) op() {
	head := r.Byte()
	op := block.Op{Kind: block.OpKind(head & headKind), N: 1}
	if head&shortPlace != 0 {
		op.Tier, op.Group = block.Tier(r.Byte()), r.Byte()
		if op.Tier >= block.NumTiers || op.Tier == 0 && op.Group == 0 {
			r.Fail(ErrCodecValue)
		}
	}
	rest := head >> shortParentBit
	switch op.Kind {
	case block.OpClear:
		if op.N = 0; head&^(headKind|shortPlace) != 0 {
			r.Fail(ErrCodecValue)
		}
		r.add(&op)
		return
	case block.OpStore:
		rest = 0
	}
	if head&shortOne == 0 {
		if op.N = r.Uint32(); op.N < 2 {
			r.Fail(ErrCodecValue)
		}
	}
	switch {
	case rest > 1:
		r.Fail(ErrCodecValue)
	case op.Kind == block.OpStore:
		r.store(&op, head)
	default:
		r.list(&op, head&shortWhole != 0)
	}
}

func (r *shortReader) store(op *block.Op, head byte) {
	r.parent(op, shortParent(head>>shortParentBit&7))
	if head&shortUsual == 0 {
		r.usual = r.Uint32()
	} else if r.stores == 0 {
		r.Fail(ErrCodecValue)
	}
	op.First = uint32(len(r.d.Blocks))
	decodeBlockList(&r.Reader, r.d, op, r.usual)
	r.add(op)
	if r.Err == nil {
		r.ends[r.stores%tailReach] = op.First + op.N - 1
		r.stores++
	}
}

func (r *shortReader) add(op *block.Op) {
	if len(r.d.Ops) == MaxDeltaOps {
		r.Fail(ErrCodecLimit)
	}
	if r.Err == nil {
		r.d.Ops = append(r.d.Ops, *op)
	}
}

func (r *shortReader) parent(op *block.Op, p shortParent) {
	switch p {
	case parentRootAgain:
		if !r.haveRoot {
			r.Fail(ErrCodecValue)
		}
		op.Root, op.From = true, r.root
	case parentRoot:
		r.root, r.haveRoot = block.Key(r.Fixed64()), true
		op.Root, op.From = true, r.root
	case parentTail:
		r.tail(op, r.Uint())
	case parentName:
		if h, ok := r.byShort(indexer.ShortName(r.Fixed32())); ok {
			op.Parent = h
			op.From = r.key(h)
		}
	case parentWhole:
		op.From, op.Parent = block.Key(r.Fixed64()), block.EngineHash(r.Fixed64())
	default:
		r.Fail(ErrCodecValue)
	}
}

// tail sets the parent of op to the last block of the n-th previous store.
func (r *shortReader) tail(op *block.Op, n uint64) {
	if n == 0 || n > tailReach {
		r.Fail(ErrCodecValue)
		return
	}
	if here := uint64(r.stores); n <= here {
		end := &r.d.Blocks[r.ends[(here-n)%tailReach]]
		op.From, op.Parent = end.Key, end.Hash
		return
	}
	h, ok := r.t.back(int(n) - r.stores)
	if !ok {
		r.unsure++
		return
	}
	op.From, op.Parent = r.key(h), h
}

// key returns the key of a held block, 0 if it is not held.
func (r *shortReader) key(h block.EngineHash) block.Key {
	key, _ := r.n.Key(h)
	return key
}

func (r *shortReader) byShort(n indexer.ShortName) (block.EngineHash, bool) {
	h, one, many := r.n.ByShort(n)
	if many {
		r.unsure++
	}
	return h, one
}

func (r *shortReader) list(op *block.Op, whole bool) {
	if whole {
		decodeHashes(&r.Reader, r.d, op)
	} else if placeHashes(&r.Reader, r.d, op, shortBytes) {
		r.names(op.N)
	}
	if op.N = uint32(len(r.d.Hashes)) - op.First; op.N == 0 || r.Err != nil {
		return
	}
	if n := len(r.d.Ops); n > 0 {
		last := &r.d.Ops[n-1]
		if last.Kind == op.Kind && last.Tier == op.Tier && last.Group == op.Group {
			last.N += op.N
			return
		}
	}
	r.add(op)
}

// names reads short names and appends the hashes that the index has.
func (r *shortReader) names(n uint32) {
	var ahead [window]indexer.ShortName
	for n > 0 && r.Err == nil {
		some := ahead[:min(n, window)]
		for i := range some {
			some[i] = indexer.ShortName(r.Fixed32())
			r.n.AheadShort(some[i])
		}
		for _, name := range some {
			if h, ok := r.byShort(name); ok {
				r.d.Hashes = append(r.d.Hashes, h)
			}
		}
		n -= uint32(len(some))
	}
}
