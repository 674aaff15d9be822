package vocab

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// checkBoundaries holds BoundarySafe against tokenizing the whole text.
func checkBoundaries(t *testing.T, v *Vocab, texts []string) (safe, unsafe int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(9, 9))
	for _, text := range texts {
		space := v.Prepare(nil, []byte(text))
		offs := offsets(v, v.EncodePrepared(nil, space))
		for range 8 {
			pos := rng.IntN(len(space) + 1)
			_, want := slices.BinarySearch(offs, pos)
			got := v.BoundarySafe(space, pos)
			if got && !want {
				t.Fatalf("%q: %d is called a boundary, %q is its token", space, pos, show(v, v.EncodePrepared(nil, space)))
			}
			if !got && want && v.pat != split.Whole() && len(space) < boundaryReach {
				t.Fatalf("%q: %d is not called a boundary", space, pos)
			}
			if got {
				safe++
			} else {
				unsafe++
			}
		}
	}
	return safe, unsafe
}

func TestBoundarySafe(t *testing.T) {
	texts := hardStrings(31, 800, 16)
	for _, name := range realModels {
		v, _ := realModel(t, name)
		safe, unsafe := checkBoundaries(t, v, texts)
		t.Logf("%s: %d safe, %d unsafe", name, safe, unsafe)
		if safe < 100 || unsafe < 100 {
			t.Errorf("%s: one-sided: %d safe, %d unsafe", name, safe, unsafe)
		}
	}
}

func TestBoundarySafeLongWords(t *testing.T) {
	v, _ := realModel(t, "qwen3")
	long := slices.Repeat([]byte("a"), 10_000)
	if v.BoundarySafe(long, 5_000) {
		t.Error("a position in an endless word is called safe")
	}
	if !v.BoundarySafe(append(long, " b"...), 10_000) {
		t.Error("the end of an endless word is called unsafe")
	}
}

func BenchmarkBoundarySafe(b *testing.B) {
	v, _ := realModel(b, "qwen3")
	i := 0
	for b.Loop() {
		v.BoundarySafe(mixed, i)
		if i += 97; i > len(mixed) {
			i = 0
		}
	}
}
