package room

import "testing"

// TestEntry checks that dispatched permits reduce the room until they are missing from the endpoints'
// counts no longer, and that Set reports more room.
func TestEntry(t *testing.T) {
	var e Entry
	const start = 100 * grace
	if e.Set(start, false, 0, 1) || !e.Fits(1<<40) {
		t.Error("a stage without a limit has no room")
	}
	if e.Set(start, true, 10, 2); !e.Fits(5) || e.Fits(6) {
		t.Errorf("%d permits are left for one of two replicas, want 5", e.left)
	}
	e.Take(start, 3)
	if !e.Fits(2) || e.Fits(3) {
		t.Errorf("%d permits are left after 3 of 5, want 2", e.left)
	}
	for _, c := range []struct {
		at, left int64
		more     bool
	}{
		{start, 2, false},               // the same, dispatched permits are not counted yet
		{start + grace - 1, 2, false},   // in the same window
		{start + 2*grace - 1, 2, false}, // in the previous window
		{start + 2*grace, 5, true},      // counted by the endpoints
		{start + 2*grace, 5, false},
	} {
		if more := e.Set(c.at, true, 10, 2); more != c.more || e.left != c.left {
			t.Errorf("after %d: %d permits, more: %t, want %d, %t", c.at-start, e.left, more, c.left, c.more)
		}
	}
	if e.Set(start+2*grace, true, 1, 3); e.left != 1 {
		t.Errorf("%d permits of one for three replicas, want 1", e.left)
	}
	if e.Set(start+2*grace, true, 0, 3); e.left != 0 {
		t.Errorf("%d permits of none, want 0", e.left)
	}
	if !e.Set(start+2*grace, false, 0, 3) {
		t.Error("Set() = false when the limit is lifted")
	}
	e.Take(start+2*grace, 4)
	if e.Set(start+10*grace, true, 12, 3); e.left != 4 {
		t.Errorf("%d permits are left long after, want 4", e.left)
	}
}
