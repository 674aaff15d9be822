package modelfiles

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics collects the state of model files.
type metrics struct {
	s         *Source
	state     *prometheus.Desc
	ignored   *prometheus.Desc
	downloads *prometheus.CounterVec
	transfers *prometheus.CounterVec
	sent      prometheus.Counter
}

func newMetrics(s *Source) *metrics {
	m := &metrics{
		s:       s,
		state:   prometheus.NewDesc("grapevine_model_files", "1 for the state of the files of a model that engines serve: pending, ready, gated, not_found, offline, refused or failed. Models in other states than ready are matched approximately.", []string{"model", "state"}, nil),
		ignored: prometheus.NewDesc("grapevine_model_files_ignored", "Models of engines beyond the limit, whose files are not looked for.", nil, nil),
		downloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_model_downloads_total", Help: "Downloads of a model's files, by result: ready, gated, not_found, refused or failed."}, []string{"result"}),
		transfers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_model_peer_transfers_total", Help: "Transfers of a model's files from other replicas, by result: ready, damaged (wrong content), refused (unacceptable names, sizes or revision, or two replicas with different content), lost (no answer) or failed (not stored here)."}, []string{"result"}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "grapevine_model_peer_sent_bytes_total", Help: "Bytes of model files sent to other replicas."}),
	}
	for _, r := range []string{transferReady, transferDamaged, transferRefused, transferLost, transferFailed} {
		m.transfers.WithLabelValues(r)
	}
	for _, st := range []State{StateReady, StateGated, StateNotFound, StateRefused, StateFailed} {
		m.downloads.WithLabelValues(string(st))
	}
	return m
}

// downloaded counts a download.
func (m *metrics) downloaded(err error) {
	result := StateReady
	if err != nil {
		result = StateFailed
		var e *hubError
		if errors.As(err, &e) {
			result = e.state
		}
	}
	m.downloads.WithLabelValues(string(result)).Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.state
	ch <- m.ignored
	m.downloads.Describe(ch)
	m.transfers.Describe(ch)
	m.sent.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, st := range m.s.Status() {
		ch <- prometheus.MustNewConstMetric(m.state, prometheus.GaugeValue, 1, st.Model, string(st.State))
	}
	m.s.mu.Lock()
	ignored := m.s.ignored
	m.s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(m.ignored, prometheus.GaugeValue, float64(ignored))
	m.downloads.Collect(ch)
	m.transfers.Collect(ch)
	m.sent.Collect(ch)
}
