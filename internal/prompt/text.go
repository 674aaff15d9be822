package prompt

import "github.com/grapevine-epp/grapevine/internal/prompt/value"

// renderText renders bodies whose prompt is text or ids.
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
		out, tokens, err := m.prompt(s, dst, v, special)
		return out, Info{Tokens: tokens}, err
	}
	items := v.Items()
	if len(items) == 0 {
		return nil, Info{}, failure(ReasonBody, "the prompt is a %s", v.Kind())
	}
	info := Info{}
	out := dst
	for _, it := range items {
		var tokens int
		var err error
		if out, tokens, err = m.prompt(s, out, it, special); err != nil {
			return nil, Info{}, err
		}
		info.Tokens += tokens
		info.Ends = append(info.Ends, len(out)-len(dst))
	}
	if len(info.Ends) == 1 {
		info.Ends = nil
	}
	return out, info, nil
}

// prompt renders one prompt.
func (m *Model) prompt(s *scratch, dst []byte, v value.Value, special bool) (out []byte, tokens int, err error) {
	switch v.Kind() {
	case value.KindIDs:
		out, ok := m.vocab.AppendTokens(dst, v.IDs())
		if !ok {
			return nil, 0, failure(ReasonUnknownToken, "%d ids", len(v.IDs()))
		}
		return out, len(v.IDs()), nil
	case value.KindString:
		out = dst
		if special {
			out = append(out, m.bos...)
		}
		start := len(out)
		out = m.settle(s, append(out, v.Str()...), start)
		if special {
			out = append(out, m.eos...)
		}
		return out, 0, nil
	}
	return nil, 0, failure(ReasonBody, "a prompt is a %s", v.Kind())
}
