package prefix

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// renderTimeout bounds a repeated rendering of a prompt by an engine.
const renderTimeout = time.Second

// fullReport makes a vLLM engine announce a request's reused blocks, so that its events include
// missed ones.
const fullReport = `,"vllm_xargs":{"kv_cache_report_mode":"full"}`

// Cost limits of reports.
const (
	reportShare = 50  // one request in this many may ask
	reportAhead = 128 // requests that may ask in advance: a replica has the least data at startup
	// Bytes of events, at about reportToken per reused token.
	reportToken = 7
	reportBurst = 8 << 20
	reportRate  = 512 << 10 // bytes per second
)

// Conditions under which a report is worthwhile.
const (
	reportLeast = 64      // minimum unknown tokens
	reportMuch  = 256     // the same for requests in advance: a new turn alone has fewer
	reportPays  = 1. / 16 // minimum share of recent requests with more cached than known
	reportRetry = 16      // one in this many asks if it is not worthwhile
)

// reports is the budget of report requests.
type reports struct {
	sent, asked atomic.Uint64
	mu          sync.Mutex // guards the fields below
	bytes       float64    // spent and not yet refilled
	at          time.Time
}

// count counts a request.
func (b *reports) count() { b.sent.Add(1) }

// affords reports whether one more request may ask.
func (b *reports) affords() bool { return b.asked.Load() < b.sent.Load()/reportShare+reportAhead }

// least returns the minimum number of unknown tokens for a report.
func (b *reports) least() int {
	if b.asked.Load() < b.sent.Load()/reportShare {
		return reportLeast
	}
	return reportMuch
}

// spend charges a report of that many tokens to the budget, if there is enough.
func (b *reports) spend(tokens int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.bytes = max(0, b.bytes-now.Sub(b.at).Seconds()*reportRate)
	}
	b.at = now
	cost := float64(tokens * reportToken)
	if !b.affords() || b.bytes+cost > reportBurst {
		return false
	}
	b.asked.Add(1)
	b.bytes += cost
	return true
}

// asking is the report state of one endpoint.
type asking struct {
	asked uint64 // requests that asked
	// lack is the recent share of requests with more cached than known, for mostly unknown and
	// mostly known prompts; n is the number of each compared.
	lack [2]float64
	n    [2]int
	turn [2]uint32 // requests that did not ask because it was not worthwhile
	// missed counts under-predictions since requests asked.
	missed int
}

// kindOf distinguishes mostly known prompts from others.
func kindOf(known, prompt int) int {
	if 2*known >= prompt {
		return 1
	}
	return 0
}

// compared records the outcome of a request.
func (a *asking) compared(c *comparison, o outcome) {
	k := kindOf(c.precise, c.prompt)
	a.n[k] = min(a.n[k]+1, memory)
	near(&a.lack[k], share(o == under), a.n[k])
	if o == under && a.asked > 0 {
		a.missed++
	}
}

// pays reports whether a prompt with that many known tokens should ask.
func (a *asking) pays(known, prompt int, deaf bool) bool {
	k := kindOf(known, prompt)
	if !deaf && (a.n[k] < enough || a.lack[k] >= reportPays) {
		return true
	}
	a.turn[k]++
	return a.turn[k]%reportRetry == 0
}

// deaf reports whether an engine sends no usable reports. come is the number received.
func (a *asking) deaf(come uint64) bool {
	return a.asked >= enough && a.missed >= enough && come == 0
}

// Report returns members to add to a request's body so that an engine with incomplete data sends a
// full report; "" for none. The reader of the engine's events is informed, also if the client has
// requested a report.
func (m *Matcher) Report(r *request.Request, ep *endpoint.Endpoint) string {
	m.budget.count()
	if r.Kind != request.KindChat && r.Kind != request.KindCompletions || r.ModelSpan[1] == 0 {
		return ""
	}
	if r.Reports {
		if known, ok := m.expect(r, ep, nil); !ok && known >= 0 {
			m.audit.unaudited.Inc()
		}
		return ""
	}
	if !m.o.FullReport || len(m.o.Streams(ep)) == 0 || (ep.Engine != endpoint.EngineVLLM && ep.Gauges().Engine != endpoint.EngineVLLM) {
		return ""
	}
	if !m.lacks(r, ep) || !m.budget.affords() || r.SkipsCache() || bytes.Contains(r.Body, []byte(`"vllm_xargs"`)) {
		return ""
	}
	come := m.o.StreamInfo(ep).Reports
	if _, ok := m.expect(r, ep, func(known int) (ask bool) {
		if r.InputTokens-known < m.budget.least() {
			return false
		}
		m.auditsOf(r).with(ep.ID, func(rec *record) {
			ask = rec.reports.pays(known, r.InputTokens, rec.reports.deaf(come))
		})
		return ask && m.budget.spend(r.InputTokens, m.o.Now())
	}); !ok {
		return ""
	}
	m.auditsOf(r).with(ep.ID, func(rec *record) { rec.reports.asked++; rec.short = false })
	m.audit.reports.Inc()
	return fullReport
}

// lacks reports whether an endpoint's events are known to be incomplete: the stream was joined
// late, or the cache had more than they show. For prompts with distinct beginnings a report is
// useless.
func (m *Matcher) lacks(r *request.Request, ep *endpoint.Endpoint) (lacks bool) {
	if m.o.Read(ep.ID) == knowledge.Partial {
		return true
	}
	m.auditsOf(r).with(ep.ID, func(rec *record) {
		lacks = rec.short && !(rec.wrong == under && rec.head < usualBlockTokens)
	})
	return lacks
}

// expect announces a report to the reader of an endpoint's events. want, which may be nil, receives
// the number of known tokens and can prevent this. ok reports whether the reader was informed;
// known is -1 if there is nothing to announce.
func (m *Matcher) expect(r *request.Request, ep *endpoint.Endpoint, want func(known int) bool) (known int, ok bool) {
	if r.SkipsCache() {
		return -1, false // it reuses nothing
	}
	qs := m.exactOf(r, ep.ID)
	if m.o.Models != nil {
		ctx, cancel := context.WithTimeout(context.Background(), renderTimeout)
		defer cancel()
		as := m.o.Profiles.Of(ep.ID)
		text, info := m.o.Models.render(ctx, r, as)
		if text == nil {
			return 0, false
		}
		defer m.o.Models.giveBack(text)
		if as.Unknown(info.Facts) {
			return 0, false
		}
		qs = queries(nil, m.o.Models.root(r), text, &info)
	}
	if len(qs) == 0 {
		return 0, false
	}
	if want != nil {
		ids, runs := [1]block.EndpointID{ep.ID}, [1]block.Run{}
		for _, q := range qs {
			m.o.Index.Match(q, ids[:], runs[:])
			known += int(runs[0].Total())
		}
		if !want(known) {
			return known, false
		}
	}
	ok = true
	for _, q := range qs {
		ok = m.o.Expect(ep, q) && ok
	}
	return known, ok
}
