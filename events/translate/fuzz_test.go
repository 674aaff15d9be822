package translate

import (
	"math/bits"
	"testing"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/eventtest"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzTranslate passes arbitrary batches through decoder, translator and index. Nothing panics,
// deltas are well formed, and the translator's state is bounded.
func FuzzTranslate(f *testing.F) {
	for _, c := range eventtest.Load(f).Payloads {
		f.Add(eventtest.Unhex(f, c.Hex), eventtest.Unhex(f, c.Hex), uint8(16))
	}
	f.Add(eventtest.StorePayload(3, 2), []byte("\x93\x01\x91\x91\xb0AllBlocksCleared\x00"), uint8(1))
	sweep.Fuzz(f, sweep.Slow/4, func(t *testing.T, first, second []byte, unit uint8) {
		r := newRig(Options{Vocabulary: letters{}, Canonical: func(_ []byte, ids []uint32, text []byte) bool {
			return len(text)%2 == len(ids)%2
		}, Unit: int(unit % 20), ParkBlocks: 64, ParkBytes: 4096})
		var b decode.Batch
		for _, payload := range [][]byte{first, second, first} {
			var d block.Delta
			_ = b.Decode(payload) // events decoded before an error count
			r.tr.Translate(&b, &d)
			checkDelta(t, &d)
			r.index.Apply(testSource, &d)
		}
		p := &r.tr.park
		if p.blocks > 64 || p.bytes > 4096 || p.blocks < 0 || p.bytes < 0 || len(p.byHash) > 64 {
			t.Fatalf("%d blocks, %d bytes parked", p.blocks, p.bytes)
		}
		if len(r.tr.groups.list) > maxGroups {
			t.Fatalf("%d groups", len(r.tr.groups.list))
		}
		pieces := 0
		for _, g := range r.tr.groups.list {
			if g.pieces != nil {
				pieces += len(g.pieces.at)
				for _, b := range g.pieces.blocks {
					pieces += bits.OnesCount64(b.known)
				}
			}
		}
		if r.tr.pieced != pieces {
			t.Fatalf("%d pieces and places, not %d", pieces, r.tr.pieced)
		}
		var d block.Delta
		r.tr.Clear(&d)
		r.index.Apply(testSource, &d)
		if n, _ := r.index.Digest(testSource); n != 0 {
			t.Fatalf("%d blocks after a clear", n)
		}
	})
}

func checkDelta(t *testing.T, d *block.Delta) {
	t.Helper()
	for _, op := range d.Ops {
		n := len(d.Hashes)
		if op.Kind == block.OpStore {
			n = len(d.Blocks)
		}
		if op.Kind != block.OpClear && (op.N == 0 || int(op.First)+int(op.N) > n) {
			t.Fatalf("operation %+v on %d items", op, n)
		}
		if op.Tier >= block.NumTiers {
			t.Fatalf("tier %d", op.Tier)
		}
	}
	for _, b := range d.Blocks {
		if b.Tokens == 0 { // a block within a medium has no text
			t.Fatalf("empty block %+v", b)
		}
	}
}

// TestManyGroups: a million cache groups cost a counter.
func TestManyGroups(t *testing.T) {
	r := newRig(Options{})
	for i := range int32(1_000_000) {
		e := decode.Event{Kind: decode.BlockStored, Group: i, SpecKind: []byte("full_attention"), BlockSize: 16,
			Hashes: []block.EngineHash{1}, Tokens: make([]uint32, 16)}
		var d block.Delta
		if i < 300 || i > 999_990 {
			r.tr.Translate(&decode.Batch{Events: []decode.Event{e}}, &d)
		} else {
			r.tr.groups.of(&e)
		}
	}
	if len(r.tr.groups.list) != maxGroups {
		t.Errorf("%d groups", len(r.tr.groups.list))
	}
}

// TestParkIsBounded: a stream of stores whose parents never arrive keeps the newest and counts the
// others.
func TestParkIsBounded(t *testing.T) {
	r := newRig(Options{Unit: 1, ParkBlocks: 100})
	for i := range 10_000 {
		r.apply(decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: 1, HasParent: true, Parent: block.EngineHash(3*i + 1),
			Hashes: []block.EngineHash{block.EngineHash(3*i + 2)}, Tokens: []uint32{uint32(i)}})
	}
	p, s := &r.tr.park, r.tr.Stats()
	if p.blocks != 100 || len(p.byHash) != 100 || len(p.byParent) != 100 || len(p.oldest) > 300 {
		t.Errorf("%d blocks, %d hashes, %d parents, %d in order", p.blocks, len(p.byHash), len(p.byParent), len(p.oldest))
	}
	if s.Parked != 10_000 || s.Lost != 9_900 {
		t.Errorf("%+v", s)
	}
}
