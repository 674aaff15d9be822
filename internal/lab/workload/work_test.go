package workload

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWork: work counts at the time when it was done, not when its answer ended. Windows are
// complete.
func TestWork(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	w := NewWork(2, begin, time.Second)
	w.Add(0, at(4.5), 4*time.Second, 8) // 2 a second from 0.5 on
	w.Add(1, at(2), 10*time.Second, 20) // its first eight seconds were before
	w.Add(1, at(3.25), 0, 5)            // all at once
	w.Add(0, at(-1), time.Second, 100)  // before everything
	got := w.Windows(at(.5), at(4), 2*time.Second)
	want := []Window{{at(1), []float64{4, 2}}, {at(2), []float64{4, 5}}}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); d != "" {
		t.Error(d)
	}
	if s := got[0].Sum(); math.Abs(s-6) > 1e-9 {
		t.Errorf("sum %v", s)
	}
	if list := w.Windows(at(0), at(1), 2*time.Second); len(list) != 0 {
		t.Errorf("windows longer than the time: %v", list)
	}
}
