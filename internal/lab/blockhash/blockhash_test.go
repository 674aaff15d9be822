package blockhash

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"
)

type vector struct {
	Seed      string
	Case      string
	Root      string
	BlockSize int `json:"block_size"`
	LoRA      string
	Salt      string
	Blocks    []struct {
		Tokens         []uint32
		Hash, Preimage string
		Event          uint64
	}
}

// TestVectors compares with digests computed by cbor2 and hashlib.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/sha256_cbor.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 6 {
		t.Fatalf("%d vectors", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Seed+"/"+v.Case, func(t *testing.T) {
			h := NewSHA256CBOR(v.Seed)
			if got := hex.EncodeToString(h.root[:]); got != v.Root {
				t.Fatalf("root %s, want %s", got, v.Root)
			}
			var tokens []uint32
			var events []uint64
			for _, b := range v.Blocks {
				tokens = append(tokens, b.Tokens...)
				events = append(events, b.Event)
			}
			x := Extra{LoRA: v.LoRA, Salt: v.Salt}
			i := 0
			h.each(tokens, v.BlockSize, x, func(d *Digest) {
				if got := hex.EncodeToString(d[:]); got != v.Blocks[i].Hash {
					t.Errorf("block %d: %s, want %s", i, got, v.Blocks[i].Hash)
				}
				i++
			})
			if got := h.Append(nil, append(tokens, 7), v.BlockSize, x); !slices.Equal(got, events) {
				t.Errorf("event names %v, want %v", got, events)
			}
		})
	}
}

// TestSeparation: chains differ from the first block that differs in tokens,
// and from the start when adapter or salt differ.
func TestSeparation(t *testing.T) {
	tokens := make([]uint32, 64)
	other := slices.Clone(tokens)
	other[40] = 1
	for name, h := range map[string]Namer{"sha256_cbor": NewSHA256CBOR("0"), "fast": Fast{}} {
		plain := h.Append(nil, tokens, 16, Extra{})
		if len(plain) != 4 || !slices.Equal(plain, h.Append(nil, tokens, 16, Extra{})) {
			t.Errorf("%s: %v", name, plain)
		}
		for what, got := range map[string][]uint64{
			"lora": h.Append(nil, tokens, 16, Extra{LoRA: "a"}),
			"salt": h.Append(nil, tokens, 16, Extra{Salt: "a"}),
		} {
			for i := range got {
				if got[i] == plain[i] {
					t.Errorf("%s: %s does not separate block %d", name, what, i)
				}
			}
		}
		if got := h.Append(nil, other, 16, Extra{}); !slices.Equal(got[:2], plain[:2]) || got[2] == plain[2] || got[3] == plain[3] {
			t.Errorf("%s: %v against %v", name, got, plain)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	tokens := make([]uint32, 16_000)
	for i := range tokens {
		tokens[i] = uint32(i * 7)
	}
	for name, h := range map[string]Namer{"sha256_cbor": NewSHA256CBOR("0"), "fast": Fast{}} {
		b.Run(name, func(b *testing.B) {
			var dst []uint64
			for b.Loop() {
				dst = h.Append(dst[:0], tokens, 16, Extra{})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*1000), "ns/block")
		})
	}
}
