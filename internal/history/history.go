package history

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
)

// Interval is the time that one sample covers.
const Interval = 10 * time.Second

const (
	slots     = int(time.Hour / Interval)
	maxModels = 32 // including Others
)

// Names of series that are not a model's.
const (
	All    = ""      // the sum over all models
	Others = "other" // models that no endpoint serves, and models beyond the limit
)

// Source reads the present state of a replica.
type Source struct {
	Models  func() map[string]outcomes.ModelTotals // since the start, by model
	Waiting func() map[string]int                  // waiting requests, by model; nil: none wait
}

// point is one sample of one series.
type point struct {
	seen             bool
	requests, errors uint32
	waiting          uint32
	middle, slow     float32 // seconds to the first token: median and 90th percentile; 0: none
	prompt, cached   uint64
}

// Recorder keeps samples. Create one with New.
type Recorder struct {
	from Source

	mu    sync.Mutex
	last  map[string]outcomes.ModelTotals
	taken time.Time // of the newest sample
	at    int64     // index of the newest sample
	ring  map[string]*[slots]point
}

// New returns a recorder whose first sample covers the time from now on.
func New(from Source) *Recorder {
	now := time.Now()
	r := &Recorder{from: from, taken: now, last: from.Models(), at: -1, ring: map[string]*[slots]point{}}
	r.ring[All] = new([slots]point)
	return r
}

// Run samples until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	timer := time.NewTimer(ticks.Until(Interval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			r.sample(time.Now())
			timer.Reset(ticks.Until(Interval))
		}
	}
}

// sample adds what happened since the last sample. After a pause of the process it all belongs to the
// newest interval, and those before it have no sample.
func (r *Recorder) sample(now time.Time) {
	totals := r.from.Models()
	var waiting map[string]int
	if r.from.Waiting != nil {
		waiting = r.from.Waiting()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := max(1, int64(math.Round(float64(now.Sub(r.taken))/float64(Interval))))
	r.taken = now
	for index := r.at + passed; r.at < index; {
		r.at++
		for _, ring := range r.ring {
			ring[r.at%int64(slots)] = point{seen: r.at == index}
		}
	}
	r.forget(totals)
	gains := map[*[slots]point]*outcomes.ModelTotals{}
	gain := func(name string, g *outcomes.ModelTotals) {
		ring := r.series(name)
		if gains[ring] == nil {
			gains[ring] = &outcomes.ModelTotals{}
		}
		gains[ring].Add(g)
	}
	for name, t := range totals {
		g := t.Since(r.last[name])
		if r.ring[name] == nil && g.Requests == 0 {
			continue
		}
		gain(name, &g)
		gain(All, &g)
	}
	r.last = totals
	for ring, g := range gains {
		p := &ring[r.at%int64(slots)]
		p.requests, p.errors, p.prompt, p.cached = uint32(g.Requests), uint32(g.Errors), g.PromptTokens, g.CachedTokens
		p.middle, p.slow = float32(g.First.Quantile(.5)), float32(g.First.Quantile(.9))
	}
	for name, n := range waiting {
		if n > 0 {
			r.series(name)[r.at%int64(slots)].waiting += uint32(n)
			r.ring[All][r.at%int64(slots)].waiting += uint32(n)
		}
	}
}

// forget drops the series of models that are neither served nor had a request within the hour.
func (r *Recorder) forget(served map[string]outcomes.ModelTotals) {
	maps.DeleteFunc(r.ring, func(name string, ring *[slots]point) bool {
		_, ok := served[name]
		busy := func(p point) bool { return p.requests > 0 || p.waiting > 0 }
		return !ok && name != All && !slices.ContainsFunc(ring[:], busy)
	})
}

// series returns the ring of a model, or that of Others if there are too many. The caller holds mu.
func (r *Recorder) series(name string) *[slots]point {
	if r.ring[name] == nil && name != Others && len(r.ring) >= maxModels {
		name = Others
	}
	if r.ring[name] == nil {
		r.ring[name] = new([slots]point)
		for i := max(0, r.at-int64(slots)+1); i <= r.at; i++ { // no requests, which is known
			r.ring[name][i%int64(slots)].seen = r.ring[All][i%int64(slots)].seen
		}
	}
	return r.ring[name]
}

// Series is the last hour of one model, or of all. Columns have one value for each interval, the
// oldest first. A null is an interval without a sample, or without a value of that kind.
type Series struct {
	IntervalS   float64    `json:"interval_s"`
	Model       string     `json:"model"`             // "": all
	Models      []string   `json:"models"`            // that have a series
	Requests    []*float64 `json:"requests_per_s"`    // that ended, or were refused
	Errors      []*float64 `json:"errors_per_s"`      // seen by users, client errors excluded
	FirstMedian []*float64 `json:"first_token_p50_s"` // of answers whose first token was observed
	FirstSlow   []*float64 `json:"first_token_p90_s"` // of the same
	Cached      []*float64 `json:"cached_share"`      // of prompt tokens, where engines reported it
	Waiting     []*float64 `json:"waiting"`           // requests in the queue of this replica at the end of the interval
}

// Show returns the series of a model, All for the sum. ok is false if it has none.
func (r *Recorder) Show(model string) (s Series, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ring := r.ring[model]
	if ring == nil {
		return s, false
	}
	s = Series{IntervalS: Interval.Seconds(), Model: model, Models: []string{}}
	for name := range r.ring {
		if name != All {
			s.Models = append(s.Models, name)
		}
	}
	slices.Sort(s.Models)
	value := func(to *[]*float64, v float64, known bool) {
		if known {
			*to = append(*to, &v)
		} else {
			*to = append(*to, nil)
		}
	}
	for _, column := range []*[]*float64{&s.Requests, &s.Errors, &s.FirstMedian, &s.FirstSlow, &s.Cached, &s.Waiting} {
		*column = []*float64{} // not null before the first sample
	}
	for i := max(0, r.at-int64(slots)+1); i <= r.at; i++ {
		p := &ring[i%int64(slots)]
		value(&s.Requests, float64(p.requests)/Interval.Seconds(), p.seen)
		value(&s.Errors, float64(p.errors)/Interval.Seconds(), p.seen)
		value(&s.FirstMedian, float64(p.middle), p.middle > 0)
		value(&s.FirstSlow, float64(p.slow), p.slow > 0)
		value(&s.Cached, float64(p.cached)/float64(max(p.prompt, 1)), p.prompt > 0)
		value(&s.Waiting, float64(p.waiting), p.seen)
	}
	return s, true
}
