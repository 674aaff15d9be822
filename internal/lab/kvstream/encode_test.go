package kvstream

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

const (
	h0 = engine.Hash(12687895063098490012)
	h1 = engine.Hash(1814341696565857452)
	h2 = engine.Hash(2713165534665270607)
)

func tokens(from, to uint32) (out []uint32) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// TestVectors compares with payloads that a msgpack library encoded with vLLM's structs.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/payloads.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Name, Hex string }
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	removed := func(h engine.Hash) engine.Event { return engine.Event{Kind: engine.Removed, Hash: h} }
	cleared := engine.Event{Kind: engine.Cleared}
	first := engine.Event{Kind: engine.Stored, Hashes: []engine.Hash{h0}, Tokens: tokens(0, 16)}
	pair := func(tag *engine.Tag) engine.Event {
		return engine.Event{Kind: engine.Stored, Hashes: []engine.Hash{h0, h1}, Tokens: tokens(0, 32), Tag: tag}
	}
	cases := map[string]struct {
		format Format
		rank   int
		events []engine.Event
	}{
		"vllm_a0": {FormatArray0, 0, []engine.Event{pair(nil), removed(h0), cleared}},
		"vllm_a1": {FormatArray1, 3, []engine.Event{pair(&engine.Tag{LoRAID: 7}), removed(h0), cleared}},
		"vllm_a2": {FormatArray2, 0, []engine.Event{
			{Kind: engine.Stored, HasParent: true, Parent: h0, Hashes: []engine.Hash{h1}, Tokens: tokens(16, 32), Offset: 1},
			removed(h1), cleared}},
		"vllm_a3": {FormatArray3, 0, []engine.Event{
			{Kind: engine.Stored, HasParent: true, Parent: h1, Hashes: []engine.Hash{h2}, Tokens: tokens(32, 48), Offset: 2,
				Tag: &engine.Tag{LoRA: "adapter-a", LoRAID: 1}},
			removed(h2)}},
		"vllm_a4": {FormatArray4, 0, []engine.Event{pair(&engine.Tag{LoRA: "adapter-a", LoRAID: 1, Salt: "salt-1"})}},
		"vllm_a5": {FormatArray5, 0, []engine.Event{first, removed(h0)}},
		"vllm_a6": {FormatArray, 0, []engine.Event{first, removed(h0), cleared}},
		"vllm_m1": {FormatMap, 0, []engine.Event{first, removed(h0), cleared}},
	}
	if len(vectors) != len(cases) {
		t.Fatalf("%d vectors for %d cases", len(vectors), len(cases))
	}
	for _, v := range vectors {
		c, ok := cases[v.Name]
		if !ok {
			t.Errorf("no case for vector %s", v.Name)
			continue
		}
		b := Batch{Time: 1757500000.25, Rank: c.rank, BlockSize: 16}
		if got := hex.EncodeToString(AppendBatch(nil, c.format, b, c.events)); got != v.Hex {
			t.Errorf("%s:\n got %s\nwant %s", v.Name, got, v.Hex)
		}
	}
}

func TestParseFormat(t *testing.T) {
	for f := FormatMap; f <= FormatArray5; f++ {
		if got, err := ParseFormat(f.String()); got != f || err != nil {
			t.Errorf("ParseFormat(%v) = %v, %v", f, got, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil {
		t.Error("xml is a format")
	}
}

func BenchmarkAppendBatch(b *testing.B) {
	events := []engine.Event{{Kind: engine.Stored, HasParent: true, Parent: h0, Hashes: []engine.Hash{h1, h2}, Tokens: tokens(70_000, 70_032)}}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendBatch(dst[:0], FormatMap, Batch{BlockSize: 16}, events)
	}
}
