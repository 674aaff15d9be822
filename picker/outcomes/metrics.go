package outcomes

import (
	"sort"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Histogram buckets, in seconds.
var (
	firstBounds = []float64{.01, .03, .1, .2, .5, 1, 2, 5, 10, 30, 100}
	wholeBounds = []float64{.1, .3, 1, 2, 5, 10, 30, 100, 300, 1000}
)

// histogram counts durations. The row's lock guards it.
type histogram struct {
	bounds []float64
	counts [12]uint64 // by bucket; the last is above all bounds
	sum    float64
}

func (h *histogram) observe(d time.Duration) {
	h.counts[sort.SearchFloat64s(h.bounds, d.Seconds())]++
	h.sum += d.Seconds()
}

func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	total, buckets := uint64(0), make(map[float64]uint64, len(h.bounds))
	for i, b := range h.bounds {
		total += h.counts[i]
		buckets[b] = total
	}
	total += h.counts[len(h.bounds)]
	return prometheus.MustNewConstHistogram(desc, total, h.sum, buckets, labels...)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descRequests   = desc("grapevine_requests_total", "Placed requests that ended, by the endpoint that served last, the model and the status class; none: the status is unknown.", "endpoint", "model", "class")
	descFirst      = desc("grapevine_request_first_token_seconds", "Time from decision to first token of answers that were streamed and seen, by endpoint.", "endpoint")
	descWhole      = desc("grapevine_request_seconds", "Time from decision to the end of complete answers, by endpoint.", "endpoint")
	descUsers      = desc("grapevine_user_requests_total", "User requests, placed or not, by model.", "model")
	descUserFirst  = desc("grapevine_user_first_token_seconds", "Time from the decision to the first token of users' requests, where observed, by model.", "model")
	descErrors     = desc("grapevine_user_errors_total", "Requests that failed for users without a client error, by model and cause.", "model", "cause")
	descSaturation = desc("grapevine_model_saturation", "How full the engines of a base model are: the mean, over its endpoints whose gauges are fresh, of what is more: waiting requests over 5, or use of the KV memory over 0.8. At 1 they count as full. Without a name: endpoints of which no model is known.", "model")
	descUnfinished = desc("grapevine_user_unfinished_total", "Responses that ended early or never started, by model: the engine failed or the client disconnected.", "model")
)

// Describe implements prometheus.Collector.
func (t *Counter) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRequests, descFirst, descWhole, descUsers, descUserFirst, descErrors, descUnfinished, descSaturation} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (t *Counter) Collect(ch chan<- prometheus.Metric) {
	s := t.pool.Snapshot()
	for _, ep := range s.Endpoints {
		t.mu.Lock()
		r := t.rows[ep.ID]
		t.mu.Unlock()
		if r != nil {
			r.collect(s, ch)
		}
	}
	for name, full := range saturation(s.Endpoints, monotime.Now()) {
		ch <- prometheus.MustNewConstMetric(descSaturation, prometheus.GaugeValue, full, name)
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropUnserved()
	for name, u := range t.users {
		count(descUsers, u.requests, name)
		count(descUnfinished, u.unfinished, name)
		ch <- u.first.metric(descUserFirst, u.firstSum, name)
		for i, cause := range userCauses {
			count(descErrors, u.errors[i], name, cause)
		}
	}
}

// An engine counts as full with this many waiting requests, or this KV-cache usage. Gauges older
// than freshGauges are ignored.
const (
	fullQueue   = 5.
	fullMemory  = .8
	freshGauges = 5 * time.Second
)

// saturation returns how full the engines of each base model are, for at most maxModels models.
func saturation(endpoints []*endpoint.Endpoint, now time.Time) map[string]float64 {
	type sum struct{ full, engines float64 }
	sums := map[string]sum{}
	for _, ep := range endpoints {
		g := ep.Reading(now.UnixNano())
		name := ep.Base()
		s, known := sums[name]
		if !g.Sampled || g.Age > freshGauges || !known && len(sums) >= maxModels {
			continue
		}
		sums[name] = sum{s.full + max(float64(g.Waiting)/fullQueue, g.KVUse/fullMemory), s.engines + 1}
	}
	out := make(map[string]float64, len(sums))
	for name, s := range sums {
		out[name] = s.full / s.engines
	}
	return out
}

func (r *endpointCounts) collect(s *endpoint.Snapshot, ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropUnserved(s)
	for i := range r.models {
		m := &r.models[i]
		for class, n := range m.classes {
			if n > 0 || class == 2 || class == 5 {
				ch <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(n), r.address, m.name, classes[class])
			}
		}
	}
	ch <- r.first.metric(descFirst, r.address)
	ch <- r.whole.metric(descWhole, r.address)
}
