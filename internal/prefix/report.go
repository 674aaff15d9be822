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

// renderTimeout bounds how long an engine may take to render a prompt again.
const renderTimeout = time.Second

// fullReport is what makes a vLLM engine announce the blocks that a request
// reuses: its events then say what was missed.
const fullReport = `,"vllm_xargs":{"kv_cache_report_mode":"full"}`

// What reports may cost.
const (
	reportShare = 50  // one request in so many asks
	reportAhead = 128 // requests that may ask before their share has come: a replica knows least when it starts
	// Bytes of events, at about reportToken for each token that may be reused.
	reportToken = 7
	reportBurst = 8 << 20
	reportRate  = 512 << 10 // a second
)

// When asking pays.
const (
	reportLeast = 64      // tokens that are not known
	reportMuch  = 256     // the same for requests that ask before their share has come: a new turn alone has fewer
	reportPays  = 1. / 16 // share of such requests that found more than was known, of late
	reportRetry = 16      // one in so many asks where it did not pay
)

// reports is the budget of requests that ask.
type reports struct {
	sent, asked atomic.Uint64
	mu          sync.Mutex // of what follows; taken by requests that may ask
	bytes       float64    // spent and not yet come again
	at          time.Time
}

// count notes a request.
func (b *reports) count() { b.sent.Add(1) }

// affords reports whether one more may ask.
func (b *reports) affords() bool { return b.asked.Load() < b.sent.Load()/reportShare+reportAhead }

// least is how many tokens must be unknown for a request to ask.
func (b *reports) least() int {
	if b.asked.Load() < b.sent.Load()/reportShare {
		return reportLeast
	}
	return reportMuch
}

// spend takes a request whose report may tell of tokens out of the budget, if that
// allows it.
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

// asking is what is known of the reports of one endpoint.
type asking struct {
	asked uint64 // requests that asked
	// lack is how often the engine had more than was known of late, where little of a
	// prompt was known and where most was; n is how many of each were compared.
	lack [2]float64
	n    [2]int
	turn [2]uint32 // requests that did not ask since it did not pay
	// missed is how often it had more since requests asked.
	missed int
}

// kindOf tells prompts of which most is known from others.
func kindOf(known, prompt int) int {
	if 2*known >= prompt {
		return 1
	}
	return 0
}

// compared enters what came of a request.
func (a *asking) compared(c *comparison, o outcome) {
	k := kindOf(c.precise, c.prompt)
	a.n[k] = min(a.n[k]+1, memory)
	near(&a.lack[k], share(o == under), a.n[k])
	if o == under && a.asked > 0 {
		a.missed++
	}
}

// pays reports whether a prompt of which so much is known should ask.
func (a *asking) pays(known, prompt int, deaf bool) bool {
	k := kindOf(known, prompt)
	if !deaf && (a.n[k] < enough || a.lack[k] >= reportPays) {
		return true
	}
	a.turn[k]++
	return a.turn[k]%reportRetry == 0
}

// deaf reports whether an engine makes no reports that are understood, of which come
// have come.
func (a *asking) deaf(come uint64) bool {
	return a.asked >= enough && a.missed >= enough && come == 0
}

// Report returns what to add to the body of a request that goes to an engine of
// which too little is known, so that it makes a full report; "" for nothing. Whoever
// reads the engine's events is told, also where the client has asked for a report.
func (m *Matcher) Report(r *request.Request, ep *endpoint.Endpoint) string {
	m.budget.count()
	if r.Kind != request.KindChat && r.Kind != request.KindCompletions || r.ModelSpan[1] == 0 {
		return ""
	}
	if r.Reports {
		if known, ok := m.expect(r, ep, nil); !ok && known >= 0 {
			m.audit.unheard.Inc()
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

// lacks reports whether an endpoint's events are known not to tell all that its cache
// holds: it was joined late, or had more than they say. Where prompts differ from the
// beginning on a report tells nothing.
func (m *Matcher) lacks(r *request.Request, ep *endpoint.Endpoint) (lacks bool) {
	if m.o.Read(ep.ID) == knowledge.Partial {
		return true
	}
	m.auditsOf(r).with(ep.ID, func(rec *record) {
		lacks = rec.short && !(rec.wrong == under && rec.head < usualBlockTokens)
	})
	return lacks
}

// expect tells the reader of an endpoint's events of a report to come, if want, which
// may be nil, says so of the tokens that are known of the prompt there. ok reports
// whether the reader was told; known is -1 where there is nothing to tell.
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
