package prompt

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// messagesKeys are the keys of an Anthropic body that shape the prompt.
var messagesKeys = keySet("messages", "system", "tools", "tool_choice", "chat_template_kwargs", "output_config", "thinking")

// billingHeader starts a system block that changes with every request and that
// engines leave out.
const billingHeader = "x-anthropic-billing-header"

// messagesChat maps an Anthropic Messages body to a chat, as vLLM does.
func messagesChat(body *value.Dict) (*chat, error) {
	ch := newChat(body)
	list, _ := body.Get("messages")
	if list.Kind() != value.KindList {
		return nil, failure(ReasonBody, "messages is a %s", list.Kind())
	}
	a := &anthropic{}
	if s := systemParts(body, list.Items()); s != "" {
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
	ch.tools = anthropicTools(body)
	choice, _ := body.Get("tool_choice")
	ch.noTools = choice.Dict() != nil && text(choice.Dict(), "type") == "none"
	return ch, nil
}

// systemParts joins the texts of the system field and of system messages.
func systemParts(body *value.Dict, messages []value.Value) string {
	var b strings.Builder
	add := func(v value.Value) {
		b.WriteString(v.Str())
		for _, it := range v.Items() {
			if t := text(it.Dict(), "text"); text(it.Dict(), "type") == "text" && !strings.HasPrefix(t, billingHeader) {
				b.WriteString(t)
			}
		}
	}
	system, _ := body.Get("system")
	add(system)
	for _, m := range messages {
		if text(m.Dict(), "role") == "system" {
			content, _ := m.Dict().Get("content")
			add(content)
		}
	}
	return b.String()
}

// anthropic gathers chat messages.
type anthropic struct{ messages []value.Value }

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
	role := text(m, "role")
	if role == "" {
		return failure(ReasonBody, "a message has no role")
	}
	if role == "system" {
		return nil
	}
	content, _ := m.Get("content")
	if content.Kind() == value.KindString {
		a.add(role, content)
		return nil
	}
	var parts, calls []value.Value
	var thinking strings.Builder
	thought := false
	for _, it := range content.Items() {
		b := it.Dict()
		switch text(b, "type") {
		case "text":
			if text(b, "text") != "" {
				t, _ := b.Get("text")
				parts = append(parts, textPart(t))
			}
		case "image":
			parts = append(parts, imagePart())
		case "thinking":
			thought = true
			thinking.WriteString(text(b, "thinking"))
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
	case len(parts) == 1 && text(parts[0].Dict(), "type") == "text":
		t, _ := parts[0].Dict().Get("text")
		d.Set("content", t)
	case len(parts) > 0:
		d.Set("content", value.List(parts))
	}
	return nil
}

func imagePart() value.Value {
	d := value.NewDict(1)
	d.Set("type", value.String("image_url"))
	return value.FromDict(d)
}

func toolUse(b *value.Dict) value.Value {
	fn := value.NewDict(2)
	fn.Set("name", value.String(text(b, "name")))
	in, _ := b.Get("input")
	if !in.IsTrue() {
		in = value.FromDict(value.NewDict(0))
	}
	fn.Set("arguments", in)
	d := value.NewDict(3)
	d.Set("id", value.String(text(b, "id")))
	d.Set("type", value.String("function"))
	d.Set("function", value.FromDict(fn))
	return value.FromDict(d)
}

// toolResult adds a tool's message, and a user's with the images that the tool
// returned.
func (a *anthropic) toolResult(b *value.Dict) {
	content, _ := b.Get("content")
	var texts, images, refs []value.Value
	if content.Kind() == value.KindString {
		texts = append(texts, content)
	}
	for _, it := range content.Items() {
		switch d := it.Dict(); text(d, "type") {
		case "text":
			texts = append(texts, value.String(text(d, "text")))
		case "image":
			images = append(images, imagePart())
		case "tool_reference":
			ref := value.NewDict(2)
			ref.Set("type", value.String("tool_reference"))
			name := text(d, "tool_name")
			if name == "" {
				name = text(d, "name")
			}
			ref.Set("name", value.String(name))
			refs = append(refs, value.FromDict(ref))
		}
	}
	id := value.String(text(b, "tool_use_id"))
	a.add("tool", value.String(joinTexts(texts))).Set("tool_call_id", id)
	if len(images) > 0 {
		a.add("user", value.List(images))
	}
	if len(refs) > 0 {
		a.add("tool", value.List(refs)).Set("tool_call_id", id)
	}
}

// anthropicTools maps tool definitions to those of chats.
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
				s = copyDict(s)
				s.Set("type", value.String("object"))
				schema = value.FromDict(s)
			}
		}
		fn := pick(d, "name", "description")
		fn.Set("parameters", schema)
		out = append(out, functionTool(fn, pick(d, "defer_loading")))
	}
	return value.List(out)
}
