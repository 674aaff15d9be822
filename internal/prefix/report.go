package prefix

import (
	"bytes"
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// trimTimeout bounds how long an engine may take to render a prompt again for trim.
const trimTimeout = time.Second

// trim makes the index forget the part of a prompt that the engine did not have.
func (m *Matcher) trim(r *request.Request, ep *endpoint.Endpoint, cached float64) {
	if m.o.Models == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), trimTimeout)
	defer cancel()
	text, info := m.o.Models.render(ctx, r)
	if text == nil {
		return
	}
	defer m.o.Models.giveBack(text)
	for _, q := range queries(nil, m.o.Models.root(r), text, info.Ends) {
		for _, stream := range m.o.Streams(ep) {
			m.o.Index.Trim(indexer.Source{Endpoint: ep.ID, Rank: stream.Rank}, q, int(cached*float64(len(q.Bytes))))
		}
	}
}

// fullReport is what makes a vLLM engine announce the blocks that a request
// reuses: its events then say what was missed.
const fullReport = `,"vllm_xargs":{"kv_cache_report_mode":"full"}`

// reportShare is the largest share of requests that are made to report.
const reportShare = 50 // one in so many

// Report returns what to add to the body of a request that goes to an engine of
// which too little is known, so that it makes a full report; "" for nothing. Whoever
// reads the engine's events is told, also where the client has asked for a report.
func (m *Matcher) Report(r *request.Request, ep *endpoint.Endpoint) string {
	total := m.sent.Add(1)
	if r.Kind != request.KindChat && r.Kind != request.KindCompletions || r.ModelSpan[1] == 0 {
		return ""
	}
	if r.Reports {
		if !m.expect(r, ep) {
			m.audit.unheard.Inc()
		}
		return ""
	}
	if !m.o.FullReport || len(m.o.Streams(ep)) == 0 || (ep.Engine != endpoint.EngineVLLM && ep.Gauges().Engine != endpoint.EngineVLLM) {
		return ""
	}
	if m.asked.Load()*reportShare >= total || bytes.Contains(r.Body, []byte(`"vllm_xargs"`)) || !m.wantsReport(r, ep) || !m.expect(r, ep) {
		return ""
	}
	m.asked.Add(1)
	m.audit.reports.Inc()
	return fullReport
}

// expect tells the reader of an endpoint's events of a report to come, and reports
// whether it could.
func (m *Matcher) expect(r *request.Request, ep *endpoint.Endpoint) bool {
	if r.SkipsCache() {
		return true // it reuses nothing
	}
	if m.o.Models == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), trimTimeout)
	defer cancel()
	text, info := m.o.Models.render(ctx, r)
	if text == nil {
		return false
	}
	defer m.o.Models.giveBack(text)
	known := true
	for _, q := range queries(nil, m.o.Models.root(r), text, info.Ends) {
		known = m.o.Expect(ep, q) && known
	}
	return known
}

// wantsReport reports, once for each finding, that an engine was found to have more
// than is known of it.
func (m *Matcher) wantsReport(r *request.Request, ep *endpoint.Endpoint) (wants bool) {
	m.auditsOf(r).with(ep.ID, func(rec *record) { wants, rec.short = rec.short, false })
	return wants
}
