package prompt

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// Render appends the prompt of a request's body in text space: the bytes that
// the engine's prompt tokens stand for. On an error dst is returned as it was.
// The body is not retained. A rendering that outlasts ctx ends with its error.
func (m *Model) Render(ctx context.Context, dst, body []byte, kind Kind) (out []byte, info Info, err error) {
	return m.render(ctx, dst, body, kind, nil)
}

// render is Render; more, if there is one, is asked for memory that a template
// needs beyond what every body may take.
func (m *Model) render(ctx context.Context, dst, body []byte, kind Kind, more func(n int) bool) (out []byte, info Info, err error) {
	if ctx.Err() != nil {
		return dst, Info{}, &Error{ReasonDeadline, ctx.Err()}
	}
	s := m.pool.Get().(*scratch)
	s.ctx = ctx
	if s.limits = (jinja.Options{Now: m.opts.Now()}); more != nil {
		s.limits.Memory, s.limits.More = templateBase+templateFactor*len(body), more
	}
	defer func() {
		s.release()
		m.pool.Put(s)
	}()
	switch kind {
	case KindChat:
		out, info, err = m.renderChatBody(s, dst, body, chatKeys, func(obj *value.Dict) (*chat, error) { return parseChat(obj, &m.opts) })
	case KindResponses:
		out, info, err = m.renderChatBody(s, dst, body, responsesKeys, responsesChat)
	case KindMessages:
		out, info, err = m.renderChatBody(s, dst, body, messagesKeys, func(obj *value.Dict) (*chat, error) { return messagesChat(obj, m.habits()) })
	case KindCompletions, KindEmbeddings, KindGenerate:
		out, info, err = m.renderText(s, dst, body, kind)
	default:
		err = failure(ReasonUnsupported, "kind %s", kind)
	}
	if err != nil {
		return dst, Info{}, err
	}
	return out, info, nil
}

// renderChatBody reads a body as a chat and renders it.
func (m *Model) renderChatBody(s *scratch, dst, body []byte, keys func(string) bool, parse func(*value.Dict) (*chat, error)) ([]byte, Info, error) {
	if m.opts.EngineOnly {
		return nil, Info{}, failure(ReasonNoTemplate, "only an engine renders this model's chats")
	}
	obj, err := s.object(body, keys)
	if err != nil {
		return nil, Info{}, err
	}
	ch, err := parse(obj)
	if err != nil {
		return nil, Info{}, err
	}
	return m.renderChat(s, dst, ch)
}

// renderChat renders a chat.
func (m *Model) renderChat(s *scratch, dst []byte, ch *chat) ([]byte, Info, error) {
	if ch.noTools && m.opts.HideTools {
		ch.tools = value.None()
	}
	t := m.chat
	if m.tools != nil && ch.tools.Kind() == value.KindList {
		t = m.tools
	}
	if t == nil && m.left != nil {
		return nil, Info{}, &Error{ReasonNoTemplate, m.left}
	}
	if t == nil {
		return nil, Info{}, failure(ReasonNoTemplate, "no chat template")
	}
	conv := converter{dec: &s.dec, parts: t.parts, altered: ch.altered}
	messages, err := m.conversation(t, &conv, ch)
	if err != nil {
		return nil, Info{}, err
	}
	start := len(dst)
	if conv.media && !m.names(t) {
		out, err := m.renderCut(s, dst, t, ch)
		return out, Info{Truncated: true}, err
	}
	out := dst
	if ch.addSpecial {
		out = append(out, m.bos...)
	}
	head := len(out)
	if out, err = t.Render(s.ctx, out, m.vars(s, t, ch, messages), s.limits); err != nil {
		return nil, Info{}, templateError(err)
	}
	if ch.continueFinal {
		end, ok := continued(out[head:], messages)
		if !ok && conv.media {
			out, err := m.renderCut(s, dst, t, ch)
			return out, Info{Truncated: true}, err
		}
		if !ok {
			return nil, Info{}, failure(ReasonTemplate, "the final message is not in the rendered chat")
		}
		out = out[:head+end]
	}
	if ch.addSpecial {
		out = append(out, m.eos...)
	}
	out = m.settle(s, out, start)
	if !conv.media {
		return out, Info{}, nil
	}
	out, truncated, ok, err := m.illustrate(s, out, start, conv.items)
	switch {
	case err != nil:
		return nil, Info{}, templateError(err)
	case !ok:
		out, err = m.renderCut(s, dst, t, ch)
		truncated = true
	}
	return out, Info{Truncated: truncated, Media: !truncated}, err
}

// templateError wraps a template's failure. What a template raises itself may
// quote the prompt and is left out.
func templateError(err error) error {
	switch {
	case errors.Is(err, jinja.ErrRaised):
		err = jinja.ErrRaised
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Error{ReasonDeadline, err}
	case errors.Is(err, value.ErrBounds):
		return &Error{ReasonBounds, err}
	}
	return &Error{ReasonTemplate, err}
}

// conversation converts a chat's messages for a template.
func (m *Model) conversation(t *template, conv *converter, ch *chat) ([]value.Value, error) {
	messages, ok := conv.conversation(ch.messages)
	if !ok && conv.bounds {
		return nil, failure(ReasonBounds, "the conversation takes too much memory")
	}
	if !ok {
		return nil, failure(ReasonBody, "%s", conv.bad)
	}
	if !t.developer {
		messages = foldDevelopers(messages)
	}
	return messages, nil
}

// vars returns the variables that the template mentions. Later ones win.
func (m *Model) vars(s *scratch, t *template, ch *chat, messages []value.Value) []jinja.Var {
	vars := append(s.vars[:0], m.special...)
	add := func(k string, v value.Value) bool {
		if _, ok := t.ID(k); ok {
			vars = append(vars, jinja.Var{Name: k, Value: v})
		}
		return true
	}
	thinking := false
	for _, kw := range []*value.Dict{m.kwargs, ch.kwargs} {
		if kw != nil {
			kw.Range(add)
			_, set := kw.Get("enable_thinking")
			thinking = thinking || set
		}
	}
	if ch.effort.Kind() == value.KindString {
		add("reasoning_effort", ch.effort)
		if !thinking {
			add("enable_thinking", value.Bool(ch.effort.Str() != "none"))
		}
	}
	documents := ch.documents
	if documents.Kind() == value.KindUndefined {
		documents = value.None()
	}
	add("documents", documents)
	add("tools", ch.tools)
	add("messages", value.List(messages))
	add("add_generation_prompt", value.Bool(ch.addGeneration))
	s.vars = vars
	return vars
}

// settle brings out[start:] into text space.
func (m *Model) settle(s *scratch, out []byte, start int) []byte {
	if m.vocab.Settled(out[start:]) {
		return out
	}
	s.text = append(s.text[:0], out[start:]...)
	return m.vocab.Prepare(out[:start], s.text)
}

// cutMedia ends the output where the first media part stands. The chat is
// rendered again with the part as templates see it: what both renderings share
// holds whatever the template does because of it.
func (m *Model) cutMedia(s *scratch, out []byte, head int, t *template, ch *chat) ([]byte, error) {
	at := bytes.Index(out[head:], []byte(mediaMark))
	if at < 0 {
		return nil, failure(ReasonMedia, "the template leaves the media's place open")
	}
	out = out[:head+at]
	conv := converter{dec: &s.dec, parts: t.parts}
	messages, err := m.conversation(t, &conv, ch)
	if err != nil {
		return nil, err
	}
	if s.text, err = t.Render(s.ctx, s.text[:0], m.vars(s, t, ch, messages), s.limits); err != nil {
		return nil, templateError(err)
	}
	n := 0
	for n < at && n < len(s.text) && out[head+n] == s.text[n] {
		n++
	}
	return out[:head+n], nil
}

// continued returns where a rendered chat ends when its final message is to be
// continued: after the message's own text.
func continued(rendered []byte, messages []value.Value) (int, bool) {
	if len(messages) == 0 {
		return 0, false
	}
	content, _ := messages[len(messages)-1].Dict().Get("content")
	final := content.Str()
	for _, p := range content.Items() {
		if t, ok := p.Dict().Get("text"); ok {
			final = t.Str()
		}
	}
	trimmed := strings.TrimFunc(final, value.IsSpace)
	at := bytes.LastIndex(rendered, []byte(trimmed))
	if at < 0 {
		return 0, false
	}
	left := strings.TrimLeftFunc(final, value.IsSpace)
	if bytes.HasPrefix(rendered[at:], []byte(left)) && len(left) == len(final) {
		return at + len(left), true
	}
	return at + len(trimmed), true
}
