package prefix

import (
	"cmp"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// unlikeKey identifies a model at an endpoint.
type unlikeKey struct {
	model string
	id    block.EndpointID
}

// unlike describes how an engine's rendering differs from the local one, for chats and for chats
// with tools; "" if it does not.
type unlike struct{ chats, tools string }

// doUnlike is the suggested remedy.
const doUnlike = "compare the chat template, its arguments, the model's folder and the time zone with those of the engine (grapevine check --live shows both sides)"

// NoteRenderingDiffs records an engine's rendering of fixed chats before requests reveal it: the
// differences for chats, and for chats with tools; "" if there are none. Until enough answers have
// been compared, decisions for such prompts use sent prompts.
func (m *Matcher) NoteRenderingDiffs(ep *endpoint.Endpoint, model, chats, tools string) {
	key := unlikeKey{model, ep.ID}
	if chats+tools == "" {
		if _, was := m.unlike.LoadAndDelete(key); !was {
			return
		}
	} else {
		m.unlike.Store(key, unlike{chats, tools})
	}
	of, _ := m.audits.LoadOrStore(model, newAudits(model))
	a := of.(*audits)
	for _, kind := range []request.Kind{request.KindChat, request.KindResponses, request.KindMessages} {
		for v := range variants {
			why := chats
			if v == withTools {
				why = cmp.Or(chats, tools)
			}
			a.ofShape(shape(kind)*variants+v).with(ep.ID, func(r *record) { r.unlike = why != "" })
		}
	}
}

func (m *Matcher) unlikeOf(model string, id block.EndpointID) unlike {
	if u, ok := m.unlike.Load(unlikeKey{model, id}); ok {
		return u.(unlike)
	}
	return unlike{}
}

// predictVerdict derives a verdict from an engine's rendering of fixed chats while there are too few
// answers. It reports whether it did.
func (m *Matcher) predictVerdict(v *Verdict, r *record, why string) bool {
	if why == "" || r.n >= enough || !v.state.Followed() {
		return false
	}
	v.state, v.Uses, v.Reason, v.Do = knowledge.Mismatched, usesSent, why, doUnlike
	v.State = v.state.String()
	return true
}

// predictedVerdicts returns the verdicts on kinds of chats that an engine renders differently.
func (m *Matcher) predictedVerdicts(a *audits, ep *endpoint.Endpoint) (out []Verdict) {
	u := m.unlikeOf(a.model, ep.ID)
	for _, s := range []struct {
		shape
		why string
	}{{shape(request.KindChat) * variants, u.chats}, {shape(request.KindChat)*variants + withTools, u.tools}} {
		b := a.shapes[s.shape].Load()
		if b == nil || s.why == "" {
			continue
		}
		b.mu.Lock()
		if r := b.records[ep.ID]; r != nil {
			v := m.verdict(a.model, ep, r)
			if v.Prompts = s.String(); m.predictVerdict(&v, r, s.why) {
				out = append(out, v)
			}
		}
		b.mu.Unlock()
	}
	return out
}
