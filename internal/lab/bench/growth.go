package bench

import "time"

// Growth is a linear fit of samples.
type Growth struct {
	Mean float64
	Over float64 // growth of the fitted line from the first to the last sample
}

// Fit fits a line by least squares.
func Fit(at []time.Duration, value []float64) Growth {
	n := float64(len(at))
	if n < 2 {
		return Growth{}
	}
	var mt, mv float64
	for i := range at {
		mt += at[i].Seconds() / n
		mv += value[i] / n
	}
	var tv, tt float64
	for i := range at {
		d := at[i].Seconds() - mt
		tv += d * (value[i] - mv)
		tt += d * d
	}
	if tt == 0 {
		return Growth{Mean: mv}
	}
	return Growth{Mean: mv, Over: tv / tt * (at[len(at)-1] - at[0]).Seconds()}
}
