package window

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestWindow: in any order, a number is accepted at most once. An unseen number is rejected only if
// it is Size or more behind the largest.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		taken, top := map[uint64]bool{}, uint64(0)
		base := rapid.SampledFrom([]uint64{1, Size - 5, 1 << 40, math.MaxUint64 - 3*Size}).Draw(t, "base")
		step := rapid.SampledFrom([]int{3, 100, Size - 1, Size, Size + 1, 3 * Size}).Draw(t, "span")
		for _, d := range rapid.SliceOfN(rapid.IntRange(0, step), 1, 300).Draw(t, "numbers") {
			n := base + uint64(d)
			want := New
			switch {
			case top >= Size && n <= top-Size:
				want = Old
			case taken[n]:
				want = Repeated
			}
			if got := w.Classify(n); got != want {
				t.Fatalf("Look(%d) = %d after %d, want %d", n, got, top, want)
			}
			if got := w.Take(n); got != want {
				t.Fatalf("Take(%d) = %d after %d, want %d", n, got, top, want)
			}
			if want == New {
				taken[n], top = true, max(top, n)
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	var w Window
	if w.Take(0) != Old || w.Take(1) != New || w.Take(1) != Repeated || w.Take(0) != Old {
		t.Error("number 0 was accepted")
	}
	if w.Take(Size) != New || w.Take(Size+2) != New || w.Take(Size+1) != New {
		t.Error("a new number was reported as repeated because an older one was accepted")
	}
}

// TestLargestNumber: the window works up to the largest uint64.
func TestLargestNumber(t *testing.T) {
	var w Window
	if w.Take(math.MaxUint64-1) != New || w.Take(math.MaxUint64) != New || w.Take(math.MaxUint64) != Repeated {
		t.Error("largest number was not accepted exactly once")
	}
}

func BenchmarkTake(b *testing.B) {
	var w Window
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n += 30 {
		if w.Take(n) != New {
			b.Fatal("not new")
		}
	}
}
