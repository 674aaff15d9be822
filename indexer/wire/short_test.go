package wire

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// sameName are hashes in pairs of one short name each.
var sameName = func() (out []block.EngineHash) {
	rng, first := rand.New(rand.NewPCG(3, 3)), map[names.Short]block.EngineHash{}
	for range 1 << 18 {
		h := block.EngineHash(rng.Uint64())
		if other, twice := first[names.ShortOf(uint64(h))]; twice {
			out = append(out, other, h)
		}
		first[names.ShortOf(uint64(h))] = h
	}
	return out
}()

// plainDelta returns d as AppendShort encodes it: without empty operations, and with one removal
// for several in a row.
func plainDelta(d *block.Delta) *block.Delta {
	p := &block.Delta{}
	for _, op := range d.Ops {
		switch {
		case op.Kind == block.OpClear:
			op = block.Op{Kind: block.OpClear, Tier: op.Tier, Group: op.Group}
		case op.N == 0:
			continue
		case op.Kind == block.OpStore:
			blocks := d.Blocks[op.First : op.First+op.N]
			op.First = uint32(len(p.Blocks))
			p.Blocks = append(p.Blocks, blocks...)
		default:
			hashes := d.Hashes[op.First : op.First+op.N]
			op.First = uint32(len(p.Hashes))
			p.Hashes = append(p.Hashes, hashes...)
			if n := len(p.Ops); n > 0 && p.Ops[n-1].Kind == op.Kind && p.Ops[n-1].Tier == op.Tier && p.Ops[n-1].Group == op.Group {
				p.Ops[n-1].N += op.N
				continue
			}
		}
		p.Ops = append(p.Ops, op)
	}
	return p
}

// drawChange draws a delta about few blocks, so that its parents and removals are often known
// blocks, blocks of the same delta, or missing ones.
func drawChange(t *rapid.T) *block.Delta {
	d := &block.Delta{}
	pick := func(name string) block.EngineHash {
		i := rapid.IntRange(0, 39).Draw(t, name)
		if i < len(sameName) && i < 6 {
			return sameName[i]
		}
		return block.EngineHash(i + 1)
	}
	key := func(h block.EngineHash, name string) block.Key { // nearly always the one key of a hash
		return block.Key(h)*2 + 1 + block.Key(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 1}).Draw(t, name))
	}
	for range rapid.IntRange(0, 6).Draw(t, "ops") {
		op := block.Op{Kind: rapid.SampledFrom([]block.OpKind{block.OpStore, block.OpStore, block.OpStore, block.OpRemove, block.OpRemove, block.OpMove, block.OpClear}).Draw(t, "kind")}
		if rapid.IntRange(0, 3).Draw(t, "placed") == 0 {
			op.Tier, op.Group = block.Tier(rapid.IntRange(0, int(block.NumTiers)-1).Draw(t, "tier")), uint8(rapid.IntRange(0, 2).Draw(t, "group"))
		}
		if op.Kind != block.OpClear {
			op.N = uint32(rapid.IntRange(0, 3).Draw(t, "n"))
		}
		switch op.Kind {
		case block.OpStore:
			op.First = uint32(len(d.Blocks))
			if op.Root = rapid.IntRange(0, 3).Draw(t, "root") == 0; op.Root {
				op.From = block.Key(rapid.IntRange(900, 902).Draw(t, "from"))
			} else {
				op.Parent = pick("parent")
				op.From = key(op.Parent, "parent key")
			}
			for range op.N {
				h := pick("hash")
				b := block.StoredBlock{Hash: h, Key: key(h, "key"), Bytes: uint32(rapid.IntRange(50, 120).Draw(t, "bytes")), Tokens: uint32(rapid.SampledFrom([]int{16, 16, 16, 5}).Draw(t, "tokens"))}
				d.Blocks = append(d.Blocks, b)
			}
		case block.OpRemove, block.OpMove:
			op.First = uint32(len(d.Hashes))
			for range op.N {
				d.Hashes = append(d.Hashes, pick("gone"))
			}
		}
		d.Ops = append(d.Ops, op)
	}
	return d
}

// shortPeer is one end of a log of deltas.
type shortPeer struct {
	x *indexer.Index
	t Tails
}

func newShortPeer() *shortPeer { return &shortPeer{x: indexer.New(indexer.Options{})} }

func (p *shortPeer) apply(d *block.Delta) {
	p.x.Apply(block.Source{}, d)
	p.t.Note(d)
}

func (p *shortPeer) digest() [2]uint64 {
	n, xor := p.x.Digest(block.Source{})
	return [2]uint64{n, xor}
}

// The short form decodes to the same delta at any reader that applied the previous ones.
func TestShortRoundTrip(t *testing.T) {
	var got block.Delta
	rapid.Check(t, func(t *rapid.T) {
		a, b := newShortPeer(), newShortPeer()
		for range rapid.IntRange(1, 8).Draw(t, "deltas") {
			d := drawChange(t)
			enc := AppendShort([]byte("before"), a.x, block.Source{}, &a.t, d)
			if string(enc[:6]) != "before" {
				t.Fatal("what stood before is gone")
			}
			if n, err := DecodeShort(enc[6:], b.x, block.Source{}, &b.t, &got); err != nil || n > 0 {
				t.Fatal(n, err)
			}
			want := plainDelta(d)
			if diff := diffDelta(&got, want); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
			a.apply(d)
			b.apply(&got)
			if a.digest() != b.digest() {
				t.Fatalf("content %v, want %v", b.digest(), a.digest())
			}
		}
	})
}

// A form without references decodes to the same delta at readers with and without the earlier
// state.
func TestShortAlone(t *testing.T) {
	var got block.Delta
	rapid.Check(t, func(t *rapid.T) {
		a, b := newShortPeer(), newShortPeer()
		a.apply(drawChange(t))
		d := drawChange(t)
		enc := AppendShort(nil, a.x, block.Source{}, nil, d)
		for _, p := range []*shortPeer{a, b} {
			if n, err := DecodeShort(enc, p.x, block.Source{}, &p.t, &got); err != nil || n > 0 {
				t.Fatal(n, err)
			}
			if diff := diffDelta(&got, plainDelta(d)); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
		}
	})
}

// chains writes deltas as decoding engines do: each has one block of each of n sequences, and as
// many removals of the oldest.
type chains struct {
	rng  *rand.Rand
	ends []block.StoredBlock
	held []block.EngineHash
}

func (c *chains) step(stores, blocks int, full bool) *block.Delta {
	d := &block.Delta{}
	for range stores {
		op := block.Op{Kind: block.OpStore, First: uint32(len(d.Blocks)), N: uint32(blocks), Root: true, From: 77}
		i := c.rng.IntN(len(c.ends))
		if end := c.ends[i]; end.Hash != 0 {
			op.Root, op.From, op.Parent = false, end.Key, end.Hash
		}
		for range blocks {
			b := block.StoredBlock{Hash: block.EngineHash(c.rng.Uint64()), Key: block.Key(c.rng.Uint64()), Bytes: 64, Tokens: 16}
			d.Blocks = append(d.Blocks, b)
			c.held, c.ends[i] = append(c.held, b.Hash), b
		}
		d.Ops = append(d.Ops, op)
	}
	if n := stores * blocks; full {
		d.Ops = append(d.Ops, block.Op{Kind: block.OpRemove, N: uint32(n)})
		d.Hashes = append(d.Hashes, c.held[:n]...)
		c.held = c.held[n:]
	}
	return d
}

// The size of a change: blocks one by one, and in long stores.
func TestShortSize(t *testing.T) {
	for _, c := range []struct {
		name           string
		stores, blocks int
		most           float64
	}{{"steps", 8, 1, 11.8}, {"prompts", 1, 25, 10.8}} {
		p, w := newShortPeer(), chains{rng: rand.New(rand.NewPCG(1, 1)), ends: make([]block.StoredBlock, 64)}
		for len(w.held) < 20_000 {
			p.apply(w.step(c.stores, c.blocks, false))
		}
		size, long, changes := 0, 0, 0
		for range 500 {
			d := w.step(c.stores, c.blocks, true)
			size += len(AppendShort(nil, p.x, block.Source{}, &p.t, d))
			long += len(AppendDelta(nil, d))
			changes += len(d.Blocks) + len(d.Hashes)
			p.apply(d)
		}
		per := float64(size) / float64(changes)
		t.Logf("%s: %.2f bytes for each change, long form %.2f", c.name, per, float64(long)/float64(changes))
		if per > c.most {
			t.Errorf("%s: %.2f bytes for each change, at most %.1f wanted", c.name, per, c.most)
		}
	}
}

// A reader without the required state reports that, and skips the same blocks as Apply.
func TestShortPayloadWithoutState(t *testing.T) {
	stored := func(h block.EngineHash) block.StoredBlock {
		return block.StoredBlock{Hash: h, Key: block.Key(h), Bytes: 64, Tokens: 16}
	}
	store := func(parent block.EngineHash, h block.EngineHash) *block.Delta {
		op := block.Op{Kind: block.OpStore, N: 1, From: block.Key(parent), Parent: parent, Root: parent == 0}
		return &block.Delta{Ops: []block.Op{op}, Blocks: []block.StoredBlock{stored(h)}}
	}
	remove := func(h block.EngineHash) *block.Delta {
		return &block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: 1}}, Hashes: []block.EngineHash{h}}
	}
	one, other := sameName[0], sameName[1]
	for name, c := range map[string]struct {
		wrote, read []*block.Delta // before
		d           *block.Delta
		unsure      int
		want        indexer.ApplyStats
	}{
		"parent beyond the tails": {wrote: []*block.Delta{store(0, 5)}, d: store(5, 6), unsure: 1, want: indexer.ApplyStats{UnknownParent: 1}},
		"parent is gone":          {wrote: []*block.Delta{store(0, 5)}, read: []*block.Delta{store(0, 5), remove(5)}, d: store(5, 6), want: indexer.ApplyStats{UnknownParent: 1}},
		"two of one name":         {wrote: []*block.Delta{store(0, one)}, read: []*block.Delta{store(0, one), store(0, other)}, d: remove(one), unsure: 1},
		"not held":                {wrote: []*block.Delta{store(0, 5)}, d: remove(5)},
		"told in full":            {wrote: []*block.Delta{store(0, one), store(0, other)}, read: []*block.Delta{store(0, one)}, d: remove(one), want: indexer.ApplyStats{Removed: 1}},
	} {
		a, b := newShortPeer(), newShortPeer()
		for _, d := range c.wrote {
			a.apply(d)
		}
		for _, d := range c.read {
			b.apply(d)
		}
		var got block.Delta
		n, err := DecodeShort(AppendShort(nil, a.x, block.Source{}, &a.t, c.d), b.x, block.Source{}, &b.t, &got)
		if n != c.unsure || err != nil {
			t.Errorf("%s: %d unsure, %v, want %d", name, n, err, c.unsure)
		} else if st := b.x.Apply(block.Source{}, &got); st != c.want {
			t.Errorf("%s: %+v, want %+v", name, st, c.want)
		}
	}
}

// Tails built from a page and the deltas after it equal the tails of a reader of all deltas.
func TestTails(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	var all, late Tails
	delta := func() *block.Delta {
		d := &block.Delta{}
		for range 1 + rng.IntN(40) {
			d.Ops = append(d.Ops, block.Op{Kind: block.OpStore, First: uint32(len(d.Blocks)), N: 1})
			d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(rng.Uint64())})
		}
		return d
	}
	for i := range 200 {
		d := delta()
		all.Note(d)
		if i%30 == 0 {
			var page block.Delta
			if err := DecodeDelta(all.AppendPage(nil), &page); err != nil || !late.Take(&page) {
				t.Fatalf("page: %v", err)
			}
			if st := indexer.New(indexer.Options{}).Apply(block.Source{}, &page); st.Stored+st.Removed+st.UnknownParent+st.Refused > 0 {
				t.Fatalf("the page changes a source that holds nothing: %+v", st)
			}
		} else {
			late.Note(d)
		}
		for n := 1; n <= tailReach+1; n++ {
			h, ok := all.back(n)
			g, ok2 := late.back(n)
			if h != g || ok != ok2 {
				t.Fatalf("after %d deltas, %d back: %x, want %x", i+1, n, g, h)
			}
			if ok && (all.find(h, tailReach) != n || all.find(h, n-1) != 0) {
				t.Fatalf("%d back is found at %d", n, all.find(h, tailReach))
			}
		}
	}
}

func TestShortAllocations(t *testing.T) {
	p, w := newShortPeer(), chains{rng: rand.New(rand.NewPCG(1, 1)), ends: make([]block.StoredBlock, 64)}
	for range 200 {
		p.apply(w.step(8, 1, false))
	}
	d := w.step(8, 1, true)
	buf, got := AppendShort(nil, p.x, block.Source{}, &p.t, d), block.Delta{}
	if _, err := DecodeShort(buf, p.x, block.Source{}, &p.t, &got); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { buf = AppendShort(buf[:0], p.x, block.Source{}, &p.t, d) }); n != 0 {
		t.Errorf("AppendShort: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = DecodeShort(buf, p.x, block.Source{}, &p.t, &got) }); n != 0 {
		t.Errorf("DecodeShort: %v allocations", n)
	}
}

func FuzzDecodeShort(f *testing.F) {
	p, w := newShortPeer(), chains{rng: rand.New(rand.NewPCG(1, 1)), ends: make([]block.StoredBlock, 8)}
	f.Add([]byte{})
	f.Add([]byte{byte(block.OpRemove), 2, 1, 2, 3})
	for range 50 {
		p.apply(w.step(3, 2, false))
	}
	d := w.step(3, 2, true)
	f.Add(AppendShort(nil, p.x, block.Source{}, &p.t, d))
	f.Add(AppendShort(nil, p.x, block.Source{}, nil, d))
	f.Add(AppendShort(nil, p.x, block.Source{}, &p.t, &block.Delta{
		Ops:    []block.Op{{Kind: block.OpClear, Group: 3}, {Kind: block.OpMove, Tier: 1, N: 2}, {Kind: block.OpRemove, N: 1, First: 1}},
		Hashes: []block.EngineHash{d.Hashes[0], 9},
	}))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, in []byte) {
		var d, again block.Delta
		if _, err := DecodeShort(in, p.x, block.Source{}, &p.t, &d); err != nil {
			return
		}
		if len(d.Blocks)*minBlockSize+len(d.Hashes)*shortBytes+len(d.Ops) > len(in) {
			t.Fatalf("%d bytes made %d ops, %d blocks, %d hashes", len(in), len(d.Ops), len(d.Blocks), len(d.Hashes))
		}
		if _, err := DecodeShort(AppendShort(nil, p.x, block.Source{}, &p.t, &d), p.x, block.Source{}, &p.t, &again); err != nil {
			t.Fatal(err)
		}
		if diff := diffDelta(&again, plainDelta(&d)); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}
