package replay

import (
	"slices"
	"time"
)

// Size summarises the requests with prompts up to one size.
type Size struct {
	UpTo     int     `json:"up_to"` // tokens of the prompt; 0: any number
	Requests int     `json:"requests"`
	TTFT     Summary `json:"ttft_s"` // of the answered ones
}

// sizes are the upper limits of the prompt size classes, in tokens.
var sizes = [...]int{1 << 10, 1 << 12, 1 << 14, 1 << 16, 0}

// bySize summarises requests by prompt size and omits empty classes.
func (s *simulation) bySize() []Size {
	var requests [len(sizes)]int
	var ttft [len(sizes)][]float64
	for i := range s.outcomes {
		r, o := &s.Trace.Requests[i], &s.outcomes[i]
		if r.At < s.Warmup {
			continue
		}
		k := slices.IndexFunc(sizes[:], func(most int) bool { return r.Input <= most || most == 0 })
		if requests[k]++; o.Error == "" {
			ttft[k] = append(ttft[k], (o.First - r.At).Seconds())
		}
	}
	var out []Size
	for k, n := range requests {
		if n > 0 {
			out = append(out, Size{UpTo: sizes[k], Requests: n, TTFT: summarise(ttft[k])})
		}
	}
	return out
}

// Moment is the number of requests at each engine, averaged over the arrivals of a part of the run.
type Moment struct {
	At      float64   `json:"at_s"`    // middle of the part, from the start of the run
	Engines []float64 `json:"engines"` // requests in flight, by engine
}

// mostEngines is the largest fleet for which a run reports every engine.
const mostEngines = 64

// timeline sums the requests in flight per engine, sampled at arrivals.
type timeline struct {
	sums [timelineParts][]int
	seen [timelineParts]int
}

const timelineParts = 120

func (t *timeline) look(at, length time.Duration, stations []station) {
	part := min(int(int64(at)*timelineParts/max(int64(length), 1)), timelineParts-1)
	if t.sums[part] == nil {
		t.sums[part] = make([]int, len(stations))
	}
	t.seen[part]++
	for i := range stations {
		t.sums[part][i] += stations[i].inFlight()
	}
}

// moments returns the parts in which somebody arrived.
func (t *timeline) moments(length time.Duration) []Moment {
	var out []Moment
	for part, sums := range t.sums {
		if sums == nil {
			continue
		}
		m := Moment{At: (float64(part) + .5) * length.Seconds() / timelineParts, Engines: make([]float64, len(sums))}
		for i, n := range sums {
			m.Engines[i] = float64(n) / float64(t.seen[part])
		}
		out = append(out, m)
	}
	return out
}
