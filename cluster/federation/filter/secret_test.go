package filter

import (
	"bytes"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

func secretOf(t testing.TB, text string) *Secret {
	t.Helper()
	s, err := NewSecret([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestChain: keys depend on the secret, the model and every earlier byte. An incomplete last block
// has no key. Prompts are cut at MaxChunks.
func TestChain(t *testing.T) {
	prompt := bytes.Repeat([]byte("0123456789abcdef"), 50) // 800 bytes: three blocks
	s := secretOf(t, "a secret of the federation")
	keys := s.Chain("m", prompt, nil)
	if len(keys) != 3 {
		t.Fatalf("%d keys, want 3", len(keys))
	}
	if again := s.Chain("m", prompt[:600], nil); len(again) != 2 || again[1] != keys[1] {
		t.Errorf("a shorter prompt has keys %x, want the first two of %x", again, keys)
	}
	changed := bytes.Clone(prompt)
	changed[0]++
	for name, other := range map[string][]block.Key{
		"secret": secretOf(t, "another secret of them").Chain("m", prompt, nil),
		"model":  s.Chain("n", prompt, nil),
		"first":  s.Chain("m", changed, nil),
	} {
		for i := range keys {
			if other[i] == keys[i] {
				t.Errorf("another %s: block %d has the same key", name, i)
			}
		}
	}
	if n := len(s.Chain("m", make([]byte, (MaxChunks+9)*ChunkBytes), nil)); n != MaxChunks {
		t.Errorf("%d keys of a long prompt, want %d", n, MaxChunks)
	}
}

// TestPairKeys: each pair, direction, pool and rotation has its own key.
func TestPairKeys(t *testing.T) {
	s := secretOf(t, "a secret of the federation")
	p := Way{"a", "b", "ns", "pool"}
	seen := map[pairKey]int{}
	for i, k := range []pairKey{
		s.pair(p, 1), s.pair(Way{"b", "a", "ns", "pool"}, 1), s.pair(Way{"a", "c", "ns", "pool"}, 1), s.pair(p, 2),
		s.pair(Way{"a", "b", "nsp", "ool"}, 1), secretOf(t, "another secret of them").pair(p, 1),
	} {
		if j, ok := seen[k]; ok {
			t.Errorf("cases %d and %d have the same key", i, j)
		}
		seen[k] = i
	}
	if s.pair(p, 1) != secretOf(t, "a secret of the federation").pair(p, 1) {
		t.Error("equal secrets derive different keys")
	}
}

// TestShortSecret: a secret that could be guessed is rejected.
func TestShortSecret(t *testing.T) {
	if _, err := NewSecret([]byte("fifteen bytes!!")); err == nil {
		t.Error("secret of 15 bytes was accepted")
	}
}
