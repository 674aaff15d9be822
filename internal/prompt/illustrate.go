package prompt

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/folder"
	"github.com/grapevine-epp/grapevine/internal/prompt/media"
)

// findPads finds the token that the model's template prints for each kind of media. Engines replace
// it by as many tokens as the medium takes.
func (m *Model) findPads(conf *folder.Config) {
	for _, kind := range media.Kinds {
		var text []byte
		if id, ok := conf.Pads[kind]; ok && m.vocab.IsAdded(id) {
			text, _ = m.vocab.AppendToken(nil, id)
		}
		for _, usual := range media.UsualPads[kind] {
			if len(text) > 0 {
				break
			}
			if ids := m.vocab.EncodePrepared(nil, []byte(usual)); len(ids) == 1 && m.vocab.IsAdded(ids[0]) {
				text = []byte(usual)
			}
		}
		if len(text) > 0 {
			m.pads = append(m.pads, media.Pad{Kind: kind, Text: text})
		}
	}
}

// names reports whether media in prompts of this template are identified by the names that engines
// give them.
func (m *Model) names(t *template, as Profile) bool {
	return m.opts.Media != nil && t.parts[as.rule()] && len(m.pads) > 0
}

// mediaStatus describes for the status page how media in the model's chats are matched.
func (m *Model) mediaStatus() string {
	switch {
	case len(m.pads) == 0 || m.chat == nil:
		return ""
	case !m.names(m.chat, 0):
		return "prompts are matched up to the first: its place in a chat is set by the engine"
	}
	return m.opts.Media.Status() + "; sounds and videos by uuid; prompts are matched up to the first that has no such name"
}

// illustrate replaces the media placeholders of a rendered prompt by the encoded names of the
// media. ok is false if placeholders and media do not match one to one.
func (m *Model) illustrate(s *scratch, out []byte, start int, items []media.Item) (_ []byte, truncated, ok bool, err error) {
	s.text = append(s.text[:0], out[start:]...)
	return m.opts.Media.Place(s.ctx, out[:start], s.text, m.pads, items)
}

// renderCut renders a chat up to its first medium.
func (m *Model) renderCut(s *scratch, dst []byte, t *template, ch *chat) ([]byte, error) {
	conv := converter{dec: &s.dec, parts: t.parts[s.as.rule()], as: s.as, mark: true}
	messages, err := m.conversation(t, &conv, ch)
	if err != nil {
		return nil, err
	}
	out := dst
	if ch.addSpecial {
		out = append(out, m.bos...)
	}
	head := len(out)
	if out, err = t.Render(s.ctx, out, m.vars(s, t, ch, messages), s.limits); err != nil {
		return nil, templateError(err)
	}
	if out, err = m.cutMedia(s, out, head, t, ch); err != nil {
		return nil, err
	}
	return m.settle(s, out, len(dst)), nil
}
