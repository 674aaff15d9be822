package prompt

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/media"
	"github.com/grapevine-epp/grapevine/internal/prompt/shape"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// content converts a message's content.
func (c *converter) content(m *value.Dict, role string) (value.Value, bool) {
	v, _ := m.Get("content")
	switch v.Kind() {
	case value.KindString:
		if role == "system" {
			v = value.String(c.withoutHeader(v.Str()))
			if v.Str() == "" {
				return c.empty(role), true
			}
		}
		if c.wraps(role) {
			return value.List([]value.Value{textPart(v)}), true
		}
		return v, true
	case value.KindUndefined, value.KindNone:
		return c.empty(role), true
	case value.KindList:
		return c.contentParts(v.Items(), role)
	}
	c.bad = "content is a " + v.Kind().String()
	return v, false
}

// wraps reports whether a string becomes a list of one part.
func (c *converter) wraps(role string) bool {
	if !c.parts || role == "tool" {
		return false
	}
	c.facts |= FactWrap
	return !c.as.sglang()
}

// empty returns the content of a message without one.
func (c *converter) empty(role string) value.Value {
	if c.wraps(role) {
		return value.List(nil)
	}
	return value.String("")
}

// withoutHeader removes Claude Code's header line from a system text. It changes with every
// request, and reaches chats through gateways that translate Anthropic bodies.
func (c *converter) withoutHeader(text string) string {
	if !strings.HasPrefix(text, billingHeader) {
		return text
	}
	c.facts |= FactHeader
	if !c.as.strips() {
		return text
	}
	_, rest, _ := strings.Cut(text, "\n")
	return rest
}

// join joins the texts of a message.
func (c *converter) join(texts []value.Value) string {
	if len(texts) < 2 {
		return shape.JoinTexts(texts)
	}
	c.facts |= FactTexts
	if c.as.sglang() {
		return shape.JoinWith(texts, " ")
	}
	return shape.JoinTexts(texts)
}

// contentParts converts a list of parts, either to a list of parts or to the texts joined by
// newlines, preceded by media where engines insert placeholders.
func (c *converter) contentParts(items []value.Value, role string) (value.Value, bool) {
	var parts, texts []value.Value
	media := false
	for _, it := range items {
		part, kind, ok := c.part(it)
		if !ok {
			return part, false
		}
		switch kind {
		case partText:
			if role == "system" {
				if text := c.withoutHeader(part.Str()); text == "" && part.Str() != "" {
					continue
				} else {
					part = value.String(text)
				}
			}
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
	if c.parts && (role != "tool" || !plain) {
		return value.List(parts), true
	}
	if media && c.mark && c.firstMedia() {
		texts = append([]value.Value{value.String(mediaMark)}, texts...)
	}
	return value.String(c.join(texts)), true
}

// firstMedia reports whether this is the conversation's first media part, and records that one was
// seen.
func (c *converter) firstMedia() bool {
	first := !c.media
	c.media = true
	return first
}

// partKind classifies a converted content part.
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

// part converts one content part. For a text part it returns the text.
func (c *converter) part(v value.Value) (value.Value, partKind, bool) {
	if v.Kind() == value.KindString {
		return v, partText, true
	}
	d := v.Dict()
	if d == nil {
		c.bad = "a content part is a " + v.Kind().String()
		return v, partNone, false
	}
	typ := d.Text("type")
	switch typ {
	case "text", "input_text", "output_text", "refusal", "thinking":
		key := "text"
		if typ == "refusal" || typ == "thinking" {
			key = typ
		}
		t, _ := d.Get(key)
		if t.Kind() != value.KindString {
			return v, partNone, true // engines drop it with a warning
		}
		return t, partText, true
	case "tool_reference":
		name, _ := d.Get("name")
		ref := value.NewDict(2)
		ref.Set("type", value.String(typ))
		ref.Set("name", name)
		return value.FromDict(ref), partOther, true
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
	return c.mediaPart(d, kind), partMedia, true
}

// mediaPart returns the form in which templates see an image, audio or video.
func (c *converter) mediaPart(part *value.Dict, kind string) value.Value {
	if c.parts && c.firstMedia() && c.mark {
		return textPart(value.String(mediaMark))
	}
	if !c.mark {
		c.media = true
		c.items = append(c.items, media.ItemOf(part, kind, c.altered))
	}
	d := value.NewDict(1)
	d.Set("type", value.String(kind))
	return value.FromDict(d)
}

func textPart(t value.Value) value.Value {
	d := value.NewDict(2)
	d.Set("type", value.String("text"))
	d.Set("text", t)
	return value.FromDict(d)
}
