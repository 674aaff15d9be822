package fit

import (
	"testing"
	"time"
)

// TestSlots: the number of requests that an engine runs repeatedly while others wait is its limit,
// until it runs more. Waits with another cause do not count.
func TestSlots(t *testing.T) {
	type sample struct {
		running, waiting int
		prefill          int64
	}
	const some = 100
	for name, c := range map[string]struct {
		samples []sample
		want    int64
	}{
		"a limit":                       {[]sample{{3, 1, some}, {2, 0, 0}, {3, 4, some}}, 3},
		"seen once":                     {[]sample{{3, 1, some}, {3, 0, 0}}, 0},
		"nobody waits":                  {[]sample{{3, 0, 0}, {3, 0, 0}, {3, 0, 0}}, 0},
		"more run than that":            {[]sample{{3, 1, some}, {3, 1, some}, {4, 0, 0}}, 0},
		"more run, and still some wait": {[]sample{{3, 1, some}, {3, 1, some}, {8, 2, some}, {8, 2, some}}, 8},
		"prompts are long":              {[]sample{{3, 1, 20000}, {3, 1, 20000}, {3, 1, 20000}}, 0},
		"memory is full":                {[]sample{{9, 1, some}, {7, 2, some}, {9, 2, some}, {6, 3, some}, {8, 3, some}}, 0},
		"one step between two":          {[]sample{{9, 1, some}, {9, 2, some}, {9, 1, some}, {8, 1, some}, {9, 1, some}}, 9},
		"arrivals between two steps":    {[]sample{{3, 1, some}, {3, 2, some}, {1, 1, some}, {2, 1, some}, {1, 2, some}, {2, 1, some}}, 3},
		"it has run more":               {[]sample{{3, 0, 0}, {2, 1, some}, {2, 1, some}, {2, 2, some}}, 0},
		"it runs that again":            {[]sample{{3, 0, 0}, {2, 1, some}, {3, 1, some}, {2, 1, some}, {3, 1, some}}, 3},
		"an engine without gauges":      {[]sample{{0, 1, some}, {0, 1, some}, {0, 1, some}}, 0},
	} {
		var s Slots
		at := time.Unix(1e9, 0)
		for _, x := range c.samples {
			at = at.Add(time.Second)
			s.Observe(at, x.running, x.waiting, 1, x.prefill)
		}
		if got := s.Read(at.UnixNano()); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if got := s.Read(at.Add(time.Hour).UnixNano()); got != 0 {
			t.Errorf("%s: still %d after an hour", name, got)
		}
	}
}

// TestSlotsOfRanks: while less wait than there are ranks, some rank may have room.
func TestSlotsOfRanks(t *testing.T) {
	for waiting, want := range map[int]int64{3: 0, 4: 12} {
		var s Slots
		at := time.Unix(1e9, 0)
		for range 3 {
			s.Observe(at, 12, waiting, 4, 0)
		}
		if got := s.Read(at.UnixNano()); got != want {
			t.Errorf("%d wait: %d slots, want %d", waiting, got, want)
		}
	}
}

// TestSlotsAreUnlearnedSoon checks that a limit confirmed for hours is given up after a few samples that
// contradict it, since an engine that was restarted may run fewer sequences.
func TestSlotsAreUnlearnedSoon(t *testing.T) {
	var c Slots
	at := time.Unix(1_700_000_000, 0)
	for range 10_000 {
		at = at.Add(50 * time.Millisecond)
		c.Observe(at, 8, 3, 1, 0)
	}
	if got := c.Read(at.UnixNano()); got != 8 {
		t.Fatalf("Read() = %d after 10,000 samples of 8, want 8", got)
	}
	n := 0
	for ; c.Read(at.UnixNano()) == 8 && n < 100; n++ {
		at = at.Add(50 * time.Millisecond)
		c.Observe(at, 4, 6, 1, 0)
	}
	if n > slotsSure {
		t.Errorf("limit of 8 unlearned after %d contradicting samples, want at most %d", n, slotsSure)
	}
}
