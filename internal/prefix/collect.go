package prefix

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// collector exports verdicts on scrape, so that removed endpoints leave no series.
type collector struct {
	m                *Matcher
	endpoints        func() []*endpoint.Endpoint
	compared, states *prometheus.Desc
}

// Collect registers a collector of the endpoints' verdicts.
func (m *Matcher) Collect(reg prometheus.Registerer, endpoints func() []*endpoint.Endpoint) error {
	return reg.Register(&collector{
		m: m, endpoints: endpoints,
		compared: prometheus.NewDesc("grapevine_audit_comparisons_total",
			"Predictions compared with the cached tokens that engines report, by outcome: right (within a block), over, under, skipped (the request read no cache).",
			[]string{"endpoint", "model", "outcome"}, nil),
		states: prometheus.NewDesc("grapevine_audit_state",
			"1 for the audited knowledge state of an endpoint's cache.",
			[]string{"endpoint", "model", "state", "by_events"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.compared
	ch <- c.states
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, ep := range c.endpoints() {
		for _, v := range c.m.Verdicts(ep) {
			if v.Prompts != "" {
				continue // already counted
			}
			for _, o := range []struct {
				name string
				n    uint64
			}{{"right", v.Right}, {"over", v.Over}, {"under", v.Under}, {"skipped", v.Skipped}} {
				ch <- prometheus.MustNewConstMetric(c.compared, prometheus.CounterValue, float64(o.n), ep.Address, v.Model, o.name)
			}
			ch <- prometheus.MustNewConstMetric(c.states, prometheus.GaugeValue, 1, ep.Address, v.Model, v.State, strconv.FormatBool(v.Uses == usesEvents))
		}
	}
}
