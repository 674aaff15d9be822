package prompt

import (
	"math"

	"github.com/grapevine-epp/grapevine/indexer/prompt/jinja"
)

// renderText renders bodies whose prompt is text or ids.
func (m *Model) renderText(s *scratch, dst, body []byte, kind Kind) ([]byte, Info, error) {
	obj, err := s.object(body, completionsKeys)
	if err != nil {
		return nil, Info{}, err
	}
	for _, key := range []string{"prompt_embeds", "truncate_prompt_tokens", "features"} {
		if v, ok := obj.Get(key); ok && v.Kind() != jinja.None {
			return nil, Info{}, failure(ReasonUnsupported, "%s in the body", key)
		}
	}
	if kind == KindEmbeddings {
		if v, ok := obj.Get("messages"); ok && v.Kind() != jinja.None {
			return nil, Info{}, failure(ReasonUnsupported, "an embedding of a chat")
		}
	}
	special := true
	if v, ok := obj.Get("add_special_tokens"); ok && v.Kind() == jinja.Bool {
		special = v.IsTrue()
	}
	for _, key := range []string{"prompt", "input", "token_ids", "prompt_token_ids", "input_ids", "text"} {
		if v, ok := obj.Get(key); ok && v.Kind() != jinja.None {
			return m.prompts(s, dst, v, special)
		}
	}
	return nil, Info{}, failure(ReasonBody, "no prompt")
}

// prompts renders a string, a list of strings, ids, or a list of id lists.
func (m *Model) prompts(s *scratch, dst []byte, v jinja.Value, special bool) ([]byte, Info, error) {
	items := v.Items()
	if v.Kind() == jinja.String || len(items) > 0 && isInt(items[0]) {
		out, tokens, err := m.prompt(s, dst, v, special)
		return out, Info{Tokens: tokens}, err
	}
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

func isInt(v jinja.Value) bool { _, ok := v.Int(); return ok }

// prompt renders one prompt.
func (m *Model) prompt(s *scratch, dst []byte, v jinja.Value, special bool) (out []byte, tokens int, err error) {
	if v.Kind() == jinja.String {
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
	if v.Kind() != jinja.List {
		return nil, 0, failure(ReasonBody, "a prompt is a %s", v.Kind())
	}
	s.ids = s.ids[:0]
	for _, it := range v.Items() {
		id, ok := it.Int()
		if !ok || id < 0 || id > math.MaxUint32 {
			return nil, 0, failure(ReasonBody, "a token id is a %s", it.Kind())
		}
		s.ids = append(s.ids, uint32(id))
	}
	out, ok := m.vocab.AppendTokens(dst, s.ids)
	if !ok {
		return nil, 0, failure(ReasonUnknownToken, "%d ids", len(s.ids))
	}
	return out, len(s.ids), nil
}
