package prompt

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/shape"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// Render appends the prompt of a request's body in text space: the bytes of the engine's prompt
// tokens. On an error dst is returned unchanged. The body is not retained. If ctx ends, rendering
// fails with its error.
func (m *Model) Render(ctx context.Context, dst, body []byte, kind Kind) (out []byte, info Info, err error) {
	return m.render(ctx, dst, body, kind, 0, nil)
}

// RenderAs is Render for engines of a profile.
func (m *Model) RenderAs(ctx context.Context, dst, body []byte, kind Kind, as Profile) (out []byte, info Info, err error) {
	return m.render(ctx, dst, body, kind, as, nil)
}

// render implements Render. If more is not nil, it is called to reserve memory for a template that
// exceeds the limit of its body.
func (m *Model) render(ctx context.Context, dst, body []byte, kind Kind, as Profile, more func(n int) bool) (out []byte, info Info, err error) {
	if ctx.Err() != nil {
		return dst, Info{}, &Error{ReasonDeadline, ctx.Err()}
	}
	s := m.pool.Get().(*scratch)
	s.ctx, s.as = ctx, as
	if s.limits = (jinja.Options{Now: m.opts.Now()}); more != nil {
		s.limits.Memory, s.limits.More = templateBase+templateFactor*len(body), more
	}
	defer func() {
		s.release()
		m.pool.Put(s)
	}()
	switch kind {
	case KindChat:
		out, info, err = m.renderChatBody(s, dst, body, chatKeys, func(obj *value.Dict) (*chat, error) { return parseChat(obj, &m.opts, as) })
	case KindResponses:
		out, info, err = m.renderChatBody(s, dst, body, responsesKeys, responsesChat)
	case KindMessages:
		out, info, err = m.renderChatBody(s, dst, body, messagesKeys, func(obj *value.Dict) (*chat, error) { return messagesChat(obj, m.habits(), as) })
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
	if why := m.vocab.Lossy(); why != "" {
		return nil, Info{}, failure(ReasonUnsupported, "%s", lossy(why))
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
	if ch.noTools && (m.opts.HideTools || s.as.sglang()) {
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
	conv := converter{dec: &s.dec, parts: t.parts[s.as.rule()], as: s.as, facts: ch.facts, altered: ch.altered}
	if t.varies {
		conv.facts |= FactFormat
	}
	messages, err := m.conversation(t, &conv, ch)
	if err != nil {
		return nil, Info{}, err
	}
	start := len(dst)
	if conv.media && !m.names(t, s.as) {
		out, err := m.renderCut(s, dst, t, ch)
		return out, Info{Truncated: true, Facts: conv.facts}, err
	}
	out := dst
	if ch.addSpecial {
		out = append(out, m.bos...)
	}
	head := len(out)
	final, whole := "", true
	if ch.continueFinal {
		final, whole = tagFinal(messages)
	}
	if out, err = t.Render(s.ctx, out, m.vars(s, t, ch, messages), s.limits); err != nil {
		return nil, Info{}, templateError(err)
	}
	if ch.continueFinal {
		end, ok := continued(out[head:], final)
		ok = ok && whole
		if !ok && conv.media {
			out, err := m.renderCut(s, dst, t, ch)
			return out, Info{Truncated: true, Facts: conv.facts}, err
		}
		if !ok {
			return nil, Info{}, failure(ReasonTemplate, "the final message is not in the rendered chat")
		}
		out = out[:head+end]
	}
	out, info := m.settle(s, out, start), Info{Facts: conv.facts}
	if conv.media {
		var ok bool
		if out, info.Truncated, ok, err = m.illustrate(s, out, head, conv.items); err != nil {
			return nil, Info{}, templateError(err)
		}
		if !ok {
			out, err = m.renderCut(s, dst, t, ch)
			return out, Info{Truncated: true, Facts: conv.facts}, err
		}
		info.Media = !info.Truncated
	}
	if ch.addSpecial && !info.Truncated {
		out = append(out, m.eos...)
	}
	return out, info, nil
}

// templateError wraps a template's failure. Messages raised by the template itself may quote the
// prompt and are omitted.
func templateError(err error) error {
	switch {
	case errors.Is(err, jinja.ErrRaised):
		err = jinja.ErrRaised
	case errors.Is(err, jinja.ErrUnsupported):
		return &Error{ReasonUnsupported, err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Error{ReasonDeadline, err}
	case errors.Is(err, value.ErrBounds):
		return &Error{ReasonBounds, err}
	}
	return &Error{ReasonTemplate, err}
}

// conversation converts a chat's messages for a template.
func (m *Model) conversation(t *template, conv *converter, ch *chat) ([]value.Value, error) {
	conv.callsAsGiven = ch.callsAsGiven || m.opts.Tools == ToolsAsWritten
	messages, ok := conv.conversation(ch.messages)
	if !ok && conv.bounds {
		return nil, failure(ReasonBounds, "the conversation takes too much memory")
	}
	if !ok {
		return nil, failure(ReasonBody, "%s", conv.bad)
	}
	if !t.developer {
		messages = shape.FoldDevelopers(messages)
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
	given := func(name string) (found bool) {
		for _, kw := range []*value.Dict{m.kwargs, ch.kwargs} {
			if kw != nil {
				v, _ := kw.Get(name)
				found = found || v.Kind() != value.KindUndefined && v.Kind() != value.KindNone
			}
		}
		return found
	}
	// The body's documents take precedence over those in the arguments, tools do not.
	switch absent := ch.documents.Kind() == value.KindUndefined || ch.documents.Kind() == value.KindNone; {
	case !absent:
		add("documents", ch.documents)
	case !given("documents"):
		add("documents", value.None())
	}
	if !given("tools") {
		add("tools", ch.tools)
	}
	add("messages", value.List(messages))
	add("add_generation_prompt", value.Bool(ch.addGeneration))
	s.vars = vars
	return vars
}

// settle converts out[start:] to text space.
func (m *Model) settle(s *scratch, out []byte, start int) []byte {
	if m.vocab.Settled(out[start:]) {
		return out
	}
	s.text = append(s.text[:0], out[start:]...)
	return m.vocab.Prepare(out[:start], s.text)
}

// cutMedia truncates the output at the first media part. It renders the chat again with the part as
// templates see it and keeps the common prefix, which is correct however the template reacts to the
// part.
func (m *Model) cutMedia(s *scratch, out []byte, head int, t *template, ch *chat) ([]byte, error) {
	at := bytes.Index(out[head:], []byte(mediaMark))
	if at < 0 {
		return nil, failure(ReasonMedia, "the template leaves the media's place open")
	}
	out = out[:head+at]
	conv := converter{dec: &s.dec, parts: t.parts[s.as.rule()], as: s.as}
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

// finalTag is appended to a final message that is to be continued, as transformers does, to find
// the message's end in the rendered text.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// tagFinal appends the tag to a copy of the last message's text, and returns that text; false if
// there is none.
func tagFinal(messages []value.Value) (final string, ok bool) {
	if len(messages) == 0 {
		return "", false
	}
	last := &messages[len(messages)-1]
	content, _ := last.Dict().Get("content")
	switch content.Kind() {
	case value.KindString:
		final = content.Str()
		*last = with(*last, "content", value.String(final+finalTag))
		return final, true
	case value.KindList:
		parts := slices.Clone(content.Items())
		for i := len(parts) - 1; i >= 0; i-- {
			if text, ok := parts[i].Dict().Get("text"); ok {
				final = text.Str()
				parts[i] = with(parts[i], "text", value.String(final+finalTag))
				*last = with(*last, "content", value.List(parts))
				return final, true
			}
		}
	}
	return "", false
}

// with returns a copy of a dict with another value for key.
func with(v value.Value, key string, other value.Value) value.Value {
	d := value.NewDict(v.Dict().Len())
	v.Dict().Range(func(k string, v value.Value) bool {
		if k == key {
			v = other
		}
		d.Set(k, v)
		return true
	})
	return value.FromDict(d)
}

// continued returns the end of a rendered chat whose final message is to be continued: the position
// of its tag, without the preceding space if the template trims contents.
func continued(rendered []byte, final string) (int, bool) {
	if !bytes.Contains(rendered, []byte(strings.TrimFunc(final, value.IsSpace))) {
		return 0, false
	}
	at := bytes.LastIndex(rendered, []byte(strings.TrimRight(finalTag, " ")))
	if at < 0 {
		return 0, false
	}
	if bytes.HasPrefix(rendered[at:], []byte(finalTag)) {
		return at, true
	}
	return len(bytes.TrimRightFunc(rendered[:at], value.IsSpace)), true
}
