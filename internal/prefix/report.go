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

// Report returns what to add to the body of a request that goes to an engine of
// which too little is known, so that it makes a full report; "" for nothing.
func (m *Matcher) Report(r *request.Request, ep *endpoint.Endpoint) string {
	if !m.o.FullReport || (r.Kind != request.KindChat && r.Kind != request.KindCompletions) || r.ModelSpan[1] == 0 {
		return ""
	}
	if len(m.o.Streams(ep)) == 0 || (ep.Engine != endpoint.EngineVLLM && ep.Gauges().Engine != endpoint.EngineVLLM) {
		return ""
	}
	if bytes.Contains(r.Body, []byte(`"vllm_xargs"`)) || !m.wantsReport(r, ep) {
		return ""
	}
	m.audit.reports.Inc()
	return fullReport
}

// wantsReport reports, once for each finding, that an engine was found to have more
// than is known of it.
func (m *Matcher) wantsReport(r *request.Request, ep *endpoint.Endpoint) (wants bool) {
	m.auditsOf(r).with(ep.ID, func(rec *record) { wants, rec.short = rec.short, false })
	return wants
}
