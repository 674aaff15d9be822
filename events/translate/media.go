package translate

import (
	"bytes"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// mediaKept is the number of recently reported media names.
const mediaKept = 64

// extraOf returns the leading keys of extra that belong to block i.
func extraOf(extra []decode.ExtraKey, i int) []decode.ExtraKey {
	n := 0
	for n < len(extra) && int(extra[n].Block) == i {
		n++
	}
	return extra[:n]
}

// extraFrom returns the keys of blocks from to to, renumbered for an event of these blocks only.
func extraFrom(extra []decode.ExtraKey, from, to int) (out []decode.ExtraKey) {
	for _, k := range extra {
		if b := int(k.Block); b >= from && b < to {
			k.Block -= uint32(from)
			out = append(out, k)
		}
	}
	return out
}

// textOf appends the text of an event's blocks as far as known.
func (t *Translator) textOf(dst []byte, e *decode.Event) []byte {
	if t.opt.Vocabulary == nil {
		return appendIDs(dst, e.Tokens)
	}
	if len(e.Extra) == 0 {
		dst, _ = t.opt.Vocabulary.AppendTokens(dst, e.Tokens)
		return dst
	}
	extra, size := e.Extra, int(e.BlockSize)
	for i := range e.Hashes {
		own, ids := extraOf(extra, i), e.Tokens[i*size:(i+1)*size]
		extra = extra[len(own):]
		var ok bool
		if dst, ok = t.illustrated(dst, own, ids, 0); !ok {
			dst, _ = t.opt.Vocabulary.AppendTokens(dst, ids)
		}
	}
	return dst
}

// illustrated appends the text of a block with images, audio or video. An engine replaces each
// medium by a run of equal tokens of unknown length, while a request contains only the medium. A
// medium is therefore represented by block.AppendMedium of its name at its beginning, and the run
// has no text.
//
// A block within the run has no text at all and lies on the path of every prompt with that medium
// there. Tokens that an engine adds around a run are text that no request has, so such prompts
// match only up to the medium.
//
// extra are the block's keys, begin is the position of ids in it. It returns dst and false if there
// is no medium, or its tokens cannot be determined.
func (t *Translator) illustrated(dst []byte, extra []decode.ExtraKey, ids []uint32, begin int) ([]byte, bool) {
	if len(extra) == 0 || t.opt.Vocabulary == nil {
		return dst, false
	}
	out, at, found := dst, 0, false
	for i, k := range extra {
		if k.Kind != decode.ExtraPair {
			continue
		}
		first := k.Offset - int64(begin)
		if first >= int64(len(ids)) {
			break // among the tokens after the block
		}
		from := int(max(first, 0))
		if from < at {
			return dst, false
		}
		found = true
		var ok bool
		if out, ok = t.opt.Vocabulary.AppendTokens(out, ids[at:from]); !ok {
			return dst, false
		}
		if first >= 0 {
			out = block.AppendMedium(out, k.Value)
			t.reportMedium(k.Value)
		}
		at = from + run(ids[from:nextMedium(extra[i+1:], begin, from, len(ids))])
	}
	if !found {
		return dst, false
	}
	out, ok := t.opt.Vocabulary.AppendTokens(out, ids[at:])
	if !ok {
		return dst, false
	}
	return out, true
}

// nextMedium returns where the next medium of extra begins after from, at most end.
func nextMedium(extra []decode.ExtraKey, begin, from, end int) int {
	for _, k := range extra {
		if k.Kind == decode.ExtraPair && k.Offset > int64(begin+from) {
			return int(min(k.Offset-int64(begin), int64(end)))
		}
	}
	return end
}

// run returns the length of the initial run of equal tokens.
func run(ids []uint32) int {
	n := 0
	for n < len(ids) && ids[n] == ids[0] {
		n++
	}
	return n
}

// reportMedium reports a medium unless it was reported recently.
func (t *Translator) reportMedium(id []byte) {
	if t.opt.Medium == nil {
		return
	}
	for i := range t.media {
		if bytes.Equal(t.media[i], id) {
			return
		}
	}
	t.opt.Medium(id)
	if len(id) > maxMediumName {
		return
	}
	if len(t.media) < mediaKept {
		t.media = append(t.media, bytes.Clone(id))
		return
	}
	t.media[t.nextMedium] = append(t.media[t.nextMedium][:0], id...)
	t.nextMedium = (t.nextMedium + 1) % mediaKept
}

// maxMediumName is the longest remembered media name in bytes.
const maxMediumName = 256
