package window

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestWindow: whatever the order, a number is taken at most once, and refused unseen only
// when it is Size or more behind the largest.
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
			if got := w.Look(n); got != want {
				t.Fatalf("%d looks %d after %d, not %d", n, got, top, want)
			}
			if got := w.Take(n); got != want {
				t.Fatalf("%d is %d after %d, not %d", n, got, top, want)
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
		t.Error("0 counts as a number")
	}
	if w.Take(Size) != New || w.Take(Size+2) != New || w.Take(Size+1) != New {
		t.Error("a number counts as taken because an older one was")
	}
}

// TestLargestNumber: the window comes to an end at the largest number that there is.
func TestLargestNumber(t *testing.T) {
	var w Window
	if w.Take(math.MaxUint64-1) != New || w.Take(math.MaxUint64) != New || w.Take(math.MaxUint64) != Repeated {
		t.Error("the largest number is not taken once")
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
