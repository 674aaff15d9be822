package prefix

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// shape tells prompts apart that engines build by different code: one of them may be
// rendered otherwise there while all others match.
type shape uint8

// What a prompt of any kind may have besides text.
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

// String names the prompts in the plural.
func (s shape) String() string {
	kinds := [...]string{
		request.KindOther: "other prompts", request.KindCompletions: "completions", request.KindChat: "chats", request.KindResponses: "responses",
		request.KindMessages: "messages", request.KindEmbeddings: "embeddings", request.KindGenerate: "plain prompts",
	}
	return kinds[s/variants] + [...]string{"", " with tools", " with images", " of token ids"}[s%variants]
}

// trials are the records that a request's outcome enters, and goes by: of all prompts of
// its model, and of those of its shape.
type trials struct {
	all, apart *audits
	shape      shape
}

func (m *Matcher) trialsOf(r *request.Request) trials {
	a, s := m.auditsOf(r), shapeOf(r)
	return trials{a, a.ofShape(s), s}
}

// of returns the flags of an endpoint. Where enough prompts of the shape were compared,
// they say whether to guess, and else all do. It takes no lock.
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

// excused reports whether less is known of such prompts than the engine has for a reason
// that is nobody's fault.
func (s shape) excused(r *record) bool {
	return r.wrong == under && (s%variants == withMedia || s%variants == withIDs && r.head >= usualBlockTokens)
}

// apart returns the verdicts on the shapes of prompts that go wrong at an endpoint. It is
// empty where all prompts fare alike: all says that most of them go wrong.
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

// shapeVerdict puts the record of one shape into words.
func (m *Matcher) shapeVerdict(model string, ep *endpoint.Endpoint, r *record, s shape) Verdict {
	v := m.verdict(model, ep, r)
	v.Prompts = s.String()
	if s.excused(r) && v.state == knowledge.Mismatched {
		v.state = m.o.Read(ep.ID)
		v.Do = "nothing: it is known by what was sent there"
		if v.Reason = "what follows the first image is not known by events"; s%variants == withIDs {
			v.Reason = "what follows tokens that are not the usual ones of their text is not known by events"
		}
	}
	if v.Reason != "" {
		v.Reason = v.Prompts + ": " + v.Reason
	}
	v.State = v.state.String()
	return v
}
