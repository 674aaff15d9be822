package outcomes

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Buckets of FirstTokens: ten for each factor of ten, from 10 ms to 1,000 s.
const (
	firstLeast   = .01 // seconds
	firstDecades = 5
	firstSteps   = 10
	firstBuckets = firstDecades*firstSteps + 1 // the last is above all bounds
)

// FirstTokens counts answers by their time to the first token.
type FirstTokens [firstBuckets]uint64

func (f *FirstTokens) observe(d time.Duration) {
	i := math.Ceil(firstSteps * math.Log10(d.Seconds()/firstLeast))
	f[int(min(max(i, 0), firstBuckets-1))]++
}

// metric returns the counts as a histogram with three buckets for each factor of ten: at most
// 0.01, 0.02, 0.0501 and 0.1 s, and so on.
func (f *FirstTokens) metric(desc *prometheus.Desc, sum float64, model string) prometheus.Metric {
	total, buckets := uint64(0), map[float64]uint64{}
	for i, n := range f {
		total += n
		if last := len(f) - 1; i < last && slices.Contains(shownSteps, i%firstSteps) {
			bound := firstLeast * math.Pow(10, float64(i)/firstSteps)
			buckets[math.Round(bound*1e4)/1e4] = total
		}
	}
	return prometheus.MustNewConstHistogram(desc, total, sum, buckets, model)
}

// shownSteps are the steps of a decade whose bounds are buckets of the metric.
var shownSteps = []int{0, 3, 7}

// Quantile returns the q-quantile in seconds, with an error of at most 13% from 10 ms to
// 1,000 s. It is 0 without answers.
func (f *FirstTokens) Quantile(q float64) float64 {
	all := uint64(0)
	for _, n := range f {
		all += n
	}
	if all == 0 {
		return 0
	}
	below, want := uint64(0), uint64(math.Ceil(q*float64(all)))
	for i, n := range f {
		if below += n; below >= max(want, 1) {
			return firstLeast * math.Pow(10, (float64(i)-.5)/firstSteps)
		}
	}
	return 0
}

// ModelTotals are the requests of one model's users since the start.
type ModelTotals struct {
	Requests uint64 // placed or not
	Errors   uint64 // failed without a client error
	// PromptTokens and CachedTokens are sums over answers whose engine reported cached tokens.
	PromptTokens, CachedTokens uint64
	First                      FirstTokens // of answers whose first token was observed
}

// Add adds the counts of g.
func (t *ModelTotals) Add(g *ModelTotals) {
	t.Requests += g.Requests
	t.Errors += g.Errors
	t.PromptTokens += g.PromptTokens
	t.CachedTokens += g.CachedTokens
	for i, n := range g.First {
		t.First[i] += n
	}
}

// Since returns the gain of t since last. The counts of a model that was dropped restart at 0.
func (t ModelTotals) Since(last ModelTotals) ModelTotals {
	if t.Requests < last.Requests {
		return t
	}
	t.Requests -= last.Requests
	t.Errors -= last.Errors
	t.PromptTokens -= last.PromptTokens
	t.CachedTokens -= last.CachedTokens
	for i, n := range last.First {
		t.First[i] -= n
	}
	return t
}

// Models returns the counts by model. Models that no endpoint serves are one, "other".
func (t *Counter) Models() map[string]ModelTotals {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]ModelTotals, len(t.users))
	for name, u := range t.users {
		m := ModelTotals{Requests: u.requests, PromptTokens: u.prompt, CachedTokens: u.cached, First: u.first}
		for _, n := range u.errors {
			m.Errors += n
		}
		out[name] = m
	}
	return out
}
