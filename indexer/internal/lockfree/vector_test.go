package lockfree

import (
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A vector is the slice that its changes make, and lists that were before stay as they were.
func TestVectorIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, want := &Vector[int]{}, []int{}
		lists, wants := []*Vector[int]{v}, [][]int{{}}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			i := rapid.IntRange(0, len(want)+rapid.SampledFrom([]int{0, 1, 40, 1100}).Draw(t, "further")).Draw(t, "place")
			x := rapid.Int().Draw(t, "value")
			v, want = v.With(i, x), slices.Clone(want)
			for len(want) <= i {
				want = append(want, 0)
			}
			want[i] = x
			lists, wants = append(lists, v), append(wants, want)
		}
		for k, v := range lists {
			if v.Len() != len(wants[k]) {
				t.Fatalf("list %d has %d entries, not %d", k, v.Len(), len(wants[k]))
			}
			for i, x := range wants[k] {
				if got := *v.At(i); got != x {
					t.Fatalf("list %d has %d at %d, not %d", k, got, i, x)
				}
			}
		}
	})
}

// The cost of a change does not grow with the list.
func TestVectorChangesCostTheSame(t *testing.T) {
	took := func(n int) uint64 {
		v := &Vector[[5]int]{}
		for i := range n {
			v = v.With(i, [5]int{i})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range 1000 {
			v = v.With(i*(n/1000), [5]int{})
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if small, large := took(1000), took(100_000); large > 2*small {
		t.Errorf("1,000 changes take %d bytes in a list of 1,000, %d in one of 100,000", small, large)
	}
}
