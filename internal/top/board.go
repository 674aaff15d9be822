package top

import (
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
)

// rateWindow is the time over which rates are computed, if there are readings of that age.
const rateWindow = 10 * time.Second

// board is the state of the group as the asked replicas report it.
type board struct {
	at       time.Time
	asked    int
	answered int
	first    *server.Status // of the first replica that answered; nil: none did
	problems []problems.Found

	seconds  float64 // time over which rates are computed; 0: unknown
	requests float64 // per second, at the replicas that answered
	errors   float64
	waiting  int
	cached   uint64 // prompt tokens, in the window or since the start
	prompt   uint64

	endpoints []row
}

// row is one endpoint. Its rates and tokens are sums over the replicas that answered.
type row struct {
	*server.EndpointStatus
	requests, errors float64 // per second
	cached, prompt   uint64
}

// history keeps readings for rates.
type history struct{ list []readings }

// add adds readings and returns the board.
func (h *history) add(now readings) *board {
	h.list = append(h.list, now)
	for len(h.list) > 2 && now.at.Sub(h.list[1].at) >= rateWindow {
		h.list = slices.Delete(h.list, 0, 1)
	}
	return newBoard(h.list[0], now)
}

// newBoard merges readings. before is an earlier reading, or the same one.
func newBoard(before, now readings) *board {
	b := &board{at: now.at, asked: len(now.list), seconds: now.at.Sub(before.at).Seconds()}
	var list problems.List
	for _, r := range now.list {
		if r.err != nil {
			list.Add(problems.NoReplica, r.address, cause(r.err).Error())
			continue
		}
		b.answered++
		if b.first == nil {
			b.first = r.status
		}
	}
	b.problems = list.Found()
	if b.first == nil {
		return b
	}
	at := map[string]*row{}
	b.endpoints = make([]row, len(b.first.Endpoints))
	for i := range b.first.Endpoints {
		e := &b.first.Endpoints[i]
		b.endpoints[i].EndpointStatus = e
		at[e.Address] = &b.endpoints[i]
	}
	for i, r := range now.list {
		if r.err == nil {
			b.mergeProblems(r.status)
			b.addTraffic(before.list[i].status, r.status, at)
		}
	}
	slices.SortStableFunc(b.problems, func(a, b problems.Found) int { return problems.Compare(a.Code, b.Code) })
	return b
}

// cause returns why a request failed, without its address.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// mergeProblems adds the problems that a replica reports. Replicas of a group report the same
// engines: of a code, the report with most subjects is shown.
func (b *board) mergeProblems(st *server.Status) {
	for _, f := range st.Problems {
		at := slices.IndexFunc(b.problems, func(g problems.Found) bool { return g.Code == f.Code })
		switch {
		case at < 0:
			b.problems = append(b.problems, f)
		case f.Count > b.problems[at].Count && f.Code != problems.NoReplica:
			b.problems[at] = f
		}
	}
}

// addTraffic adds a replica's rates. was is its earlier status, nil for none.
func (b *board) addTraffic(was, is *server.Status, at map[string]*row) {
	for _, q := range is.Queues {
		b.waiting += q.Waiting
	}
	if was == nil || was.Name != is.Name || was.UptimeS > is.UptimeS { // it restarted
		was = is
	}
	b.requests += b.rate(was.Traffic.Requests, is.Traffic.Requests)
	b.errors += b.rate(was.Traffic.Errors, is.Traffic.Errors)
	earlier := map[string]outcomes.EndpointTotals{}
	for i := range was.Endpoints {
		earlier[was.Endpoints[i].Address] = was.Endpoints[i].Traffic
	}
	for i := range is.Endpoints {
		e := &is.Endpoints[i]
		r, old, t := at[e.Address], earlier[e.Address], e.Traffic
		if r == nil {
			continue
		}
		r.requests += b.rate(old.Requests, t.Requests)
		r.errors += b.rate(old.Errors, t.Errors)
		cached, prompt := t.CachedTokens, t.PromptTokens
		if prompt > old.PromptTokens && cached >= old.CachedTokens {
			cached, prompt = cached-old.CachedTokens, prompt-old.PromptTokens
		}
		r.cached, r.prompt = r.cached+cached, r.prompt+prompt
		b.cached, b.prompt = b.cached+cached, b.prompt+prompt
	}
}

// rate returns the rate of a counter per second, 0 if it was reset.
func (b *board) rate(was, is uint64) float64 {
	if is < was || b.seconds <= 0 {
		return 0
	}
	return float64(is-was) / b.seconds
}

// severity returns the severity of the most urgent problem of an endpoint, "" for none.
func (b *board) severity(e *server.EndpointStatus) problems.Severity {
	if len(e.Problems) == 0 {
		return ""
	}
	p, ok := problems.Lookup(string(e.Problems[0]))
	if !ok {
		return problems.Warning // a newer replica's code
	}
	return p.Severity
}
