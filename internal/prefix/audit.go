package prefix

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// audit counts how predictions compare with engines' reports.
type audit struct {
	diff *prometheus.HistogramVec
	over *prometheus.CounterVec
	// reports counts requests that asked their engine for a full report.
	reports prometheus.Counter
	// unaudited counts client-requested reports that no reader here can distinguish from additional
	// copies.
	unaudited prometheus.Counter
}

func newAudit(reg prometheus.Registerer) *audit {
	a := &audit{
		diff: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "grapevine_audit_predicted_minus_reported_tokens",
			Help:    "Predicted minus engine-reported cached tokens of a request, by kind of knowledge.",
			Buckets: []float64{-8192, -1024, -256, -64, -32, -16, -1, 0, 16, 32, 64, 256, 1024, 8192},
		}, []string{"knowledge"}),
		over: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_audit_overpredictions_total",
			Help: "Requests for which the engine had fewer cached tokens than predicted, by more than one block.",
		}, []string{"knowledge"}),
	}
	a.reports = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_audit_full_reports_total",
		Help: "Requests that asked their engine for a full report of reused blocks.",
	})
	a.unaudited = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_audit_foreign_reports_total",
		Help: "Client requests for a full report that the event reader cannot recognize; their blocks are counted twice.",
	})
	if reg != nil {
		reg.MustRegister(a.diff, a.over, a.reports, a.unaudited)
	}
	return a
}

// check compares a prediction with the engine's report of cached tokens, and removes records of
// missing blocks.
func (m *Matcher) check(r *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, u request.Usage) {
	records := m.trialsOf(r)
	if r.SkipsCache() {
		records.all.with(ep.ID, func(rec *record) { rec.skipped++ })
		return
	}
	block := ep.Gauges().BlockSize
	if !m.revealsCached(records, ep, h, u) {
		return
	}
	m.checkGuess(r, ep, h, u, guess{records.of(ep.ID), block})
	if h.Precise < 0 {
		return
	}
	c := comparison{
		prompt: u.PromptTokens, cached: u.CachedTokens, block: block, guess: -1,
		precise: min(int(h.Precise), (u.PromptTokens-1)/blockOf(block)*blockOf(block)),
	}
	if c.precise > u.CachedTokens { // one of several ranks: the best one may hold more
		c.precise = max(u.CachedTokens, c.precise-int(h.Run.Worst))
	}
	told := m.o.LastEvent(ep.ID)
	c.abreast, c.otherTopic = h.LastEvent > 0 && told > h.LastEvent, told == 0 && m.o.StreamInfo(ep).TopicMismatch != nil
	if h.Approximate >= 0 {
		c.guess = min(int(h.Approximate), u.PromptTokens-1)
	}
	if m.checkClass(records, r, ep, c) {
		return
	}
	var out consequence
	var said, apart Verdict
	whole, part := true, false
	records.all.with(ep.ID, func(rec *record) {
		rec.blind = 0
		if out = rec.add(c, m.o.Now()); out.changed {
			said = m.verdict(records.all.model, ep, rec)
		}
		whole = rec.wrong != nothing
	})
	records.apart.with(ep.ID, func(rec *record) {
		changed := rec.add(c, m.o.Now()).changed
		if part = changed; changed && !whole {
			apart = m.shapeVerdict(records.all.model, ep, rec, records.shape)
		}
	})
	m.follow(ep, out)
	if out.outcome == under && !c.abreast {
		m.o.ProbeTopics(ep)
	}
	if out.changed || part {
		m.o.VerdictChanged(ep)
	}
	switch {
	case out.changed && said.Reason != "":
		m.o.Log.Warn("predicted cache hits do not match the engine's answers", "endpoint", ep.Address, "model", said.Model, "reason", said.Reason, "do", said.Do)
	case out.changed:
		m.o.Log.Info("predicted cache hits match the engine's answers again", "endpoint", ep.Address, "model", said.Model)
	case apart.Reason != "":
		m.o.Log.Warn("predicted cache hits do not match the engine's answers", "endpoint", ep.Address, "model", apart.Model, "reason", apart.Reason, "do", apart.Do)
	}
}

// revealsCached reports whether an answer reveals the number of cached tokens, explicitly or by omission.
func (m *Matcher) revealsCached(t trials, ep *endpoint.Endpoint, h cycle.PrefixMatch, u request.Usage) bool {
	if u.Transferred {
		return false
	}
	if u.CachedSeen {
		m.reuses.make(ep.ID).report(m.o.Now())
	}
	none, size := false, ep.Gauges().BlockSize
	expects := func(rec *record) bool { return int(max(h.Precise, h.Run.Total())) > rec.slack(size) }
	t.all.with(ep.ID, func(rec *record) { rec.observeReport(u.CachedSeen, expects(rec)) })
	t.apart.with(ep.ID, func(rec *record) { none = rec.observeReport(u.CachedSeen, expects(rec)) })
	return u.CachedSeen || none
}

// guess is the state of the endpoint for which a run was estimated.
type guess struct {
	flags flags
	block int // tokens
}

// checkGuess compares the run used for the decision with the report, and removes records of missing
// blocks.
func (m *Matcher) checkGuess(r *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, u request.Usage, g guess) {
	kind, block := "approximate", g.block
	if h.Precise >= 0 && m.IndexAccepted(ep.ID) && g.flags&flagGuess == 0 {
		kind = "exact"
	}
	want := min(int(h.Run.Total()), u.PromptTokens-1)
	m.audit.diff.WithLabelValues(kind).Observe(float64(want - u.CachedTokens))
	if u.CachedSeen && kind == "approximate" {
		m.resize(ep, u.CachedTokens-want, max(blockOf(block), usualSlack)+1)
	}
	if want-u.CachedTokens > max(blockOf(block), usualSlack)+1 {
		m.audit.over.WithLabelValues(kind).Inc()
		m.o.Approx.Truncate(ep.ID, r.ChunkKeys, int(shareOf(u)*float64(r.ChunkBytes())))
	}
}

// shareOf returns the cached share of a prompt.
func shareOf(u request.Usage) float64 { return float64(u.CachedTokens) / float64(u.PromptTokens) }

// follow applies the result of a comparison to the endpoint's index data. Repeated over-predictions
// cause the stream to be verified or reread; repeated correct predictions confirm it.
func (m *Matcher) follow(ep *endpoint.Endpoint, out consequence) {
	if len(m.o.Streams(ep)) == 0 {
		return
	}
	switch {
	case out.invalid:
		m.o.Log.Warn("engine had fewer cached tokens than its events announced", "endpoint", ep.Address)
		m.o.Invalidate(ep)
	case out.confirmed:
		m.o.Confirm(ep)
	}
}
