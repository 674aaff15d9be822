package prefix

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// An endpoint's knowledge is doubted when that share of its last comparisons
// were over-predictions, and trusted again after a run of right ones. One
// over-prediction alone is ordinary: a full cache evicts between decision and prefill.
const (
	judgeMemory = 16  // comparisons that count
	judgeDoubt  = 0.5 // share of over-predictions
	judgeTrust  = 8   // right ones in a row
)

// judge keeps the record of comparisons per endpoint. It is safe for concurrent use.
type judge struct {
	mu   sync.Mutex
	over map[indexer.EndpointID]*judgeRecord
}

type judgeRecord struct {
	share float64 // of over-predictions, exponentially weighted
	seen  int
	right int  // in a row
	under bool // the engine had more than was known, and has not been asked for it
}

// add enters one comparison and returns what follows from it.
func (j *judge) add(ep indexer.EndpointID, v verdict) (distrust, trust bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over == nil {
		j.over = map[indexer.EndpointID]*judgeRecord{}
	}
	r := j.over[ep]
	if r == nil {
		r = &judgeRecord{}
		j.over[ep] = r
	}
	x := 0.0
	if v.over {
		x = 1
	}
	r.under = r.under || v.under
	r.seen++
	r.share += (x - r.share) / float64(min(r.seen, judgeMemory))
	if r.right++; v.over || v.under {
		r.right = 0
	}
	if r.seen >= judgeMemory/2 && r.share >= judgeDoubt {
		*r = judgeRecord{}
		return true, false
	}
	return false, r.right >= judgeTrust
}

func (j *judge) forget(ep indexer.EndpointID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.over, ep)
}

// judged draws the consequences of a comparison for an endpoint's knowledge:
// blocks that the engine did not have are forgotten where no replay could correct
// the index; a record of over-predictions makes the stream be verified or read
// anew; a record of right predictions ends a doubt.
func (m *Matcher) judged(r *request.Request, ep *endpoint.Endpoint, v verdict) {
	streams := m.o.Streams(ep)
	if len(streams) == 0 {
		return
	}
	if v.over && streams[0].Replay == "" {
		m.trim(r, ep, v.cached)
	}
	distrust, trust := m.judge.add(ep.ID, v)
	switch {
	case distrust:
		m.o.Log.Warn("engine had less cached than its events said", "endpoint", ep.Address)
		m.o.Distrust(ep)
	case trust:
		m.o.Vouch(ep)
	}
}

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

// wantsReport reports, once, that an engine was found to have more than is known of it.
func (j *judge) wantsReport(ep indexer.EndpointID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.over[ep]
	if r == nil || !r.under {
		return false
	}
	r.under = false
	return true
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
	if bytes.Contains(r.Body, []byte(`"vllm_xargs"`)) || !m.judge.wantsReport(ep.ID) {
		return ""
	}
	m.audit.reports.Inc()
	return fullReport
}
