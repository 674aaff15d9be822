package warmup

import "github.com/prometheus/client_golang/prometheus"

// Results of warm-ups that were sent.
const (
	answered = iota
	failed
	unanswered
)

// Reasons for not sending one.
const (
	busy = iota
	noMemory
	unreadable
	closing
)

var (
	results = [...]string{answered: "answered", failed: "failed", unanswered: "unanswered"}
	reasons = [...]string{busy: "busy", noMemory: "memory", unreadable: "unreadable", closing: "closing"}
)

type metrics struct {
	sent    [len(results)]prometheus.Counter
	dropped [len(reasons)]prometheus.Counter
	tokens  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, s *Sender) (*metrics, error) {
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{tokens: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_warmup_tokens_total", Help: "Prompt tokens of warm-ups sent, excluding those known to be cached at the endpoint.",
	})}
	sent := vec("grapevine_warmup_requests_total", "Warm-ups that ended, by result: answered, failed (any status but 2xx), or unanswered within 30 s.", "result")
	dropped := vec("grapevine_warmup_dropped_total", "Warm-ups requested by a decision but not sent, by reason.", "reason")
	for k, name := range results {
		m.sent[k] = sent.WithLabelValues(name)
	}
	for k, name := range reasons {
		m.dropped[k] = dropped.WithLabelValues(name)
	}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "grapevine_warmup_running", Help: "Warm-ups of this replica in progress."},
		func() float64 { return float64(s.running.Load()) })
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{sent, dropped, m.tokens, running} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
