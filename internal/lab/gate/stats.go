package gate

import (
	"math"
	"slices"
)

// Estimate is the median of samples, their quartiles, and the standard error of the median.
type Estimate struct {
	Median float64
	Low    float64 // first quartile
	High   float64 // third quartile
	Error  float64
	N      int
}

// estimate summarises samples. The error assumes that the bulk of the samples is about
// normal, so that outliers of a busy machine do not count.
func estimate(samples []float64) Estimate {
	if len(samples) == 0 {
		return Estimate{Median: math.NaN()}
	}
	s := slices.Sorted(slices.Values(samples))
	e := Estimate{Median: quantile(s, .5), Low: quantile(s, .25), High: quantile(s, .75), N: len(s)}
	const perQuartiles, ofMedian = 1.349, 1.2533 // of a normal distribution
	e.Error = ofMedian * (e.High - e.Low) / perQuartiles / math.Sqrt(float64(len(s)))
	return e
}

// quantile interpolates in sorted samples.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
