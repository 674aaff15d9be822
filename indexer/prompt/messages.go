package prompt

import (
	"strings"

	"github.com/grapevine-epp/grapevine/indexer/prompt/jinja"
)

// messagesKeys are the keys of an Anthropic body that shape the prompt.
var messagesKeys = keySet("messages", "system", "tools", "tool_choice", "chat_template_kwargs", "output_config", "thinking")

// billingHeader starts a system block that changes with every request and that
// engines leave out.
const billingHeader = "x-anthropic-billing-header"

// messagesChat maps an Anthropic Messages body to a chat, as vLLM does.
func messagesChat(body *jinja.Dict) (*chat, error) {
	ch := newChat(body)
	list, _ := body.Get("messages")
	if list.Kind() != jinja.List {
		return nil, failure(ReasonBody, "messages is a %s", list.Kind())
	}
	a := &anthropic{}
	if s := systemParts(body, list.Items()); s != "" {
		a.add("system", jinja.StringValue(s))
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
func systemParts(body *jinja.Dict, messages []jinja.Value) string {
	var b strings.Builder
	add := func(v jinja.Value) {
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
type anthropic struct{ messages []jinja.Value }

func (a *anthropic) add(role string, content jinja.Value) *jinja.Dict {
	d := jinja.NewDict(4)
	d.Set("role", jinja.StringValue(role))
	if content.Kind() != jinja.Undefined {
		d.Set("content", content)
	}
	a.messages = append(a.messages, jinja.DictValue(d))
	return d
}

func (a *anthropic) message(m *jinja.Dict) error {
	role := text(m, "role")
	if role == "" {
		return failure(ReasonBody, "a message has no role")
	}
	if role == "system" {
		return nil
	}
	content, _ := m.Get("content")
	if content.Kind() == jinja.String {
		a.add(role, content)
		return nil
	}
	var parts, calls []jinja.Value
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
	d := a.add(role, jinja.Value{})
	if thought {
		d.Set("reasoning", jinja.StringValue(thinking.String()))
	}
	if len(calls) > 0 {
		d.Set("tool_calls", jinja.ListValue(calls))
	}
	switch {
	case len(parts) == 1 && text(parts[0].Dict(), "type") == "text":
		t, _ := parts[0].Dict().Get("text")
		d.Set("content", t)
	case len(parts) > 0:
		d.Set("content", jinja.ListValue(parts))
	}
	return nil
}

func imagePart() jinja.Value {
	d := jinja.NewDict(1)
	d.Set("type", jinja.StringValue("image_url"))
	return jinja.DictValue(d)
}

func toolUse(b *jinja.Dict) jinja.Value {
	fn := jinja.NewDict(2)
	fn.Set("name", jinja.StringValue(text(b, "name")))
	in, _ := b.Get("input")
	if !in.IsTrue() {
		in = jinja.DictValue(jinja.NewDict(0))
	}
	fn.Set("arguments", in)
	d := jinja.NewDict(3)
	d.Set("id", jinja.StringValue(text(b, "id")))
	d.Set("type", jinja.StringValue("function"))
	d.Set("function", jinja.DictValue(fn))
	return jinja.DictValue(d)
}

// toolResult adds a tool's message, and a user's with the images that the tool
// returned.
func (a *anthropic) toolResult(b *jinja.Dict) {
	content, _ := b.Get("content")
	var texts, images, refs []jinja.Value
	if content.Kind() == jinja.String {
		texts = append(texts, content)
	}
	for _, it := range content.Items() {
		switch d := it.Dict(); text(d, "type") {
		case "text":
			texts = append(texts, jinja.StringValue(text(d, "text")))
		case "image":
			images = append(images, imagePart())
		case "tool_reference":
			ref := jinja.NewDict(2)
			ref.Set("type", jinja.StringValue("tool_reference"))
			name := text(d, "tool_name")
			if name == "" {
				name = text(d, "name")
			}
			ref.Set("name", jinja.StringValue(name))
			refs = append(refs, jinja.DictValue(ref))
		}
	}
	id := jinja.StringValue(text(b, "tool_use_id"))
	a.add("tool", jinja.StringValue(joinTexts(texts))).Set("tool_call_id", id)
	if len(images) > 0 {
		a.add("user", jinja.ListValue(images))
	}
	if len(refs) > 0 {
		a.add("tool", jinja.ListValue(refs)).Set("tool_call_id", id)
	}
}

// anthropicTools maps tool definitions to those of chats.
func anthropicTools(body *jinja.Dict) jinja.Value {
	v, _ := body.Get("tools")
	if v.Kind() != jinja.List {
		return jinja.NoneValue()
	}
	out := make([]jinja.Value, 0, len(v.Items()))
	for _, it := range v.Items() {
		d := it.Dict()
		if d == nil {
			continue
		}
		schema, _ := d.Get("input_schema")
		if s := schema.Dict(); s != nil {
			if _, ok := s.Get("type"); !ok {
				s = copyDict(s)
				s.Set("type", jinja.StringValue("object"))
				schema = jinja.DictValue(s)
			}
		}
		fn := pick(d, "name", "description")
		fn.Set("parameters", schema)
		out = append(out, functionTool(fn, pick(d, "defer_loading")))
	}
	return jinja.ListValue(out)
}
