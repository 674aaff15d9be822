package indexer

import "github.com/grapevine-epp/grapevine/internal/varint"

// shortReader decodes one delta.
type shortReader struct {
	varint.Reader
	x *Index
	s *source // may be nil: nothing is held
	t *Tails
	d *Delta

	root     BlockKey
	haveRoot bool
	usual    uint32
	stores   int
	unsure   int
}

// DecodeShort reads an encoding of AppendShort into d, whose memory it reuses. It
// must be called before d is applied, with the tails of the deltas before it. What the
// writer held and this index does not is left out as Apply would leave it out:
// removals are dropped, and stores keep a parent that is not there. The same becomes of
// names that cannot be told, because tails are missing or several blocks have them, and
// unsure says how many: here is not what the writer held. Any input is safe, as for
// DecodeDelta. After an error d is empty.
func (x *Index) DecodeShort(b []byte, name Source, t *Tails, d *Delta) (unsure int, err error) {
	d.Reset()
	x.mu.Lock()
	defer x.mu.Unlock()
	r := shortReader{Reader: varint.Reader{B: b}, x: x, s: x.sources[name], t: t, d: d}
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
	op := Op{Kind: OpKind(head & headKind), N: 1}
	if head&shortPlace != 0 {
		op.Tier, op.Group = Tier(r.Byte()), r.Byte()
		if op.Tier >= NumTiers || op.Tier == 0 && op.Group == 0 {
			r.Fail(ErrCodecValue)
		}
	}
	rest := head >> shortParentBit
	switch op.Kind {
	case OpClear:
		if op.N = 0; head&^(headKind|shortPlace) != 0 {
			r.Fail(ErrCodecValue)
		}
		r.add(&op)
		return
	case OpStore:
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
	case op.Kind == OpStore:
		r.store(&op, head)
	default:
		r.list(&op, head&shortWhole != 0)
	}
}

func (r *shortReader) store(op *Op, head byte) {
	r.parent(op, shortParent(head>>shortParentBit&7))
	if head&shortUsual == 0 {
		r.usual = r.Uint32()
	} else if r.stores == 0 {
		r.Fail(ErrCodecValue)
	}
	op.First = uint32(len(r.d.Blocks))
	decodeBlockList(&r.Reader, r.d, op, r.usual)
	r.add(op)
	r.stores++
}

func (r *shortReader) add(op *Op) {
	if len(r.d.Ops) == MaxDeltaOps {
		r.Fail(ErrCodecLimit)
	}
	if r.Err == nil {
		r.d.Ops = append(r.d.Ops, *op)
	}
}

func (r *shortReader) parent(op *Op, p shortParent) {
	switch p {
	case parentRootAgain:
		if !r.haveRoot {
			r.Fail(ErrCodecValue)
		}
		op.Root, op.From = true, r.root
	case parentRoot:
		r.root, r.haveRoot = BlockKey(r.Fixed64()), true
		op.Root, op.From = true, r.root
	case parentTail:
		r.tail(op, r.Uint())
	case parentName:
		if e, is := r.byShort(shortName(r.Fixed32())); is == foundOne {
			op.Parent = e.hash
			op.From = r.key(e.hash)
		}
	case parentWhole:
		op.From, op.Parent = BlockKey(r.Fixed64()), EngineHash(r.Fixed64())
	default:
		r.Fail(ErrCodecValue)
	}
}

// tail makes what was stored n stores ago the parent of op.
func (r *shortReader) tail(op *Op, n uint64) {
	if n == 0 || n > tailReach {
		r.Fail(ErrCodecValue)
		return
	}
	for j := len(r.d.Ops) - 1; j >= 0; j-- {
		end, ok := endOf(r.d, j)
		if !ok {
			continue
		}
		if n--; n == 0 {
			op.From, op.Parent = end.Key, end.Hash
			return
		}
	}
	h, ok := r.t.back(int(n))
	if !ok {
		r.unsure++
		return
	}
	op.From, op.Parent = r.key(h), h
}

// key returns the key of a block that is held; zero, which is nobody's, when
// it is not.
func (r *shortReader) key(h EngineHash) BlockKey {
	if r.s == nil {
		return 0
	}
	key, _ := r.x.oneKey(r.s, h)
	return key
}

func (r *shortReader) byShort(n shortName) (*entry, found) {
	if r.s == nil {
		return nil, foundNone
	}
	e, is := r.s.names.byShort(n)
	if is == foundMany {
		r.unsure++
	}
	return e, is
}

func (r *shortReader) list(op *Op, whole bool) {
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

// names reads short names and appends the hashes that are held.
func (r *shortReader) names(n uint32) {
	var ahead [window]shortName
	for n > 0 && r.Err == nil {
		some := ahead[:min(n, window)]
		for i := range some {
			some[i] = shortName(r.Fixed32())
			if r.s != nil {
				r.x.sink += r.s.names.touchShort(some[i])
			}
		}
		for _, name := range some {
			if e, is := r.byShort(name); is == foundOne {
				r.d.Hashes = append(r.d.Hashes, e.hash)
			}
		}
		n -= uint32(len(some))
	}
}
