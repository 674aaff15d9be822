package rules

import "math"

// UsageLimit determines how much of the capacity each band may use.
type UsageLimit interface {
	// Ceilings sets out[i], a fraction of the capacity, for the recently used bands, highest
	// priority first. saturation is the fraction of permits in flight. It is called once per
	// dispatch opportunity.
	Ceilings(saturation float64, priorities []int, out []float64)
}

// StaticLimit lets every band use all permits.
type StaticLimit struct{}

// Ceilings implements UsageLimit.
func (StaticLimit) Ceilings(_ float64, _ []int, out []float64) {
	for i := range out {
		out[i] = 1
	}
}

// Holdback keeps permits free of lower bands. The highest band may use the fraction Max, the lowest
// Min, and those between in steps by rank, or in proportion to their priority.
type Holdback struct {
	Min, Max float64
	ByValue  bool
}

// Ceilings implements UsageLimit.
func (h Holdback) Ceilings(_ float64, priorities []int, out []float64) {
	n := len(priorities)
	for i := range out {
		out[i] = h.Max
		if n < 2 {
			continue
		}
		share := float64(n-1-i) / float64(n-1)
		if h.ByValue {
			low, high := float64(priorities[n-1]), float64(priorities[0])
			share = (float64(priorities[i]) - low) / (high - low)
		}
		out[i] = h.Min + share*(h.Max-h.Min)
	}
}

// Reflective closes lower bands gradually as the pool fills: from the saturation 1 − i·s/(n−1) on,
// band i is open on one call in round(s/(1−s)).
type Reflective struct{ tick uint64 }

// Ceilings implements UsageLimit.
func (r *Reflective) Ceilings(s float64, priorities []int, out []float64) {
	n := len(priorities)
	gated := 1-s <= s && s < 1
	if gated {
		r.tick++
	}
	for i := range out {
		out[i] = 1
		switch {
		case i == 0 || n < 2 || s < 1-float64(i)*s/float64(n-1):
		case s >= 1:
			out[i] = 0
		default:
			period := uint64(max(1, math.Round(s/(1-s+1e-9))))
			if gated && r.tick%period != 0 {
				out[i] = 0
			}
		}
	}
}
