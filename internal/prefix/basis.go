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
		b.WriteString("its events or the requests sent to it, whichever was closer to its answers")
	case seen.Blocks > 0:
		b.WriteString("its events or the requests sent to it, whichever predicts more")
	default:
		b.WriteString("the requests sent to it")
	}
	switch s := m.sizing.Load(); {
	case s.Fixed && s.Blocks > 0:
		b.WriteString(", limited to the configured cache size")
	case m.sized(ep):
		b.WriteString(", limited to the engine's cache size")
	case s.Blocks > 0:
		b.WriteString(", limited to the configured cache size because the engine does not report one")
	default:
		b.WriteString(", limited to the most recent ones because the engine does not report its cache size")
	}
	answers, page := m.reportsCached(ep)
	switch {
	case answers && m.disputed(ep):
		b.WriteString("; corrected by its answers (its metrics page counts fewer cached tokens and is ignored)")
	case answers && page:
		b.WriteString("; corrected by its answers and its metrics page")
	case answers:
		b.WriteString("; corrected by its answers")
	case page:
		b.WriteString("; corrected by its metrics page")
	default:
		b.WriteString("; not confirmed by answers or metrics yet")
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

// reportsCached reports whether an endpoint's answers, and its metrics page, report cached tokens.
func (m *Matcher) reportsCached(ep *endpoint.Endpoint) (answers, page bool) {
	m.audits.Range(func(_, a any) bool {
		a.(*audits).with(ep.ID, func(r *record) { answers = answers || r.reporting > 0 })
		return !answers
	})
	if u := m.reuses.of(ep.ID); u != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		page = u.off || u.n >= reuseEnough
	}
	return answers, page
}
