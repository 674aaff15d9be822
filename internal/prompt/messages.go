package prompt

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/shape"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// messagesKeys are the keys of an Anthropic body that affect the prompt.
var messagesKeys = keySet("messages", "system", "tools", "tool_choice", "chat_template_kwargs", "output_config", "thinking")

// billingHeader starts a system block that changes with every request and that engines omit.
const billingHeader = "x-anthropic-billing-header"

// messagesChat maps an Anthropic Messages body to a chat: as vLLM does from 0.32 on, or as
// SGLang does.
func messagesChat(body *value.Dict, h habits, as Profile) (*chat, error) {
	if as.sglang() {
		return sglangMessages(body, h)
	}
	ch := newChat(body)
	ch.facts = messagesFacts(body)
	list, _ := body.Get("messages")
	if list.Kind() != value.KindList {
		return nil, failure(ReasonBody, "messages is a %s", list.Kind())
	}
	a := &anthropic{inline: h.inlineSystem}
	var merged []value.Value
	if !a.inline {
		merged = list.Items()
	}
	if s := systemParts(body, merged); s != "" {
		a.add("system", value.String(s))
	}
	for _, m := range list.Items() {
		if err := a.message(m.Dict()); err != nil {
			return nil, err
		}
	}
	ch.messages = a.messages
	if oc, _ := body.Get("output_config"); oc.Dict() != nil {
		ch.effort, _ = oc.Dict().Get("effort")
	}
	if thinking, _ := body.Get("thinking"); thinking.Dict().Text("type") == "disabled" {
		ch.effort = value.String(h.noThinking)
	}
	ch.tools = anthropicTools(body)
	choice, _ := body.Get("tool_choice")
	ch.noTools = choice.Dict() != nil && choice.Dict().Text("type") == "none"
	return ch, nil
}

// systemParts joins the texts of the system field and of the system messages among
// messages.
func systemParts(body *value.Dict, messages []value.Value) string {
	var b strings.Builder
	system, _ := body.Get("system")
	b.WriteString(system.Str())
	addTexts(&b, system)
	for _, m := range messages {
		if m.Dict().Text("role") == "system" {
			content, _ := m.Dict().Get("content")
			b.WriteString(inlineText(content))
		}
	}
	return b.String()
}

func addTexts(b *strings.Builder, v value.Value) {
	for _, it := range v.Items() {
		if t := it.Dict().Text("text"); it.Dict().Text("type") == "text" && !strings.HasPrefix(t, billingHeader) {
			b.WriteString(t)
		}
	}
}

// inlineText returns the text of a system message after the first message.
func inlineText(content value.Value) string {
	var b strings.Builder
	if !strings.HasPrefix(content.Str(), billingHeader) {
		b.WriteString(content.Str())
	}
	addTexts(&b, content)
	return b.String()
}

// anthropic collects chat messages.
type anthropic struct {
	messages []value.Value
	inline   bool // system messages keep their position
}

func (a *anthropic) add(role string, content value.Value) *value.Dict {
	d := value.NewDict(4)
	d.Set("role", value.String(role))
	if content.Kind() != value.KindUndefined {
		d.Set("content", content)
	}
	a.messages = append(a.messages, value.FromDict(d))
	return d
}

func (a *anthropic) message(m *value.Dict) error {
	role := m.Text("role")
	if role == "" {
		return failure(ReasonBody, "a message has no role")
	}
	content, _ := m.Get("content")
	if role == "system" {
		if s := inlineText(content); a.inline && s != "" {
			a.add("system", value.String(s))
		}
		return nil
	}
	if content.Kind() == value.KindString {
		a.add(role, content)
		return nil
	}
	var parts, calls []value.Value
	var thinking strings.Builder
	thought := false
	for _, it := range content.Items() {
		b := it.Dict()
		switch b.Text("type") {
		case "text":
			if b.Text("text") != "" {
				t, _ := b.Get("text")
				parts = append(parts, textPart(t))
			}
		case "image":
			parts = append(parts, imagePart(b))
		case "thinking":
			thought = true
			thinking.WriteString(b.Text("thinking"))
		case "tool_use":
			calls = append(calls, toolUse(b))
		case "tool_result":
			if role != "user" {
				return failure(ReasonUnsupported, "a tool result in a message of the assistant")
			}
			a.toolResult(b)
		case "redacted_thinking", "tool_reference":
		default:
			return failure(ReasonUnsupported, "a content block of another type")
		}
	}
	if role == "user" && len(parts) == 0 {
		return nil
	}
	d := a.add(role, value.Value{})
	if thought {
		d.Set("reasoning", value.String(thinking.String()))
	}
	if len(calls) > 0 {
		d.Set("tool_calls", value.List(calls))
	}
	switch {
	case len(parts) == 1 && parts[0].Dict().Text("type") == "text":
		t, _ := parts[0].Dict().Get("text")
		d.Set("content", t)
	case len(parts) > 0:
		d.Set("content", value.List(parts))
	}
	return nil
}

// imagePart returns an image part of a chat, with the source from the Anthropic body.
func imagePart(b *value.Dict) value.Value {
	d := value.NewDict(2)
	d.Set("type", value.String("image_url"))
	if src, ok := b.Get("source"); ok {
		d.Set("source", src)
	}
	return value.FromDict(d)
}

func toolUse(b *value.Dict) value.Value {
	fn := value.NewDict(2)
	fn.Set("name", value.String(b.Text("name")))
	in, _ := b.Get("input")
	if !in.IsTrue() {
		in = value.FromDict(value.NewDict(0))
	}
	fn.Set("arguments", in)
	d := value.NewDict(3)
	d.Set("id", value.String(b.Text("id")))
	d.Set("type", value.String("function"))
	d.Set("function", value.FromDict(fn))
	return value.FromDict(d)
}

// toolResult adds a tool message, and a user message with the images that the tool returned.
func (a *anthropic) toolResult(b *value.Dict) {
	content, _ := b.Get("content")
	var texts, images, refs []value.Value
	if content.Kind() == value.KindString {
		texts = append(texts, content)
	}
	for _, it := range content.Items() {
		switch d := it.Dict(); d.Text("type") {
		case "text":
			texts = append(texts, value.String(d.Text("text")))
		case "image":
			images = append(images, imagePart(d))
		case "tool_reference":
			ref := value.NewDict(2)
			ref.Set("type", value.String("tool_reference"))
			name := d.Text("tool_name")
			if name == "" {
				name = d.Text("name")
			}
			ref.Set("name", value.String(name))
			refs = append(refs, value.FromDict(ref))
		}
	}
	id := value.String(b.Text("tool_use_id"))
	a.add("tool", value.String(shape.JoinTexts(texts))).Set("tool_call_id", id)
	if len(images) > 0 {
		a.add("user", value.List(images))
	}
	if len(refs) > 0 {
		a.add("tool", value.List(refs)).Set("tool_call_id", id)
	}
}

// anthropicTools converts tool definitions to the chat format.
func anthropicTools(body *value.Dict) value.Value {
	v, _ := body.Get("tools")
	if v.Kind() != value.KindList {
		return value.None()
	}
	out := make([]value.Value, 0, len(v.Items()))
	for _, it := range v.Items() {
		d := it.Dict()
		if d == nil {
			continue
		}
		schema, _ := d.Get("input_schema")
		if s := schema.Dict(); s != nil {
			if _, ok := s.Get("type"); !ok {
				s = shape.CopyDict(s)
				s.Set("type", value.String("object"))
				schema = value.FromDict(s)
			}
		}
		fn := shape.Pick(d, "name", "description")
		fn.Set("parameters", schema)
		out = append(out, shape.FunctionTool(fn, shape.Pick(d, "defer_loading")))
	}
	return value.List(out)
}
