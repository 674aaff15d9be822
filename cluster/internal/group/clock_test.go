package group

import (
	"math"
	"testing"
	"time"
)

// TestCompareClocks: the true difference is within the stated error, whichever way was slow, and
// malformed times do not overflow.
func TestCompareClocks(t *testing.T) {
	const now = uint64(1_800_000_000_000_000)
	for _, c := range []struct {
		ahead        time.Duration // of the peer's clock
		there, back  time.Duration // delay of each direction
		leastCertain time.Duration
	}{
		{0, time.Millisecond, time.Millisecond, 0},
		{0, 0, 3 * time.Second, 0},
		{time.Minute, 0, 3 * time.Second, 55 * time.Second},
		{-time.Minute, 3 * time.Second, 0, 55 * time.Second},
		{-2 * time.Hour, time.Second, time.Second, time.Hour},
	} {
		sent := uint64(int64(now) + c.ahead.Microseconds())
		d := CompareClocks(sent, now+uint64(c.back.Microseconds()), c.there+c.back)
		if off := (d.Ahead - c.ahead).Abs(); !d.Known || off > d.Within {
			t.Errorf("%+v: difference %+v is off by %s", c, d, off)
		}
		if got := d.Certain(); got < c.leastCertain || got > c.ahead.Abs() {
			t.Errorf("%+v: Certain() = %s, want at least %s and no more than the truth", c, got, c.leastCertain)
		}
	}
	for _, peer := range []uint64{1, math.MaxUint64} {
		if d := CompareClocks(peer, now, time.Minute); d.Ahead.Abs() > maxClockDifference+time.Minute {
			t.Errorf("CompareClocks(%d) = %+v", peer, d)
		}
	}
	if d := CompareClocks(0, now, 0); d.Known || CompareClocks(now, 0, 0).Known {
		t.Errorf("a clock that is not stated is compared: %+v", d)
	}
}
