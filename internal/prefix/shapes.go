package prefix

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// shape is a class of prompts that engines render by separate code, so that one may differ while
// all others match.
type shape uint8

// Content of a prompt other than text.
const (
	bare shape = iota
	withTools
	withMedia
	withIDs
	variants
)

const numShapes = shape(request.KindGenerate+1) * variants

func shapeOf(r *request.Request) shape {
	s := shape(r.Kind) * variants
	switch {
	case r.Prompt.Form == request.FormTokens, r.Prompt.Form == request.FormBatches:
		return s + withIDs
	case r.Prompt.Media > 0:
		return s + withMedia
	case r.Prompt.Tools.Found():
		return s + withTools
	}
	return s
}

// String describes the prompts in the plural.
func (s shape) String() string {
	kinds := [...]string{
		request.KindOther: "other prompts", request.KindCompletions: "completions", request.KindChat: "chats", request.KindResponses: "responses",
		request.KindMessages: "messages", request.KindEmbeddings: "embeddings", request.KindGenerate: "plain prompts",
	}
	return kinds[s/variants] + [...]string{"", " with tools", " with images", " of token ids"}[s%variants]
}

// trials are the records used for a request: one for all prompts of its model, and one for prompts
// of its shape.
type trials struct {
	all, apart *audits
	shape      shape
}

func (m *Matcher) trialsOf(r *request.Request) trials {
	a, s := m.auditsOf(r), shapeOf(r)
	return trials{a, a.ofShape(s), s}
}

// of returns the flags of an endpoint. The shape's record decides about estimates if it has enough
// comparisons, otherwise the record of all prompts. It takes no lock.
func (t trials) of(id block.EndpointID) flags {
	f, all := t.apart.of(id), t.all.of(id)
	if f&flagSure == 0 {
		f |= all & flagGuess
	}
	return f | all&flagWatch
}

// ofShape returns the records of one shape of prompts.
func (a *audits) ofShape(s shape) *audits {
	p := &a.shapes[s]
	if p.Load() == nil {
		p.CompareAndSwap(nil, newAudits(a.model))
	}
	return p.Load()
}

// excused reports whether under-predictions of such prompts have an expected cause.
func (s shape) excused(r *record) bool {
	return r.wrong == under && (s%variants == withMedia || s%variants == withIDs && r.head >= usualBlockTokens)
}

// apart returns the verdicts on prompt shapes with wrong predictions at an endpoint. It is empty if
// all shapes are alike. all means that most predictions are wrong.
func (m *Matcher) apart(a *audits, ep *endpoint.Endpoint, all bool) (out []Verdict) {
	for s := range numShapes {
		b := a.shapes[s].Load()
		if b == nil {
			continue
		}
		b.mu.Lock()
		if r := b.records[ep.ID]; r != nil && r.n >= enough {
			if all = all && r.wrong != nothing && !s.excused(r); r.wrong != nothing {
				out = append(out, m.shapeVerdict(b.model, ep, r, s))
			}
		}
		b.mu.Unlock()
	}
	if all {
		return nil
	}
	return out
}

// shapeVerdict returns the verdict on one shape.
func (m *Matcher) shapeVerdict(model string, ep *endpoint.Endpoint, r *record, s shape) Verdict {
	v := m.verdict(model, ep, r)
	v.Prompts = s.String()
	if s.excused(r) && v.state == knowledge.Mismatched {
		v.state = m.o.Read(ep.ID)
		v.Do = "no action needed: its cache is estimated from the requests sent to it"
		if v.Reason = "its events do not identify blocks after the first image"; s%variants == withIDs {
			v.Reason = "its events do not identify blocks after tokens that are not the canonical tokens of their text"
		}
	}
	if v.Reason != "" {
		v.Reason = v.Prompts + ": " + v.Reason
	}
	v.State = v.state.String()
	return v
}
