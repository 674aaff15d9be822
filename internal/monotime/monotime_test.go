package monotime

import (
	"testing"
	"time"
	"unsafe"
)

// set returns t as it would have been read had the machine's clock been set by d before.
func set(t time.Time, d time.Duration) time.Time {
	const secondsAt = 30 // see time.Time: whether there is a monotonic reading, seconds, nanoseconds
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall += uint64(d/time.Second) << secondsAt
	return t
}

// TestClockIsSet: numbers taken before and after a change of the machine's clock differ by the
// elapsed time.
func TestClockIsSet(t *testing.T) {
	began := time.Now()
	for _, by := range []time.Duration{0, time.Hour, -time.Hour, 10 * time.Minute, -10 * time.Minute} {
		later := set(began.Add(3*time.Second), by)
		if got := later.UnixNano() - began.UnixNano(); time.Duration(got) != by+3*time.Second {
			t.Fatalf("a clock set by %v was made to show %v", by, time.Duration(got))
		}
		if got := since(began, later).UnixNano() - began.UnixNano(); time.Duration(got) != 3*time.Second {
			t.Errorf("clock set by %v: three seconds are %v", by, time.Duration(got))
		}
	}
}

func TestNow(t *testing.T) {
	a := Now()
	b := time.Now()
	c := Now()
	if b.Before(a) || c.Before(b) {
		t.Errorf("%v, %v, %v are not in order", a, b, c)
	}
}
