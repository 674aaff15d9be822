package prompt

import (
	"strings"

	"github.com/grapevine-epp/grapevine/indexer/prompt/jinja"
)

// chat is a chat request in the form in which every kind of body that maps to
// one arrives.
type chat struct {
	messages []jinja.Value
	tools    jinja.Value // list, or None
	noTools  bool        // tool_choice is "none"

	kwargs        *jinja.Dict // chat_template_kwargs, nil when absent
	documents     jinja.Value
	effort        jinja.Value // reasoning_effort
	addGeneration bool
	continueFinal bool
	addSpecial    bool
}

// mediaMark stands where a prompt leaves text. It survives every filter that
// templates apply to contents.
const mediaMark = "\U0010FFFDgrapevine\U0010FFFDmedia\U0010FFFD"

// converter turns a body's messages into the conversation that engines give
// their template.
type converter struct {
	dec   *jinja.Decoder
	parts bool // contents are lists of parts
	mark  bool // the first media part becomes mediaMark
	media bool // a media part was met
	bad   string
}

// conversation converts all messages. It returns false when one is malformed;
// c.bad says how.
func (c *converter) conversation(in []jinja.Value) ([]jinja.Value, bool) {
	out := make([]jinja.Value, 0, len(in))
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
		out = append(out, jinja.DictValue(d))
	}
	return out, true
}

// message converts one message, as vLLM's chat utilities do.
func (c *converter) message(m *jinja.Dict) (*jinja.Dict, bool) {
	role, ok := m.Get("role")
	if !ok || role.Kind() != jinja.String {
		c.bad = "a message has no role"
		return nil, false
	}
	content, ok := c.content(m, role.Str())
	if !ok {
		return nil, false
	}
	d := jinja.NewDict(4)
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
		if v, ok := m.Get(key); ok && v.Kind() == jinja.String {
			d.Set(key, v)
		}
	}
	if role.Str() == "developer" {
		tools, ok := m.Get("tools")
		if !ok {
			tools = jinja.NoneValue()
		}
		d.Set("tools", tools)
	}
	return d, true
}

// assistant adds what only assistant messages carry.
func (c *converter) assistant(d, m *jinja.Dict) bool {
	if calls, ok := m.Get("tool_calls"); ok && calls.Kind() != jinja.None {
		list, ok := c.toolCalls(calls)
		if !ok {
			return false
		}
		if len(list) > 0 {
			d.Set("tool_calls", jinja.ListValue(list))
		}
	}
	reasoning, ok := m.Get("reasoning")
	if !ok || reasoning.Kind() == jinja.None {
		reasoning, ok = m.Get("reasoning_content")
	}
	if ok && reasoning.Kind() != jinja.None {
		d.Set("reasoning", reasoning)
		d.Set("reasoning_content", reasoning)
	}
	return true
}

// content converts a message's content.
func (c *converter) content(m *jinja.Dict, role string) (jinja.Value, bool) {
	v, _ := m.Get("content")
	switch v.Kind() {
	case jinja.String:
		if c.parts && role != "tool" {
			return jinja.ListValue([]jinja.Value{textPart(v)}), true
		}
		return v, true
	case jinja.Undefined, jinja.None:
		if c.parts && role != "tool" {
			return jinja.ListValue(nil), true
		}
		return jinja.StringValue(""), true
	case jinja.List:
		return c.contentParts(v.Items(), role)
	}
	c.bad = "content is a " + v.Kind().String()
	return v, false
}

// contentParts converts a list of parts: to a list of parts, or to the texts
// joined by line ends with media in front, where engines put its placeholders.
func (c *converter) contentParts(items []jinja.Value, role string) (jinja.Value, bool) {
	var parts, texts []jinja.Value
	media := false
	for _, it := range items {
		part, kind, ok := c.part(it)
		if !ok {
			return part, false
		}
		switch kind {
		case partText:
			texts = append(texts, part)
			parts = append(parts, textPart(part))
		case partMedia:
			media = true
			parts = append(parts, part)
		case partOther:
			parts = append(parts, part)
		}
	}
	plain := len(texts) == len(parts)
	if c.parts && !(role == "tool" && plain) {
		return jinja.ListValue(parts), true
	}
	if media && c.mark && c.firstMedia() {
		texts = append([]jinja.Value{jinja.StringValue(mediaMark)}, texts...)
	}
	return jinja.StringValue(joinTexts(texts)), true
}

func joinTexts(texts []jinja.Value) string {
	if len(texts) == 1 {
		return texts[0].Str()
	}
	list := make([]string, len(texts))
	for i, t := range texts {
		list[i] = t.Str()
	}
	return strings.Join(list, "\n")
}

// firstMedia tells whether this is the first media part of the conversation,
// and takes note of it.
func (c *converter) firstMedia() bool {
	first := !c.media
	c.media = true
	return first
}

// partKind is what a content part becomes.
type partKind uint8

const (
	partNone partKind = iota // dropped
	partText
	partMedia
	partOther
)

// mediaKinds maps the type of a part to the kind of media that templates see.
var mediaKinds = map[string]string{
	"image_url": "image", "input_image": "image", "image_pil": "image", "image_embeds": "image", "image": "image",
	"audio_url": "audio", "input_audio": "audio", "audio_embeds": "audio", "audio": "audio",
	"video_url": "video", "video": "video", "prompt_embeds": "text",
}

// part converts one content part. Text parts come back as their text.
func (c *converter) part(v jinja.Value) (jinja.Value, partKind, bool) {
	if v.Kind() == jinja.String {
		return v, partText, true
	}
	d := v.Dict()
	if d == nil {
		c.bad = "a content part is a " + v.Kind().String()
		return v, partNone, false
	}
	typ := text(d, "type")
	switch typ {
	case "text", "input_text", "output_text", "refusal", "thinking":
		key := "text"
		if typ == "refusal" || typ == "thinking" {
			key = typ
		}
		t, _ := d.Get(key)
		if t.Kind() != jinja.String {
			return v, partNone, true // engines drop it with a warning
		}
		return t, partText, true
	case "tool_reference":
		name, _ := d.Get("name")
		ref := jinja.NewDict(2)
		ref.Set("type", jinja.StringValue(typ))
		ref.Set("name", name)
		return jinja.DictValue(ref), partOther, true
	case "":
		for key := range mediaKinds {
			if _, ok := d.Get(key); ok {
				typ = key
			}
		}
	}
	kind, ok := mediaKinds[typ]
	if !ok {
		c.bad = "a content part has an unknown type"
		return v, partNone, false
	}
	return c.mediaPart(kind), partMedia, true
}

// mediaPart is what templates see of an image, audio or video.
func (c *converter) mediaPart(kind string) jinja.Value {
	if c.parts && c.firstMedia() && c.mark {
		return textPart(jinja.StringValue(mediaMark))
	}
	d := jinja.NewDict(1)
	d.Set("type", jinja.StringValue(kind))
	return jinja.DictValue(d)
}

func textPart(t jinja.Value) jinja.Value {
	d := jinja.NewDict(2)
	d.Set("type", jinja.StringValue("text"))
	d.Set("text", t)
	return jinja.DictValue(d)
}

// foldDevelopers turns developer messages into system messages for templates
// that do not know the role, and joins several system messages into one at the
// start.
func foldDevelopers(conv []jinja.Value) []jinja.Value {
	found := false
	for i, v := range conv {
		if text(v.Dict(), "role") != "developer" {
			continue
		}
		found = true
		d := jinja.NewDict(4)
		v.Dict().Range(func(k string, v jinja.Value) bool {
			if k != "tools" {
				d.Set(k, v)
			}
			return true
		})
		d.Set("role", jinja.StringValue("system"))
		conv[i] = jinja.DictValue(d)
	}
	if !found {
		return conv
	}
	var system []string
	var rest []jinja.Value
	scattered := false
	for i, v := range conv {
		if text(v.Dict(), "role") != "system" {
			rest = append(rest, v)
			continue
		}
		scattered = scattered || i > 0
		if s := systemText(v.Dict()); s != "" {
			system = append(system, s)
		}
	}
	if !scattered {
		return conv
	}
	d := jinja.NewDict(2)
	d.Set("role", jinja.StringValue("system"))
	d.Set("content", jinja.StringValue(strings.Join(system, "\n\n")))
	return append([]jinja.Value{jinja.DictValue(d)}, rest...)
}

func systemText(m *jinja.Dict) string {
	content, _ := m.Get("content")
	if content.Kind() != jinja.List {
		return content.Str()
	}
	var texts []jinja.Value
	for _, p := range content.Items() {
		if p.Kind() == jinja.String {
			texts = append(texts, p)
		} else if d := p.Dict(); d != nil {
			if t, ok := d.Get("text"); ok {
				texts = append(texts, t)
			}
		}
	}
	return joinTexts(texts)
}
