package gate

import (
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// keptRefusals is the number of refused requests whose reason is kept.
const keptRefusals = 256

// refusals are the last refused requests. Safe for concurrent use.
type refusals struct {
	mu   sync.Mutex
	next int
	list [keptRefusals]explanation.Explanation // ring buffer
}

// refused records why a request was refused after waiting.
func (g *Gate) refused(r *request.Request, out rules.Outcome, waited time.Duration) {
	if out == rules.Departed || r.ID == "" {
		return // another cluster serves it, or it cannot be looked up
	}
	e := explanation.Explanation{
		RequestID: kept(r.ID), At: g.o.Now(), Model: kept(r.Model), Target: kept(r.Target),
		InputTokens: r.InputTokens, Priority: r.Priority, Refused: refusal(out, r).Error(),
		Queue: &explanation.Queue{Outcome: out.String(), Waited: waited.Seconds() * 1e3},
	}
	if c := g.config.Load(); c != nil {
		e.Queue.Flow = kept(identify(r, c.Identity))
	}
	g.lastRefusals.mu.Lock()
	g.lastRefusals.list[g.lastRefusals.next%keptRefusals] = e
	g.lastRefusals.next++
	g.lastRefusals.mu.Unlock()
}

// kept returns a copy of a name that outlives the request's buffers.
func kept(name string) string { return strings.Clone(budget.PrintableName(name)) }

// Explain describes a waiting or recently refused request by its x-request-id, or returns false. It
// searches all waiting requests.
func (g *Gate) Explain(id string) (explanation.Explanation, bool) {
	for _, grp := range g.all() {
		if e, ok := g.waiting(grp, id); ok {
			return e, true
		}
	}
	shown := budget.PrintableName(id)
	g.lastRefusals.mu.Lock()
	defer g.lastRefusals.mu.Unlock()
	for back := 1; back <= min(g.lastRefusals.next, keptRefusals); back++ {
		if e := g.lastRefusals.list[(g.lastRefusals.next-back)%keptRefusals]; e.RequestID == shown || e.RequestID == id {
			return e, true
		}
	}
	return explanation.Explanation{}, false
}

// waiting describes a request that waits in a group.
func (g *Gate) waiting(grp *group, id string) (e explanation.Explanation, ok bool) {
	grp.mu.Lock()
	defer grp.mu.Unlock()
	for _, w := range grp.waiters {
		if w == nil || w.request.ID != id && budget.PrintableName(w.request.ID) != id {
			continue
		}
		r := w.request
		s, waits := grp.core.Position(g.now(), w.h)
		if !waits {
			continue
		}
		status := grp.core.Status(g.now(), 0)
		return explanation.Explanation{
			RequestID: kept(r.ID), At: g.o.Now(), Model: kept(r.Model), Target: kept(r.Target),
			InputTokens: r.InputTokens, Priority: s.Priority,
			Queue: &explanation.Queue{
				Outcome: rules.Queued.String(), Reason: s.Reason, Flow: kept(s.Flow), Waited: s.WaitedS * 1e3, Expected: s.ExpectedS * 1e3,
				Ahead: s.Ahead, FlowWaiting: s.Waiting, FlowInFlight: s.InFlight, FlowShare: s.Share,
				Permits: status.Permits, InFlight: status.InFlight,
			},
		}, true
	}
	return e, false
}
