package served

import "github.com/prometheus/client_golang/prometheus"

// Values of the "result" label.
const (
	resultSame    = "same"
	resultChanged = "changed"
	resultFailed  = "failed"
)

type metrics struct {
	reads    *prometheus.CounterVec // by result
	confirms prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, o *Options) (*metrics, error) {
	m := &metrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_models_reads_total", Help: "Reads of engines' model lists, by result: same, changed or failed."}, []string{"result"}),
		confirms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "grapevine_models_confirms_total", Help: "Requests that waited for model lists to be read again because no endpoint was known to serve their model."}),
	}
	served := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "grapevine_models_served", Help: "Model names that at least one endpoint is known to serve."},
		func() float64 { return float64(len(o.Pool.Snapshot().Models())) })
	unknown := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "grapevine_models_unknown_endpoints", Help: "Endpoints whose models are unknown."},
		func() float64 { return float64(len(o.Pool.Snapshot().Open())) })
	for _, result := range []string{resultSame, resultChanged, resultFailed} {
		m.reads.WithLabelValues(result)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.reads, m.confirms, served, unknown} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
