package discovery

import "github.com/prometheus/client_golang/prometheus"

// Values of the label "result".
const (
	resultChanged   = "changed"
	resultUnchanged = "unchanged"
	resultProblems  = "problems"
	resultMissing   = "missing"
)

type metrics struct {
	reloads    *prometheus.CounterVec // by result
	ok         prometheus.Gauge
	lastOK     prometheus.Gauge
	endpoints  prometheus.Gauge
	unresolved prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_discovery_reloads_total", Help: "Readings of the endpoints file whose bytes had changed, by result."}, []string{"result"}),
		ok: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grapevine_discovery_file_ok", Help: "1 when the current endpoints file is in use, 0 when an older reading of it is."}),
		lastOK: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grapevine_discovery_last_success_timestamp_seconds", Help: "When the list of endpoints in use was read."}),
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grapevine_discovery_endpoints", Help: "Endpoints in the list in use."}),
		unresolved: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grapevine_discovery_unresolved_hosts", Help: "Host names whose last lookup failed."}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.reloads, m.ok, m.lastOK, m.endpoints, m.unresolved} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
