package translate

import (
	"github.com/grapevine-epp/grapevine/indexer/block"

	"github.com/grapevine-epp/grapevine/events/decode"
)

// generatedBlocks is the largest store that may hold generated tokens: a decode step completes one
// block of a request, two with speculation. Longer stores are prompts.
const generatedBlocks = 2

// Size of the cache of text before recent blocks.
const (
	tailSlots = 256
	tailBytes = 48
)

// tails caches the last bytes of text before recently stored blocks, so that the first word of
// their children can be checked. It is a direct-mapped cache; evicted entries count as unknown.
type tails [tailSlots]struct {
	hash block.EngineHash
	n    uint8
	text [tailBytes]byte
}

func (t *tails) put(h block.EngineHash, text []byte) {
	s := &t[uint64(h)%tailSlots]
	s.hash = h
	text = text[block.BehindMedia(text):] // text after a medium is checked by itself
	if len(text) > tailBytes {
		text = text[len(text)-tailBytes:]
	}
	s.n = uint8(copy(s.text[:], text))
}

func (t *tails) get(h block.EngineHash) []byte {
	s := &t[uint64(h)%tailSlots]
	if s.hash != h || s.n == 0 {
		return nil
	}
	return s.text[:s.n]
}

// before returns the known text before the block that starts at t.text[start:].
func (t *Translator) before(e *decode.Event, root bool, start int) []byte {
	switch {
	case start > 0:
		return t.text[block.BehindMedia(t.text[:start]):start]
	case root:
		return t.text[:0]
	case t.tails == nil:
		return nil
	default:
		return t.tails.get(e.Parent)
	}
}
