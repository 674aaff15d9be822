package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// metrics holds the counters of a Monitor. Per-endpoint values are collected on scrape, so removed
// endpoints leave no series.
type metrics struct {
	m       *Monitor
	changes *prometheus.CounterVec
	probes  [numResults]prometheus.Counter

	state, share, full, avoided, bad, good, ignored *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, m *Monitor) (*metrics, error) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("grapevine_health_"+name, help, labels, nil)
	}
	x := &metrics{
		m: m,
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_health_changes_total", Help: "Changes of endpoints' health, by the new state and its cause.",
		}, []string{"state", "cause"}),
		state:   desc("state", "1 for the state that an endpoint is in.", "endpoint", "state", "cause"),
		share:   desc("share", "Share of decisions in which an endpoint may be a candidate, 0 to 1.", "endpoint"),
		full:    desc("full", "1 while an endpoint is passed over because its engine rejected a request for lack of capacity.", "endpoint"),
		avoided: desc("models_avoided", "Models whose requests go elsewhere, because they fail at an endpoint that answers others.", "endpoint"),
		bad:     desc("requests_bad_total", "Requests of this replica that spoke against an endpoint, by cause.", "endpoint", "cause"),
		good:    desc("requests_good_total", "Requests of this replica that moved or ended in time.", "endpoint"),
		ignored: desc("evidence_ignored", "Models and roles of which most endpoints are unhealthy, so that evidence against them is ignored."),
	}
	probes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "grapevine_health_probes_total", Help: "Probes of endpoints that are unhealthy or had no request for long, by result.",
	}, []string{"result"})
	for r, name := range [...]string{Unknown: "unknown", Passed: "passed", Missed: "late", Denied: "denied", Hung: "unanswered", Alive: "alive", NoRoom: "late", Full: "unknown"} {
		x.probes[r] = probes.WithLabelValues(name)
	}
	if reg == nil {
		return x, nil
	}
	for _, c := range []prometheus.Collector{x.changes, probes, x} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (x *metrics) changed(c health.Change) {
	x.changes.WithLabelValues(c.To.State.String(), c.To.Cause.String()).Inc()
}

func (x *metrics) probed(r Result) { x.probes[r].Inc() }

// Describe implements prometheus.Collector.
func (x *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{x.state, x.share, x.full, x.avoided, x.bad, x.good, x.ignored} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (x *metrics) Collect(ch chan<- prometheus.Metric) {
	snap, now := x.m.opts.Pool.Health(), x.m.opts.Now()
	for _, ep := range x.m.opts.Pool.Snapshot().Endpoints {
		v, e := snap.View(int(ep.ID)), ep.Tracker().Evidence(now)
		ch <- prometheus.MustNewConstMetric(x.state, prometheus.GaugeValue, 1, ep.Address, v.Word(), v.Cause.String())
		ch <- prometheus.MustNewConstMetric(x.share, prometheus.GaugeValue, float64(v.Share)/health.Full, ep.Address)
		full := 0.
		if ep.Tracker().FullAt(now.UnixNano()) {
			full = 1
		}
		ch <- prometheus.MustNewConstMetric(x.full, prometheus.GaugeValue, full, ep.Address)
		ch <- prometheus.MustNewConstMetric(x.avoided, prometheus.GaugeValue, float64(ep.Tracker().AvoidedCount()), ep.Address)
		ch <- prometheus.MustNewConstMetric(x.good, prometheus.CounterValue, float64(e.Good), ep.Address)
		for c, n := range e.Bad {
			if cause := health.Cause(c); n > 0 || cause.Counted() {
				ch <- prometheus.MustNewConstMetric(x.bad, prometheus.CounterValue, float64(n), ep.Address, cause.String())
			}
		}
	}
	ignored := 0
	if snap != nil {
		for _, t := range snap.GroupProblems {
			if t.Ignored > 0 || t.Failing > 0 {
				ignored++
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(x.ignored, prometheus.GaugeValue, float64(ignored))
}
