package share

import (
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
)

const (
	whyLost    = "blocks cached before the oldest replayable event are missing until the engine stores them again"
	whySilent  = "its event stream was silent while the engine worked, and was reconnected"
	whyNothing = "nothing is known of it yet"
	whyReader  = "no member reads its events"
	whyStale   = "the index may list blocks that the engine has evicted"
)

// show updates the published state of every source, for frequent readers. It reports whether
// something is in progress that should be checked again soon.
func (x *Index) show() (moves bool) {
	for _, s := range x.order {
		suspect := s.plan.Suspect() > 0
		s.shown.stalled.Store(suspect)
		s.age((*x.byEndpoint.Load())[s.src.Endpoint])
		setText(&s.shown.aside, s.plan.Reason())
		if x.log == nil || s.isMode() == plan.Direct {
			continue
		}
		v, ok := s.logged()
		s.mu.Lock()
		shared, doubt := s.mode == plan.Shared && ok, s.head.mayBeStale
		s.mu.Unlock()
		k := standing{view: v, shared: shared, mayBeStale: doubt && v.Position.Lost > 0, read: s.shown.reads.Load(), suspect: suspect}
		state, why := k.state()
		s.shown.state.Store(uint32(state))
		s.shown.full.Store(shared && v.Position.Exact())
		s.shown.backed.Store(shared && v.Followed)
		s.shown.behind.Store(v.Lag)
		s.shown.final.Store(state == knowledge.Approximate && (why == whyStale || v.Reason != ""))
		setText(&s.shown.reader, v.Reader)
		setText(&s.shown.reason, why)
		moves = moves || !state.Followed() && !s.shown.final.Load()
	}
	return moves
}

// standing is the input for a source's state.
type standing struct {
	view       cluster.SourceView
	shared     bool
	mayBeStale bool // may contain entries that the engine has evicted
	read       bool // by this replica
	suspect    bool // the log does not move while the engine works
}

// state returns the state of a source in the log, and why it is not better. It is never better than
// the log's own.
func (k *standing) state() (knowledge.State, string) {
	v := &k.view
	switch {
	case !k.shared || v.Knowledge == knowledge.Unknown:
		return knowledge.Approximate, whyNothing
	case v.Reason != "":
		return knowledge.Approximate, v.Reason
	case v.Reader == "" && !k.read:
		return knowledge.Approximate, whyReader
	case k.mayBeStale:
		return knowledge.Approximate, whyStale
	case k.suspect:
		return knowledge.CatchingUp, whySilent
	case v.Knowledge == knowledge.Partial && v.Lag > 0: // a member has more
		return knowledge.CatchingUp, ""
	case v.Knowledge == knowledge.Partial:
		return knowledge.Partial, whyLost
	}
	return v.Knowledge, ""
}

func setText(at *atomic.Pointer[string], v string) {
	if p := at.Load(); p == nil || *p != v {
		text := v // v itself would be allocated each time
		at.Store(&text)
	}
}
