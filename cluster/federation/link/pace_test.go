package link

import (
	"testing"
	"time"
)

// TestPace: a burst of one second passes. Beyond it the sender waits until its debt is paid, and a
// small message costs as much as one of a kilobyte.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(1<<20, now) // 6 MiB per second
	for i := range 6 << 10 {
		if wait := p.take(1, now); wait != 0 {
			t.Fatalf("message %d waits for %v", i, wait)
		}
	}
	if wait := p.take(3<<20, now); wait != time.Second/2 {
		t.Errorf("excess of half a second waits for %v", wait)
	}
	if p.allow(1, now.Add(time.Second/4)) || !p.allow(1, now.Add(time.Second/2+time.Millisecond)) {
		t.Error("allow() does not follow the debt")
	}
	if n := p.beyond(); n != 2 {
		t.Errorf("over = %d, want 2", n)
	}
	if wait := p.take(6<<20, now.Add(time.Hour)); wait != 0 {
		t.Errorf("after an idle hour a burst of one second waits for %v", wait)
	}
	if p.allow(1, now.Add(time.Hour)) {
		t.Error("allow() = true without a byte left")
	}
	if wait := p.take(6<<20, now.Add(time.Hour)); wait != time.Second {
		t.Errorf("idle time was saved beyond one second: %v", wait)
	}
}
