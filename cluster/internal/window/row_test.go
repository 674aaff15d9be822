package window

import (
	"testing"

	"pgregory.net/rapid"
)

// For any order of arrival and any coverage by answers, Have returns the frame before the first
// missing one, provided that frames arrive within 64 of each other.
func TestRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Row
		got, last := map[uint64]bool{}, uint64(0)
		for range rapid.IntRange(0, 60).Draw(t, "frames") {
			n := rapid.Uint64Range(1, 60).Draw(t, "n")
			last = max(last, n)
			if rapid.IntRange(0, 9).Draw(t, "covers") == 0 {
				for i := range n {
					got[i+1] = true
				}
				r.MarkCovered(n)
			} else {
				got[n] = true
				r.MarkReceived(n)
			}
			want := uint64(0)
			for got[want+1] {
				want++
			}
			if r.Have() != want || r.last != last || r.HasGaps() != (last > want) {
				t.Fatalf("have %d of %d, want %d of %d", r.Have(), r.last, want, last)
			}
		}
	})
}
