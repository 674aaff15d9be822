package translate

import (
	"bytes"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// mediaKept is how many names of media are remembered as told.
const mediaKept = 64

// extraOf returns the keys at the head of extra that are of block i.
func extraOf(extra []decode.ExtraKey, i int) []decode.ExtraKey {
	n := 0
	for n < len(extra) && int(extra[n].Block) == i {
		n++
	}
	return extra[:n]
}

// extraFrom returns the keys of the blocks from up to to of an event, as keys of an event
// of these alone.
func extraFrom(extra []decode.ExtraKey, from, to int) (out []decode.ExtraKey) {
	for _, k := range extra {
		if b := int(k.Block); b >= from && b < to {
			k.Block -= uint32(from)
			out = append(out, k)
		}
	}
	return out
}

// textOf appends the text of an event's blocks as far as it is known.
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

// illustrated appends the text of a block that images, sounds or videos are in. An engine
// fills each with as many tokens as it makes of it, a run of equal ones: a request knows the
// medium and not their number. So a medium is what block.AppendMedium makes of its name,
// where it begins, and the run has no text. A block within it then has none at all, and lies
// on the way of every prompt that has the medium there. What an engine puts around a run
// besides is text that no request has: such prompts end at the medium.
//
// extra are the keys of the block, begin is where ids begin in it. It returns dst and false where there
// is no medium, or it cannot be told which tokens are its.
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
			break // among the tokens behind the block
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
			t.tellMedium(k.Value)
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

// nextMedium returns where the next medium of extra begins behind from, at most end.
func nextMedium(extra []decode.ExtraKey, begin, from, end int) int {
	for _, k := range extra {
		if k.Kind == decode.ExtraPair && k.Offset > int64(begin+from) {
			return int(min(k.Offset-int64(begin), int64(end)))
		}
	}
	return end
}

// run is how many tokens are equal to the first.
func run(ids []uint32) int {
	n := 0
	for n < len(ids) && ids[n] == ids[0] {
		n++
	}
	return n
}

// tellMedium tells of a medium that has not been told lately.
func (t *Translator) tellMedium(id []byte) {
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

// maxMediumName is the longest name of a medium that is remembered, in bytes.
const maxMediumName = 256
