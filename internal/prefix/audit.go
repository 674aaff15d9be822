package prefix

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// audit counts how predictions compare with what engines report.
type audit struct {
	diff *prometheus.HistogramVec
	over *prometheus.CounterVec
	// reports counts requests that asked their engine for a full report.
	reports prometheus.Counter
}

// verdict is the outcome of one comparison.
type verdict struct {
	over   bool    // the engine had less than was predicted, beyond the slack
	under  bool    // it had more
	cached float64 // share of the prompt that it had
}

// slack is how many tokens a prediction may be off without a consequence: a
// block of the usual sizes, and the last token, which is always computed.
const slack = 33

func newAudit(reg prometheus.Registerer) *audit {
	a := &audit{
		diff: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "grapevine_audit_predicted_minus_reported_tokens",
			Help:    "Predicted minus engine-reported cached tokens of a request, by kind of knowledge.",
			Buckets: []float64{-8192, -1024, -256, -64, -32, -16, -1, 0, 16, 32, 64, 256, 1024, 8192},
		}, []string{"knowledge"}),
		over: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_audit_overpredictions_total",
			Help: "Requests for which the engine had less cached than was predicted, beyond the slack of two blocks.",
		}, []string{"knowledge"}),
	}
	a.reports = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_audit_full_reports_total",
		Help: "Requests that asked their engine to announce the blocks that they reuse.",
	})
	if reg != nil {
		reg.MustRegister(a.diff, a.over, a.reports)
	}
	return a
}

// check compares what was predicted with the cached tokens that an engine
// reports, and forgets what was not there.
func (m *Matcher) check(r *request.Request, ep *endpoint.Endpoint, h picker.Held, u picker.Usage) {
	exact := h.Precise >= 0 && m.Believed(ep.ID)
	kind := "approximate"
	if exact {
		kind = "exact"
	}
	want := min(int(h.Run.Total()), u.PromptTokens-1)
	m.audit.diff.WithLabelValues(kind).Observe(float64(want - u.CachedTokens))
	v := verdictOf(want, u)
	if v.over {
		m.audit.over.WithLabelValues(kind).Inc()
		m.o.Approx.Truncate(ep.ID, r.ChunkKeys, int(v.cached*float64(r.ChunkBytes())))
	}
	switch {
	case exact:
		m.judged(r, ep, v)
	case h.Precise >= 0:
		m.judged(r, ep, verdictOf(min(int(h.Precise), u.PromptTokens-1), u))
	}
}

// verdictOf compares a prediction with what the engine reported.
func verdictOf(want int, u picker.Usage) verdict {
	return verdict{
		over: want-u.CachedTokens > slack, under: u.CachedTokens-want > slack,
		cached: float64(u.CachedTokens) / float64(u.PromptTokens),
	}
}
