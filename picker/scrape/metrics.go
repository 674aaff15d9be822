package scrape

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label "result".
const (
	causeNone     = "ok"
	causeDial     = "dial" // connection refused or unreachable
	causeTimeout  = "timeout"
	causeStatus   = "status" // status other than 200
	causeTooLarge = "too_large"
	causeNoGauges = "no_gauges" // no gauges of a known engine
	causeBroken   = "broken"    // broken connection or HTTP error
)

type metrics struct {
	readings *prometheus.CounterVec // by result
	duration prometheus.Histogram
	bytes    prometheus.Counter
	skipped  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_scrape_readings_total", Help: "Readings of engine metrics by result."}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "grapevine_scrape_duration_seconds", Help: "Duration of successful readings, from the request to the end of the page.",
			Buckets: prometheus.ExponentialBuckets(250e-6, 4, 8)}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "grapevine_scrape_bytes_total", Help: "Bytes of engine metrics read."}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "grapevine_scrape_skipped_total", Help: "Lines that were too long and values that were not numbers, in pages that were read."}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.readings, m.duration, m.bytes, m.skipped} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) read(o outcome, took time.Duration) {
	m.readings.WithLabelValues(causeOf(o.err)).Inc()
	m.bytes.Add(float64(o.page.Bytes))
	if o.err == nil {
		m.duration.Observe(took.Seconds())
		m.skipped.Add(float64(o.page.Skipped))
	}
}

// watch registers gauges that are computed on collection.
func (m *metrics) watch(reg prometheus.Registerer, p *Poller) error {
	if reg == nil {
		return nil
	}
	return reg.Register(&fleet{p: p,
		endpoints: prometheus.NewDesc("grapevine_scrape_endpoints", "Endpoints by the state of their metrics.", []string{"state"}, nil),
		fast:      prometheus.NewDesc("grapevine_scrape_fast_endpoints", "Endpoints that are read at the fast interval.", nil, nil),
		inFlight:  prometheus.NewDesc("grapevine_scrape_in_flight", "Readings under way.", nil, nil),
		oldest:    prometheus.NewDesc("grapevine_scrape_oldest_sample_seconds", "Age of the oldest sample in use.", nil, nil),
	})
}

// fleet collects totals over the poller's endpoints.
type fleet struct {
	p                                 *Poller
	endpoints, fast, inFlight, oldest *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (f *fleet) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.endpoints, f.fast, f.inFlight, f.oldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (f *fleet) Collect(ch chan<- prometheus.Metric) {
	var states [len(stateNames)]int
	var fast, inFlight int
	var oldest time.Duration
	now := f.p.opts.Now()
	f.p.mu.Lock()
	for _, t := range f.p.targets {
		states[t.status.State]++
		if t.status.Fast {
			fast++
		}
		if t.inFlight {
			inFlight++
		}
		if !t.status.At.IsZero() {
			oldest = max(oldest, now.Sub(t.status.At))
		}
	}
	f.p.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for s, n := range states {
		gauge(f.endpoints, float64(n), stateNames[s])
	}
	gauge(f.fast, float64(fast))
	gauge(f.inFlight, float64(inFlight))
	gauge(f.oldest, oldest.Seconds())
}
