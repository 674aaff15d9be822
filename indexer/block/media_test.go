package block

import (
	"bytes"
	"testing"
)

func TestBehindMedia(t *testing.T) {
	text := bytes.Repeat([]byte("größer als "), 4000)
	if got := BehindMedia(text); got != 0 {
		t.Errorf("BehindMedia() of a text without media = %d, want 0", got)
	}
	first := AppendMedium(bytes.Clone(text), []byte("a"))
	both := append(AppendMedium(bytes.Clone(first), []byte("b")), text...)
	if got, want := BehindMedia(both), len(first)+MediumSize; got != want {
		t.Errorf("BehindMedia() = %d, want %d", got, want)
	}
	if got, want := BehindMedia(first[:len(first)-3]), len(first)-3; got != want {
		t.Errorf("BehindMedia() of a cut medium = %d, want %d", got, want)
	}
}

// TestBehindMediaCost checks that looking for media in a text without any costs little next
// to hashing it.
func TestBehindMediaCost(t *testing.T) {
	text := bytes.Repeat([]byte("no image in here; "), 4000)
	cost := func(f func()) float64 {
		return float64(testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				f()
			}
		}).NsPerOp())
	}
	h := NewHasher(Seed{1})
	hash, look := cost(func() { h.Child(1, text) }), cost(func() { BehindMedia(text) })
	if look > hash {
		t.Errorf("BehindMedia() takes %.0f ns, hashing the text %.0f ns", look, hash)
	}
}
