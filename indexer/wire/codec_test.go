package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// drawDelta draws any delta that encoding preserves: unused fields are zero, and ranges follow each
// other.
func drawDelta(t *rapid.T) *block.Delta {
	d := &block.Delta{}
	key := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	var root, lastKey block.Key
	var lastHash block.EngineHash
	for range rapid.IntRange(0, 12).Draw(t, "ops") {
		op := block.Op{
			Kind:  block.OpKind(rapid.IntRange(0, 3).Draw(t, "kind")),
			Tier:  block.Tier(rapid.IntRange(0, int(block.NumTiers)-1).Draw(t, "tier")),
			Group: rapid.OneOf(rapid.Just(uint8(0)), rapid.Uint8()).Draw(t, "group"),
		}
		if op.Kind != block.OpClear {
			op.N = uint32(rapid.IntRange(0, 5).Draw(t, "n"))
		}
		switch op.Kind {
		case block.OpRemove, block.OpMove:
			op.First = uint32(len(d.Hashes))
			for range op.N {
				d.Hashes = append(d.Hashes, block.EngineHash(key("hash")))
			}
		case block.OpStore:
			op.Root = rapid.Bool().Draw(t, "root")
			again := rapid.Bool().Draw(t, "again")
			otherName := rapid.Bool().Draw(t, "other name")
			switch {
			case again && op.Root:
				op.From = root
			case again && otherName: // a block that the engine has under two names
				op.From, op.Parent = lastKey, block.EngineHash(key("parent"))
			case again:
				op.From, op.Parent = lastKey, lastHash
			case op.Root:
				op.From = block.Key(key("from"))
			default:
				op.From, op.Parent = block.Key(key("from")), block.EngineHash(key("parent"))
			}
			if op.Root {
				root = op.From
			}
			op.First = uint32(len(d.Blocks))
			for range op.N {
				b := drawBlock(t)
				d.Blocks = append(d.Blocks, b)
				lastKey, lastHash = b.Key, b.Hash
			}
		}
		d.Ops = append(d.Ops, op)
	}
	return d
}

func drawBlock(t *rapid.T) block.StoredBlock {
	b := block.StoredBlock{
		Hash:   block.EngineHash(rapid.Uint64().Draw(t, "hash")),
		Key:    block.Key(rapid.Uint64().Draw(t, "key")),
		Bytes:  rapid.OneOf(rapid.Just(uint32(64)), rapid.Uint32()).Draw(t, "bytes"),
		Tokens: rapid.OneOf(rapid.Just(uint32(16)), rapid.Uint32()).Draw(t, "tokens"),
	}
	if rapid.Bool().Draw(t, "flagged") {
		b.Flags = block.Flags(rapid.Uint8().Draw(t, "flags"))
	}
	return b
}

func diffDelta(got, want *block.Delta) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

func TestDeltaRoundTrip(t *testing.T) {
	var got block.Delta
	rapid.Check(t, func(t *rapid.T) {
		want := drawDelta(t)
		enc := AppendDelta([]byte("before"), want)
		if string(enc[:6]) != "before" {
			t.Fatal("what stood before is gone")
		}
		if err := DecodeDelta(enc[6:], &got); err != nil {
			t.Fatal(err)
		}
		if diff := diffDelta(&got, want); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

// Every proper prefix of an encoding that ends inside an operation is refused,
// and leaves nothing behind.
func TestDeltaCutShort(t *testing.T) {
	d := steadyDelta(rand.New(rand.NewPCG(1, 1)), 1, 4)
	d.Ops = d.Ops[:1]
	enc := AppendDelta(nil, d)
	var got block.Delta
	for n := 2; n < len(enc); n++ {
		if err := DecodeDelta(enc[:n], &got); !errors.Is(err, ErrCodecShort) {
			t.Errorf("%d of %d bytes: %v", n, len(enc), err)
		}
		if len(got.Ops)+len(got.Blocks)+len(got.Hashes) != 0 {
			t.Errorf("%d of %d bytes: something is left", n, len(enc))
		}
	}
}

func TestDeltaRefused(t *testing.T) {
	huge := binary.AppendUvarint([]byte{deltaVersion, byte(block.OpRemove)}, math.MaxUint32)
	tooBig := binary.AppendUvarint([]byte{deltaVersion, byte(block.OpRemove)}, 1<<40)
	many := []byte{deltaVersion}
	for range MaxDeltaOps + 1 {
		many = append(many, byte(block.OpClear))
	}
	short := append(binary.AppendUvarint([]byte{deltaVersion, byte(block.OpStore) | headRoot}, 1<<17), make([]byte, 64)...)
	over := []byte{deltaVersion, byte(block.OpStore) | headRoot | headOne}
	over = append(over, make([]byte, 8)...) // From
	over = append(over, 0)                  // tokens
	over = append(over, make([]byte, 16)...)
	negative := append(over[:len(over):len(over)], 1<<1) // zigzag -1
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"empty", nil, ErrCodecVersion},
		{"other version", []byte{deltaVersion + 1}, ErrCodecVersion},
		{"more hashes than the limit", huge, ErrCodecLimit},
		{"count over 32 bits", tooBig, ErrCodecValue},
		{"more operations than the limit", many, ErrCodecLimit},
		{"more blocks than bytes", short, ErrCodecShort},
		{"nothing to continue", []byte{deltaVersion, headAgain | headOne}, ErrCodecValue},
		{"no root to repeat", []byte{deltaVersion, headAgain | headRoot | headOne}, ErrCodecValue},
		{"removal below a root", []byte{deltaVersion, byte(block.OpRemove) | headRoot}, ErrCodecValue},
		{"clear of one", []byte{deltaVersion, byte(block.OpClear) | headOne}, ErrCodecValue},
		{"group 0 spelled out", []byte{deltaVersion, byte(block.OpClear) | headGroup, 0}, ErrCodecValue},
		{"negative length", negative, ErrCodecValue},
	} {
		var d block.Delta
		if err := DecodeDelta(c.in, &d); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// steadyDelta returns a delta as a full cache publishes it: stores of several blocks, text lengths
// around four bytes per token, and as many removals, one by one.
func steadyDelta(rng *rand.Rand, stores, blocks int) *block.Delta {
	d := &block.Delta{}
	for range stores {
		op := block.Op{Kind: block.OpStore, N: uint32(blocks), First: uint32(len(d.Blocks)), From: block.Key(rng.Uint64()), Parent: block.EngineHash(rng.Uint64())}
		d.Ops = append(d.Ops, op)
		for range blocks {
			length := uint32(min(max(64+rng.NormFloat64()*10, 16), 200))
			d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(rng.Uint64()), Key: block.Key(rng.Uint64()), Bytes: length, Tokens: 16})
		}
		for range blocks {
			d.Ops = append(d.Ops, block.Op{Kind: block.OpRemove, N: 1, First: uint32(len(d.Hashes))})
			d.Hashes = append(d.Hashes, block.EngineHash(rng.Uint64()))
		}
	}
	return d
}

func TestDeltaSize(t *testing.T) {
	for _, c := range []struct {
		blocks int
		most   float64 // bytes for each block stored or removed
	}{{8, 15}, {32, 14}, {128, 13.5}} {
		d := steadyDelta(rand.New(rand.NewPCG(4, 2)), 64, c.blocks)
		perChange := float64(len(AppendDelta(nil, d))) / float64(len(d.Blocks)+len(d.Hashes))
		t.Logf("stores of %d blocks: %.2f bytes for each change", c.blocks, perChange)
		if perChange > c.most {
			t.Errorf("stores of %d blocks: %.2f bytes for each change, at most %.1f wanted", c.blocks, perChange, c.most)
		}
	}
}

// A decoding engine stores one block at a time, each below the one before: the
// parent is not sent again.
func TestDeltaContinues(t *testing.T) {
	var d block.Delta
	for i := range 4 {
		op := block.Op{Kind: block.OpStore, N: 1, First: uint32(i), Root: i == 0, From: 100, Parent: 0}
		if i > 0 {
			op.From, op.Parent = d.Blocks[i-1].Key, d.Blocks[i-1].Hash
		}
		d.Ops = append(d.Ops, op)
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(i + 1), Key: block.Key(i + 101), Bytes: 64, Tokens: 16})
	}
	// Version, root key, then head, tokens, hash, key and length for each.
	if got, want := len(AppendDelta(nil, &d)), 1+8+4*(1+1+8+8+1); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

func TestDeltaAllocations(t *testing.T) {
	d := steadyDelta(rand.New(rand.NewPCG(4, 2)), 16, 16)
	buf := AppendDelta(nil, d)
	var got block.Delta
	if err := DecodeDelta(buf, &got); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { buf = AppendDelta(buf[:0], d) }); n != 0 {
		t.Errorf("AppendDelta: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = DecodeDelta(buf, &got) }); n != 0 {
		t.Errorf("DecodeDelta: %v allocations", n)
	}
}

func FuzzDecodeDelta(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{deltaVersion})
	f.Add(AppendDelta(nil, steadyDelta(rand.New(rand.NewPCG(1, 1)), 2, 3)))
	f.Add(AppendDelta(nil, &block.Delta{Ops: []block.Op{{Kind: block.OpClear, Tier: block.TierCPU, Group: 3}, {Kind: block.OpMove, N: 2}}, Hashes: []block.EngineHash{1, 2}}))
	f.Add(binary.AppendUvarint([]byte{deltaVersion, byte(block.OpRemove)}, math.MaxUint32))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, in []byte) {
		var d, again block.Delta
		if err := DecodeDelta(in, &d); err != nil {
			return
		}
		if len(d.Blocks)*minBlockSize+len(d.Hashes)*8+len(d.Ops) > len(in) {
			t.Fatalf("%d bytes made %d ops, %d blocks, %d hashes", len(in), len(d.Ops), len(d.Blocks), len(d.Hashes))
		}
		if err := DecodeDelta(AppendDelta(nil, &d), &again); err != nil {
			t.Fatal(err)
		}
		if diff := diffDelta(&again, &d); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	d := steadyDelta(rand.New(rand.NewPCG(4, 2)), 8, 16)
	buf := AppendDelta(nil, d)
	b.Run("append", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			buf = AppendDelta(buf[:0], d)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			if err := DecodeDelta(buf, d); err != nil {
				b.Fatal(err)
			}
		}
	})
}
