package link

import (
	"testing"
	"time"
)

// TestPace: a second's messages may come at once; whoever sends more waits until what he has
// sent is paid for, and small messages count as much as one of a kilobyte.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(1<<20, now) // 6 MiB a second
	for i := range 6 << 10 {
		if wait := p.take(1, now); wait != 0 {
			t.Fatalf("message %d waits for %v", i, wait)
		}
	}
	if wait := p.take(3<<20, now); wait != time.Second/2 {
		t.Errorf("what is half a second's too much waits for %v", wait)
	}
	if p.allow(1, now.Add(time.Second/4)) || !p.allow(1, now.Add(time.Second/2+time.Millisecond)) {
		t.Error("messages are not allowed once the last are paid for, and not before")
	}
	if n := p.beyond(); n != 2 {
		t.Errorf("%d messages were beyond it, want 2", n)
	}
	if wait := p.take(6<<20, now.Add(time.Hour)); wait != 0 {
		t.Errorf("after an hour a second's messages wait for %v", wait)
	}
	if wait := p.take(6<<20, now.Add(time.Hour)); wait != time.Second {
		t.Errorf("what was not sent for an hour is saved: %v", wait)
	}
}
