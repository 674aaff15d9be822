package server

import (
	"strings"
	"testing"
	"time"
)

// TestMemoryForecast: much memory is a problem at once, growth is one if it reaches the limit soon,
// and neither a small process that grows nor a sawtooth is one.
func TestMemoryForecast(t *testing.T) {
	const mib, limit = int64(1 << 20), int64(1000 << 20)
	for _, c := range []struct {
		name   string
		needed func(second int) int64 // MiB
		want   string                 // in the last problem
		since  int                    // the second of the first problem; -1: none
	}{
		{"steady", func(int) int64 { return 500 }, "", -1},
		{"much", func(int) int64 { return 760 }, "760 of 1000 MiB are needed", 0},
		{"small and growing", func(s int) int64 { return int64(100 + s/2) }, "", -1},
		{"growing", func(s int) int64 { return int64(450 + s) }, "MiB a minute: the limit is reached in", 60},
		{"growing slowly", func(s int) int64 { return int64(450 + s/20) }, "", -1},
		{"sawtooth", func(s int) int64 { return int64(500 + 100*(s%20)/20) }, "", -1},
		{"shrinking", func(s int) int64 { return int64(740 - s/10) }, "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f memoryForecast
			start, since, last := time.Now(), -1, ""
			for s := 0; s < 400; s += 2 {
				last = f.add(start.Add(time.Duration(s)*time.Second), c.needed(s)*mib, limit)
				if last != "" && since < 0 {
					since = s
				}
			}
			if since != c.since || !strings.Contains(last, c.want) || (c.want == "") != (last == "") {
				t.Errorf("first problem after %d s, want %d; last %q, want %q", since, c.since, last, c.want)
			}
			if n := len(f.samples); n > 151 {
				t.Errorf("%d samples are kept, want those of five minutes", n)
			}
		})
	}
	var f memoryForecast
	if got := f.add(time.Now(), 100, 0) + f.add(time.Now(), 0, 100); got != "" {
		t.Errorf("problem %q without a limit or a measurement", got)
	}
}
