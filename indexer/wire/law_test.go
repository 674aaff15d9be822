package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// hardShort are short operations that are hard to read, and how many each text is.
func hardShort(t *Tails) map[string]struct {
	text string
	ops  int
} {
	list := string(make([]byte, minBlockSize))
	store := func(p shortParent, named string) string {
		return string([]byte{byte(block.OpStore) | shortOne | byte(p)<<shortParentBit}) + named + "\x00" + list
	}
	remove := func(group byte) string {
		return string([]byte{byte(block.OpRemove) | shortOne | shortPlace, 1, group}) + "1234"
	}
	cleared, far := string([]byte{byte(block.OpClear)}), string(binary.AppendUvarint(nil, tailReach))
	last, _ := t.back(1)
	return map[string]struct {
		text string
		ops  int
	}{
		"clears":                  {cleared, 1},
		"roots":                   {store(parentRoot, "12345678"), 1},
		"the tail before":         {store(parentTail, "\x01"), 1},
		"far tails":               {store(parentTail, far), 1},
		"far tails behind clears": {store(parentTail, far) + strings.Repeat(cleared, 32), 33},
		"names of nobody":         {store(parentName, "1234"), 1},
		"whole parents":           {store(parentWhole, string(binary.LittleEndian.AppendUint64([]byte("12345678"), uint64(last)))), 1},
		"removals":                {remove(1), 1},
		"removals elsewhere":      {remove(1) + remove(2), 2},
	}
}

// TestWorkOfShort: the work for a short delta is proportional to its length, for any distance of
// its parents and any operations in between.
func TestWorkOfShort(t *testing.T) {
	p, w := newShortPeer(), chains{rng: rand.New(rand.NewPCG(1, 1)), ends: make([]block.StoredBlock, 64)}
	for range 100 {
		p.apply(w.step(8, 1, false))
	}
	for name, unit := range hardShort(&p.t) {
		testkit.Linear(t, name, func(n int) func() {
			// Several messages, because each has a maximum of operations.
			text := testkit.Repeated(min(n, MaxDeltaOps/unit.ops*len(unit.text)), "", unit.text, "")
			var d block.Delta
			return func() {
				for left := n; left > 0; left -= max(len(text), 1) {
					if _, err := DecodeShort(text, p.x, block.Source{}, &p.t, &d); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		})
	}
}

// TestWorkOfDeltas: the same for any delta, or list of keys, without a shared state.
func TestWorkOfDeltas(t *testing.T) {
	version := string([]byte{deltaVersion})
	for name, text := range map[string][2]string{
		"clears":   {version, string([]byte{byte(block.OpClear)})},
		"removals": {version, string([]byte{byte(block.OpRemove) | headOne}) + "12345678"},
		"stores":   {version, string([]byte{byte(block.OpStore) | headOne}) + string(make([]byte, 17+minBlockSize))},
		"keys":     {"", string(binary.AppendUvarint(nil, 100)) + strings.Repeat("12345678", 100)},
		"zeros":    {"", "\x00"},
		"ones":     {"", "\x01"},
		"ends":     {"", "\xff"},
	} {
		testkit.Linear(t, name, func(n int) func() {
			b := testkit.Repeated(n, text[0], text[1], "")
			var d block.Delta
			return func() {
				_ = DecodeDelta(b, &d)          // read or refused
				for rest := b; len(rest) > 0; { // lists follow each other, or one is refused
					_, rest, _ = DecodeKeys(rest, nil)
				}
			}
		})
	}
}

// TestFarTails: among more stores than are remembered, with other operations between them,
// readers find the parents that the writer names.
func TestFarTails(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	p := newShortPeer()
	var ends []block.StoredBlock
	for range 4 {
		d := &block.Delta{}
		for range tailReach {
			for range rng.IntN(3) {
				d.Ops = append(d.Ops, block.Op{Kind: block.OpClear, Group: 1 + byte(rng.IntN(3))})
			}
			op := block.Op{Kind: block.OpStore, First: uint32(len(d.Blocks)), N: 1 + uint32(rng.IntN(2)), Root: len(ends) == 0}
			if n := len(ends); n > 0 {
				b := ends[max(0, n-1-rng.IntN(tailReach+100))]
				op.From, op.Parent = b.Key, b.Hash
			}
			for range op.N {
				d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(rng.Uint64()), Key: block.Key(rng.Uint64()), Tokens: 16})
			}
			d.Ops, ends = append(d.Ops, op), append(ends, d.Blocks[len(d.Blocks)-1])
		}
		var got block.Delta
		unsure, err := DecodeShort(AppendShort(nil, p.x, block.Source{}, &p.t, d), p.x, block.Source{}, &p.t, &got)
		if diff := diffDelta(&got, plainDelta(d)); unsure > 0 || err != nil || diff != "" {
			t.Fatalf("%d unsure, %v (-got +want)\n%s", unsure, err, diff)
		}
		p.apply(d)
	}
}
