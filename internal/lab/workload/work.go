package workload

import (
	"math"
	"sync"
	"time"
)

// Work records the work that engines have done for each tenant over time. Safe for concurrent use.
type Work struct {
	begin time.Time
	step  time.Duration

	mu   sync.Mutex
	done [][]float64 // by tenant, then by step since begin
}

// NewWork returns an empty record for the given number of tenants.
func NewWork(tenants int, begin time.Time, step time.Duration) *Work {
	return &Work{begin: begin, step: step, done: make([][]float64, tenants)}
}

// Add records an amount of work, spread evenly over its duration, which ends at the given time.
func (w *Work) Add(tenant int, end time.Time, took time.Duration, amount float64) {
	took = max(took, time.Nanosecond)
	from, to := float64(end.Add(-took).Sub(w.begin))/float64(w.step), float64(end.Sub(w.begin))/float64(w.step)
	w.mu.Lock()
	defer w.mu.Unlock()
	done := w.done[tenant]
	for len(done) <= int(max(to, 0)) {
		done = append(done, 0)
	}
	for i := int(math.Floor(max(from, 0))); i <= int(to) && to > 0; i++ {
		part := min(to, float64(i+1)) - max(from, float64(i))
		done[i] += amount * max(part, 0) / (to - from)
	}
	w.done[tenant] = done
}

// Window is the work during one window of time.
type Window struct {
	From time.Time
	Done []float64 // by tenant
}

// Sum is the work of all tenants.
func (w *Window) Sum() (sum float64) {
	for _, v := range w.Done {
		sum += v
	}
	return sum
}

// Windows returns every window of a length between from and to, one for each step.
func (w *Work) Windows(from, to time.Time, length time.Duration) (list []Window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := int(length / w.step)
	first := int(math.Ceil(float64(from.Sub(w.begin)) / float64(w.step)))
	last := int(to.Sub(w.begin)/w.step) - n
	for i := max(first, 0); i <= last; i++ {
		win := Window{From: w.begin.Add(time.Duration(i) * w.step), Done: make([]float64, len(w.done))}
		for t, done := range w.done {
			for k := i; k < min(i+n, len(done)); k++ {
				win.Done[t] += done[k]
			}
		}
		list = append(list, win)
	}
	return list
}
