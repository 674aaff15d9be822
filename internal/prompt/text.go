package prompt

import (
	"slices"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// renderText renders bodies whose prompt is text or token ids.
func (m *Model) renderText(s *scratch, dst, body []byte, kind Kind) ([]byte, Info, error) {
	s.dec.PackIDs = true
	obj, err := s.object(body, completionsKeys)
	s.dec.PackIDs = false
	if err != nil {
		return nil, Info{}, err
	}
	for _, key := range []string{"prompt_embeds", "truncate_prompt_tokens", "features"} {
		if v, ok := obj.Get(key); ok && v.Kind() != value.KindNone {
			return nil, Info{}, failure(ReasonUnsupported, "%s in the body", key)
		}
	}
	if kind == KindEmbeddings {
		if v, ok := obj.Get("messages"); ok && v.Kind() != value.KindNone {
			return nil, Info{}, failure(ReasonUnsupported, "an embedding of a chat")
		}
	}
	special := flag(obj, "add_special_tokens", true)
	for _, key := range []string{"prompt", "input", "token_ids", "prompt_token_ids", "input_ids", "text"} {
		if v, ok := obj.Get(key); ok && v.Kind() != value.KindNone {
			return m.prompts(s, dst, v, special)
		}
	}
	return nil, Info{}, failure(ReasonBody, "no prompt")
}

// prompts renders a string, a list of strings, ids, or a list of id lists.
func (m *Model) prompts(s *scratch, dst []byte, v value.Value, special bool) ([]byte, Info, error) {
	if v.Kind() == value.KindString || v.Kind() == value.KindIDs {
		out, err := m.prompt(s, dst, v, special)
		if err != nil {
			return nil, Info{}, err
		}
		info := Info{}
		if v.Kind() == value.KindIDs {
			info.cut(m, v.IDs(), 0)
		}
		return out, info, nil
	}
	items := v.Items()
	if len(items) == 0 {
		return nil, Info{}, failure(ReasonBody, "the prompt is a %s", v.Kind())
	}
	info := Info{}
	out := dst
	for _, it := range items {
		at := len(out) - len(dst)
		var err error
		if out, err = m.prompt(s, out, it, special); err != nil {
			return nil, Info{}, err
		}
		if it.Kind() == value.KindIDs {
			info.cut(m, it.IDs(), at)
		}
		info.Ends = append(info.Ends, len(out)-len(dst))
	}
	if len(info.Ends) == 1 {
		info.Ends = nil
	}
	return out, info, nil
}

// cut records the token ends of a prompt that begins at a byte of the output.
func (i *Info) cut(m *Model, ids []uint32, at int) {
	i.Tokens += len(ids)
	i.Cuts = slices.Grow(i.Cuts, len(ids))
	for _, id := range ids {
		at += m.vocab.TokenLen(id)
		i.Cuts = append(i.Cuts, int32(at))
	}
}

// prompt renders one prompt.
func (m *Model) prompt(s *scratch, dst []byte, v value.Value, special bool) (out []byte, err error) {
	switch v.Kind() {
	case value.KindIDs:
		out, ok := m.vocab.AppendTokens(dst, v.IDs())
		if !ok {
			return nil, failure(ReasonUnknownToken, "%d ids", len(v.IDs()))
		}
		return out, nil
	case value.KindString:
		if why := m.vocab.Lossy(); why != "" {
			return nil, failure(ReasonUnsupported, "%s", lossy(why))
		}
		out = dst
		if special {
			out = append(out, m.bos...)
		}
		start := len(out)
		out = m.settle(s, append(out, v.Str()...), start)
		if special {
			out = append(out, m.eos...)
		}
		return out, nil
	}
	return nil, failure(ReasonBody, "a prompt is a %s", v.Kind())
}
