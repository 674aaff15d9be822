package media

import (
	"bytes"
	"context"
	"strings"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// Kinds of media.
var Kinds = []string{"image", "video", "audio"}

// UsualPads are placeholders that templates print for media, by kind, where a model's
// config.json names none.
var UsualPads = map[string][]string{
	"image": {"<|image_pad|>", "<|image|>", "<IMG_CONTEXT>", "<image_soft_token>", "<image>", "[IMG]"},
	"video": {"<|video_pad|>", "<|video|>"},
	"audio": {"<|audio_pad|>", "<|AUDIO|>", "<|audio|>"},
}

// Pad is the text of a placeholder, and its kind of medium.
type Pad struct {
	Kind string
	Text []byte
}

// Place appends a rendered prompt and replaces its media placeholders by encoded names
// (block.AppendMedium). If a medium's name is unknown, the output ends before it and truncated is
// true. ok is false if placeholders and media do not match one to one. dst and text must not
// overlap.
func (n *Names) Place(ctx context.Context, dst, text []byte, pads []Pad, items []Item) (out []byte, truncated, ok bool, err error) {
	for _, p := range pads {
		if bytes.Count(text, p.Text) != count(items, p.Kind) {
			return dst, false, false, nil
		}
	}
	out = dst
	places := make([]place, len(pads)) // of the next placeholder of each kind
	for i := range places {
		places[i].find(text, 0, pads[i].Text)
	}
	at, name := 0, []byte(nil)
	for range items {
		which := first(places)
		if which < 0 {
			return dst, false, false, nil // one of a kind that has no placeholder
		}
		p := &places[which]
		for items[p.item].Kind != pads[which].Kind {
			p.item++
		}
		out = append(out, text[at:p.at]...)
		if name, ok, err = n.Name(ctx, name[:0], items[p.item]); err != nil || !ok {
			return out, true, true, err
		}
		out = block.AppendMedium(out, name)
		at = p.at + len(pads[which].Text)
		p.item++
		p.find(text, at, pads[which].Text)
	}
	return append(out, text[at:]...), false, true, nil
}

// place is where the next placeholder of a kind stands, -1 for nowhere, and from which
// item on its medium is found.
type place struct{ at, item int }

func (p *place) find(text []byte, from int, pad []byte) {
	if p.at = bytes.Index(text[from:], pad); p.at >= 0 {
		p.at += from
	}
}

// first returns which place comes first, -1 for none.
func first(places []place) int {
	which := -1
	for i, p := range places {
		if p.at >= 0 && (which < 0 || p.at < places[which].at) {
			which = i
		}
	}
	return which
}

func count(items []Item, kind string) (n int) {
	for i := range items {
		if items[i].Kind == kind {
			n++
		}
	}
	return n
}

// ItemOf reads a media part of a chat. altered is the result of [Altered] for the body.
func ItemOf(part *value.Dict, kind string, altered bool) Item {
	it := Item{Kind: kind}
	if altered || strings.HasSuffix(part.Text("type"), "_embeds") {
		return it
	}
	it.UUID = part.Text("uuid")
	url := ""
	if v, ok := part.Get("image_url"); ok {
		if url = v.Str(); v.Dict() != nil {
			url = v.Dict().Text("url")
		}
	}
	if src, ok := part.Get("source"); ok && src.Dict().Text("type") == "base64" {
		it.Data = src.Dict().Text("data")
	}
	head, data, ok := strings.Cut(url, ",")
	if kind, encoded := strings.CutSuffix(head, ";base64"); ok && encoded && strings.HasPrefix(kind, "data:image/") && !strings.Contains(kind, ";") {
		it.Data = data
	}
	return it
}

// Altered reports whether a body changes how engines process its media. The settings are then part
// of the media names.
func Altered(body *value.Dict) bool {
	for _, key := range []string{"mm_processor_kwargs", "media_io_kwargs"} {
		if v, ok := body.Get(key); ok && v.Kind() != value.KindNone && (v.Dict() == nil || v.Dict().Len() > 0) {
			return true
		}
	}
	return false
}
