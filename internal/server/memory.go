package server

import (
	"fmt"
	"time"
)

// Limits of the forecast of memory, as shares of the process's limit.
const (
	memoryHigh   = 0.75             // a problem at once
	memoryLow    = 0.40             // below it, no growth is a problem
	memoryWindow = 5 * time.Minute  // over which growth is measured
	memoryLeast  = time.Minute      // of measurements before growth is a problem
	memoryAhead  = 15 * time.Minute // how far growth is continued
)

// memoryForecast predicts when the process reaches its memory limit.
type memoryForecast struct {
	samples []memorySample // of the last memoryWindow, oldest first
}

type memorySample struct {
	at     time.Time
	needed int64 // bytes; see budget.Needed
}

// add adds a measurement, and returns the problem or "". A limit of 0 is none.
func (f *memoryForecast) add(now time.Time, needed, limit int64) string {
	if needed <= 0 || limit <= 0 {
		f.samples = nil
		return ""
	}
	f.samples = append(f.samples, memorySample{now, needed})
	for now.Sub(f.samples[0].at) > memoryWindow {
		f.samples = f.samples[1:]
	}
	share := float64(needed) / float64(limit)
	text := fmt.Sprintf("%d of %d MiB are needed", needed>>20, limit>>20)
	growth := f.growth()
	left := time.Duration(-1)
	if growth > 0 && now.Sub(f.samples[0].at) >= memoryLeast {
		left = time.Duration(min(float64(limit-needed)/growth, 1e9) * float64(time.Second))
	}
	switch {
	case share >= memoryLow && left >= 0 && left <= memoryAhead:
		return fmt.Sprintf("%s, and they grow by %.1f MiB a minute: the limit is reached in %s", text, growth*60/(1<<20), left.Round(time.Second))
	case share >= memoryHigh:
		return text
	}
	return ""
}

// growth returns the slope of the samples in bytes per second, by least squares.
func (f *memoryForecast) growth() float64 {
	var n, x, y, xx, xy float64
	for _, s := range f.samples {
		dx, dy := s.at.Sub(f.samples[0].at).Seconds(), float64(s.needed-f.samples[0].needed)
		n, x, y, xx, xy = n+1, x+dx, y+dy, xx+dx*dx, xy+dx*dy
	}
	if d := n*xx - x*x; d > 0 {
		return (n*xy - x*y) / d
	}
	return 0
}
