package predicted

import (
	"testing"
	"time"
)

// An engine of half the speed does half the work. A fleet that counted it as a whole engine would
// assume that queues are empty when they are not.
func TestColdFleetKnowsSpeeds(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	after := func(speeds float64) float64 {
		c := coldFleet{at: start}
		for range 8 {
			c.add(start, 2, speeds, 1, 0) // eight prompts of a second at the quick engine
		}
		wait, _ := c.add(start.Add(4*time.Second), 2, speeds, 1, 0)
		return wait
	}
	if wait := after(2); wait != 0 { // 8 s of work, 4 s of two engines
		t.Errorf("two equal engines have %v s left", wait)
	}
	if wait, want := after(1.5), (8-4*1.5-1)/1.5; wait != want {
		t.Errorf("one of two engines at half speed: %v s left, want %v", wait, want)
	}
}
