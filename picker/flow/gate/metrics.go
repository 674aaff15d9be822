package gate

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/histograms"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// metrics counts ended waits, and reads queues on each scrape.
type metrics struct {
	g       *Gate
	seconds *prometheus.HistogramVec
	// observers caches observers of seconds, by priority and outcome.
	observers [201][16]atomic.Pointer[prometheus.Observer]

	requests, bytes, inFlight, capacity, outcomes, backlog *prometheus.Desc
}

func newMetrics(g *Gate) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("grapevine_flow_"+name, help, labels, nil)
	}
	return &metrics{
		g: g,
		seconds: prometheus.NewHistogramVec(histograms.Both(prometheus.HistogramOpts{
			Name: "grapevine_flow_wait_seconds", Help: "How long queued requests waited for capacity, by priority and outcome.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}), []string{"priority", "outcome"}),
		requests: desc("waiting_requests", "Requests waiting for capacity at this replica, by model and priority.", "model", "priority"),
		bytes:    desc("waiting_bytes", "Bytes of the waiting requests, by model and priority.", "model", "priority"),
		inFlight: desc("places_in_flight", "Permits that requests hold, at all replicas, by model.", "model"),
		capacity: desc("places", "Permits of the pool, by model.", "model"),
		backlog:  desc("backlog_seconds", "Seconds of work waiting for the pool at all replicas, by model. Every replica reports the total, so take the largest.", "model"),
		outcomes: desc("outcomes_total", "Requests by model and outcome: dispatched, or the reason why not.", "model", "outcome"),
	}
}

func (m *metrics) waited(priority int, out rules.Outcome, d time.Duration) {
	const most = 100
	priority = min(max(priority, -most), most)
	known := &m.observers[priority+most][out]
	o := known.Load()
	if o == nil {
		made := m.seconds.WithLabelValues(strconv.Itoa(priority), out.String())
		o = &made
		known.Store(o)
	}
	(*o).Observe(d.Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.seconds.Describe(ch)
	for _, d := range []*prometheus.Desc{m.requests, m.bytes, m.inFlight, m.capacity, m.outcomes, m.backlog} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.seconds.Collect(ch)
	for _, s := range m.g.Status() {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
		gauge(m.capacity, float64(s.Permits), s.Model)
		gauge(m.inFlight, float64(s.InFlight), s.Model)
		if s.Backlog != nil {
			gauge(m.backlog, *s.Backlog, s.Model)
		}
		for _, b := range s.Bands {
			gauge(m.requests, float64(b.Waiting), s.Model, strconv.Itoa(b.Priority))
			gauge(m.bytes, float64(b.Bytes), s.Model, strconv.Itoa(b.Priority))
		}
		for out, n := range s.Outcomes {
			ch <- prometheus.MustNewConstMetric(m.outcomes, prometheus.CounterValue, float64(n), s.Model, out)
		}
	}
}

// Status returns the state of every queue, in order of creation, with printable names of flows.
func (g *Gate) Status() []rules.Status {
	var list []rules.Status
	for _, grp := range g.all() {
		grp.mu.Lock()
		s := grp.core.Status(g.now(), 20)
		grp.mu.Unlock()
		s.Model = grp.model
		for _, b := range s.Bands {
			for i := range b.Flows {
				b.Flows[i].Flow = budget.PrintableName(b.Flows[i].Flow)
			}
		}
		list = append(list, s)
	}
	return list
}
