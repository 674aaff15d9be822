package workload

import (
	"math"
	"time"
)

// Dist is a distribution of durations in logarithmic buckets of 4%, from 10 µs
// to about 20 minutes. The zero value is empty. Two Dists can be subtracted.
type Dist struct {
	buckets [480]uint32
	count   uint64
	sum     time.Duration
}

const (
	distFirst  = 10 * time.Microsecond
	distGrowth = 1.04
)

// Add records one duration.
func (d *Dist) Add(v time.Duration) {
	i := 0
	if v > distFirst {
		i = int(math.Log(float64(v)/float64(distFirst)) / math.Log(distGrowth))
	}
	d.buckets[min(i, len(d.buckets)-1)]++
	d.count++
	d.sum += max(v, 0)
}

// Count returns the number of durations.
func (d *Dist) Count() uint64 { return d.count }

// Mean returns the mean, 0 when empty.
func (d *Dist) Mean() time.Duration {
	if d.count == 0 {
		return 0
	}
	return d.sum / time.Duration(d.count)
}

// Quantile returns the value below which the share q lies, within 2%; 0 when
// empty.
func (d *Dist) Quantile(q float64) time.Duration {
	if d.count == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(d.count)))
	var seen uint64
	for i, n := range d.buckets {
		seen += uint64(n)
		if seen >= rank && n > 0 {
			return time.Duration(float64(distFirst) * math.Pow(distGrowth, float64(i)+.5))
		}
	}
	return 0
}

// minus returns d without the durations of its earlier state old.
func (d Dist) minus(old *Dist) Dist {
	for i := range d.buckets {
		d.buckets[i] -= old.buckets[i]
	}
	d.count -= old.count
	d.sum -= old.sum
	return d
}
