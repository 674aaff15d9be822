package prefix

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Basis describes the source of an endpoint's predictions if its events are not used, or not alone;
// "" otherwise. state is the result of State.
func (m *Matcher) Basis(ep *endpoint.Endpoint, state knowledge.State) string {
	if state.Followed() {
		return ""
	}
	var b strings.Builder
	switch seen := m.o.StreamInfo(ep); {
	case state == knowledge.Mismatched:
		b.WriteString("its events or what was sent there, whichever has been nearer to its answers")
	case seen.Blocks > 0:
		b.WriteString("its events or what was sent there, whichever tells of more")
	default:
		b.WriteString("what was sent there")
	}
	switch s := m.sizing.Load(); {
	case s.Fixed && s.Blocks > 0:
		b.WriteString(", as much of it as the configuration says")
	case m.sized(ep):
		b.WriteString(", as much of it as its cache holds by its own figures")
	case s.Blocks > 0:
		b.WriteString(", as much of it as the configuration says, since its engine does not tell the size of its cache")
	default:
		b.WriteString(", the latest of it, since its engine does not tell the size of its cache")
	}
	answers, page := m.telling(ep)
	switch {
	case answers && m.disputed(ep):
		b.WriteString("; corrected by its answers (its page counts fewer cached tokens than they report, and is not used)")
	case answers && page:
		b.WriteString("; corrected by its answers and by what its page counts as found")
	case answers:
		b.WriteString("; corrected by its answers")
	case page:
		b.WriteString("; corrected by what its page counts as found")
	default:
		b.WriteString("; nothing has told yet whether it is found there")
	}
	return b.String()
}

// sized reports whether an engine reports its cache size.
func (m *Matcher) sized(ep *endpoint.Endpoint) bool {
	_, told := m.sizes.Load(ep.ID)
	return told
}

// disputed reports whether an endpoint's metrics page counts fewer cached tokens than its answers
// report.
func (m *Matcher) disputed(ep *endpoint.Endpoint) bool {
	u := m.reuses.of(ep.ID)
	return u != nil && u.disputed.Load()
}

// telling reports whether an endpoint's answers, and its metrics page, report cached tokens.
func (m *Matcher) telling(ep *endpoint.Endpoint) (answers, page bool) {
	m.audits.Range(func(_, a any) bool {
		a.(*audits).with(ep.ID, func(r *record) { answers = answers || r.told > 0 })
		return !answers
	})
	if u := m.reuses.of(ep.ID); u != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		page = u.off || u.n >= reuseEnough
	}
	return answers, page
}
