package prompt

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/shape"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// messagesFacts returns the facts on which the mapping of an Anthropic body depends.
func messagesFacts(body *value.Dict) (facts Fact) {
	system, _ := body.Get("system")
	if items := system.Items(); len(items) > 1 || len(items) == 1 && strings.HasPrefix(items[0].Dict().Text("text"), billingHeader) {
		facts |= FactMessages
	}
	if tools, _ := body.Get("tools"); len(tools.Items()) > 0 {
		facts |= FactTools
	}
	for _, key := range []string{"thinking", "output_config"} {
		if v, _ := body.Get(key); v.Dict() != nil {
			facts |= FactHistory
		}
	}
	list, _ := body.Get("messages")
	for _, m := range list.Items() {
		if m.Dict().Text("role") == "system" {
			facts |= FactBlocks
		}
		content, _ := m.Dict().Get("content")
		for _, b := range content.Items() {
			switch b.Dict().Text("type") {
			case "text":
				if b.Dict().Text("text") == "" {
					facts |= FactBlocks
				}
			case "thinking", "redacted_thinking":
				facts |= FactHistory
			case "tool_use":
			default:
				facts |= FactBlocks
			}
		}
	}
	return facts
}

// sglangMessages converts an Anthropic Messages body to a chat as SGLang 0.5.23 does. It joins all
// system blocks with newlines and keeps tool results in their position among the user's texts.
func sglangMessages(body *value.Dict, h habits) (*chat, error) {
	ch := newChat(body)
	ch.facts = messagesFacts(body)
	list, _ := body.Get("messages")
	if list.Kind() != value.KindList {
		return nil, failure(ReasonBody, "messages is a %s", list.Kind())
	}
	a := &anthropic{inline: h.inlineSystem}
	system, _ := body.Get("system")
	parts := textsOf(system)
	if system.Kind() == value.KindString && strings.TrimSpace(system.Str()) == "" {
		parts = nil
	}
	if !a.inline {
		for _, m := range list.Items() {
			if m.Dict().Text("role") == "system" {
				content, _ := m.Dict().Get("content")
				parts = append(parts, textsOf(content)...)
			}
		}
	}
	if len(parts) > 0 {
		a.add("system", value.String(shape.JoinTexts(parts)))
	}
	for _, m := range list.Items() {
		if err := a.sglang(m.Dict()); err != nil {
			return nil, err
		}
	}
	ch.messages = a.messages
	tools, err := sglangTools(body)
	if err != nil {
		return nil, err
	}
	ch.tools = tools
	choice, _ := body.Get("tool_choice")
	ch.noTools = choice.Dict() != nil && choice.Dict().Text("type") == "none"
	return ch, nil
}

// textsOf returns the non-empty texts of a content.
func textsOf(content value.Value) (out []value.Value) {
	if content.Kind() == value.KindString && content.Str() != "" {
		return []value.Value{content}
	}
	for _, it := range content.Items() {
		if t, _ := it.Dict().Get("text"); it.Dict().Text("type") == "text" && t.Str() != "" {
			out = append(out, t)
		}
	}
	return out
}

// sglang adds the messages that SGLang creates from one message.
func (a *anthropic) sglang(m *value.Dict) error {
	role := m.Text("role")
	if role == "" {
		return failure(ReasonBody, "a message has no role")
	}
	if role == "system" && !a.inline {
		return nil
	}
	content, _ := m.Get("content")
	if content.Kind() == value.KindString {
		a.add(role, content)
		return nil
	}
	var parts, calls []value.Value
	for _, it := range content.Items() {
		b := it.Dict()
		switch b.Text("type") {
		case "text":
			if t, _ := b.Get("text"); t.Kind() == value.KindString {
				parts = append(parts, textPart(t))
			}
		case "image":
			parts = append(parts, imagePart(b))
		case "tool_use":
			calls = append(calls, toolUse(b))
		case "tool_result":
			if role != "user" {
				return failure(ReasonUnsupported, "a tool result in a message of the assistant")
			}
			a.emit(role, parts, nil)
			parts = nil
			if err := a.sglangResult(b); err != nil {
				return err
			}
		default:
			return failure(ReasonUnsupported, "a content block of another type")
		}
	}
	a.emit(role, parts, calls)
	return nil
}

// emit adds a message with parts and tool calls, unless both are empty.
func (a *anthropic) emit(role string, parts, calls []value.Value) {
	if len(parts) == 0 && len(calls) == 0 {
		return
	}
	d := a.add(role, value.Value{})
	if len(calls) > 0 {
		d.Set("tool_calls", value.List(calls))
	}
	if len(parts) == 1 && parts[0].Dict().Text("type") == "text" {
		t, _ := parts[0].Dict().Get("text")
		d.Set("content", t)
	} else if len(parts) > 0 {
		d.Set("content", value.List(parts))
	}
}

// sglangResult adds a tool message. Its texts are joined later, like the texts of other messages.
func (a *anthropic) sglangResult(b *value.Dict) error {
	content, _ := b.Get("content")
	var parts []value.Value
	for _, it := range content.Items() {
		if typ := it.Dict().Text("type"); typ != "text" {
			return failure(ReasonUnsupported, "a tool result with a block of type %s", typ)
		}
	}
	for _, t := range textsOf(content) {
		parts = append(parts, textPart(t))
	}
	result := value.String("")
	switch {
	case content.Kind() == value.KindString:
		result = content
	case len(parts) == 1:
		result, _ = parts[0].Dict().Get("text")
	case len(parts) > 1:
		result = value.List(parts)
	}
	a.add("tool", result).Set("tool_call_id", value.String(b.Text("tool_use_id")))
	return nil
}

// sglangTools converts tool definitions to the chat format.
func sglangTools(body *value.Dict) (value.Value, error) {
	v, _ := body.Get("tools")
	if len(v.Items()) == 0 {
		return value.None(), nil
	}
	var list []value.Value
	for _, it := range v.Items() {
		d := it.Dict()
		schema, ok := d.Get("input_schema")
		if d == nil || !ok || schema.Dict() == nil {
			return v, failure(ReasonUnsupported, "a built-in tool")
		}
		if s := schema.Dict(); s.Text("type") == "" {
			s = shape.CopyDict(s)
			s.Set("type", value.String("object"))
			schema = value.FromDict(s)
		}
		fn := value.NewDict(4)
		fn.Set("name", value.String(d.Text("name")))
		fn.Set("description", value.String(d.Text("description")))
		fn.Set("parameters", schema)
		strict, _ := d.Get("strict")
		fn.Set("strict", value.Bool(strict.IsTrue())) // false if the client omits it
		tool := value.NewDict(2)
		tool.Set("function", value.FromDict(fn))
		if late, ok := d.Get("defer_loading"); ok {
			tool.Set("defer_loading", late)
		}
		list = append(list, value.FromDict(tool))
	}
	dumped, ok := shape.SGLangTools(value.List(list))
	if !ok {
		return v, failure(ReasonBody, "tools are malformed")
	}
	return dumped, nil
}
