package prompt

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/media"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// chat is a chat request. All body kinds that are converted to chats use it.
type chat struct {
	messages []value.Value
	tools    value.Value // list, or None
	noTools  bool        // tool_choice is "none"

	kwargs        *value.Dict // chat_template_kwargs, nil when absent
	documents     value.Value
	effort        value.Value // reasoning_effort
	addGeneration bool
	continueFinal bool
	addSpecial    bool
	facts         Fact // facts on which the mapping of the body depends
	altered       bool // the body's settings change the names of media
	callsAsGiven  bool // tool calls bypass the engine's request schema
}

// mediaMark marks the position where a prompt stops being text. It survives every filter that
// templates apply to contents.
const mediaMark = "\U0010FFFDgrapevine\U0010FFFDmedia\U0010FFFD"

// converter converts a body's messages to the conversation that engines pass to their template.
type converter struct {
	dec   *value.Decoder
	parts bool // contents are lists of parts
	as    Profile
	facts Fact // facts on which the conversation depends
	mark  bool // the first media part becomes mediaMark
	media bool // a media part was found
	items []media.Item
	// altered is true if the body changes how engines process media.
	altered bool
	// callsAsGiven is true if tool calls keep the order of their members.
	callsAsGiven bool
	bad          string
	// bounds is true if the conversation would take too much memory.
	bounds bool
}

// conversation converts all messages. It returns false and sets c.bad if one is malformed.
func (c *converter) conversation(in []value.Value) ([]value.Value, bool) {
	out := make([]value.Value, 0, len(in))
	for _, v := range in {
		m := v.Dict()
		if m == nil {
			c.bad = "a message is no object"
			return nil, false
		}
		d, ok := c.message(m)
		if !ok {
			return nil, false
		}
		out = append(out, value.FromDict(d))
	}
	return out, true
}

// message converts one message, as vLLM's chat utilities do.
func (c *converter) message(m *value.Dict) (*value.Dict, bool) {
	role, ok := m.Get("role")
	if !ok || role.Kind() != value.KindString {
		c.bad = "a message has no role"
		return nil, false
	}
	if !c.dec.Charge(messageSize) {
		c.bounds = true
		return nil, false
	}
	original, _ := m.Get("content")
	content, ok := c.content(m, role.Str())
	if !ok {
		return nil, false
	}
	if plain(m, role.Str()) && content.PartOf(original) && len(content.Str()) == len(original.Str()) {
		return m, true
	}
	d := value.NewDict(4)
	d.Set("role", role)
	d.Set("content", content)
	switch role.Str() {
	case "assistant":
		if !c.assistant(d, m) {
			return nil, false
		}
	case "tool":
		if id, ok := m.Get("tool_call_id"); ok {
			d.Set("tool_call_id", id)
		}
	}
	for _, key := range []string{"name", "task"} {
		if v, ok := m.Get(key); ok && v.Kind() == value.KindString {
			d.Set(key, v)
		}
	}
	if role.Str() == "developer" {
		c.facts |= FactHistory
		tools, ok := m.Get("tools")
		if !ok {
			tools = value.None()
		}
		d.Set("tools", tools)
	}
	return d, true
}

// messageSize is the approximate size of a converted message, in bytes.
const messageSize = 192

// plain reports whether a message needs no conversion except for its content.
func plain(m *value.Dict, role string) bool {
	if m.Len() != 2 || role == "developer" {
		return false
	}
	first, _ := m.At(0)
	second, v := m.At(1)
	return first.Str() == "role" && second.Str() == "content" && v.Kind() == value.KindString
}

// assistant adds the fields that only assistant messages have.
func (c *converter) assistant(d, m *value.Dict) bool {
	if calls, ok := m.Get("tool_calls"); ok && calls.Kind() != value.KindNone {
		list, ok := c.toolCalls(calls)
		if !ok {
			return false
		}
		if len(list) > 0 {
			d.Set("tool_calls", value.List(list))
		}
	}
	reasoning, ok := m.Get("reasoning")
	if !ok || reasoning.Kind() == value.KindNone {
		reasoning, ok = m.Get("reasoning_content")
	}
	if ok && reasoning.Kind() != value.KindNone {
		c.facts |= FactHistory
		d.Set("reasoning", reasoning)
		d.Set("reasoning_content", reasoning)
	}
	return true
}
