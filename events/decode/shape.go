package decode

import (
	"bytes"
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// shape is a parsed event without its hashes, parent and tokens. Most events of a batch differ only
// in these, and equal bytes mean equal fields, so such an event is compared instead of parsed.
type shape struct {
	parts  [4][]byte // up to the first hash, up to the parent, up to the tokens, and up to the end
	hashes int       // 0: no shape
	parent bool
	tokens bool
	event  int // index in Batch.Events
}

// maxShape is the maximum number of hashes for which shapes are kept: the list's header is then one
// byte.
const maxShape = 15

// hashSize is the size of a hash as a 64-bit integer.
const hashSize = 9

// place is the position of a field's value in an event, as the number of bytes after its beginning
// and after its end.
type place struct {
	from, to int
	n        int // number of occurrences
}

// places are the positions of the fields that a shape omits.
type places struct{ hashes, parent, tokens place }

func (v *place) note(p, rest []byte) { v.from, v.to, v.n = len(p), len(rest), v.n+1 }

// learn stores the shape of the last event, which lies between start and rest.
func (b *Batch) learn(start, rest []byte) {
	v, at := &b.at, len(b.Events)-1
	e := &b.Events[at]
	n, kind := len(e.Hashes), int(e.Kind-BlockStored)
	if kind >= len(b.shapes) || n == 0 || n > maxShape || v.hashes.n != 1 || v.parent.n > 1 || v.tokens.n > 1 || len(e.Extra) > 0 {
		return
	}
	if v.hashes.from-v.hashes.to != 1+n*hashSize || start[len(start)-v.hashes.from]&0xf0 != mpFixArray {
		return
	}
	cut := func(from, to int) []byte { return start[len(start)-from : len(start)-to] }
	s := shape{hashes: n, parent: v.parent.n == 1, tokens: v.tokens.n == 1, event: at}
	s.parts[0] = cut(len(start), v.hashes.from-1)
	end := v.hashes.to
	if s.parent {
		if v.parent.from > end || v.parent.from-v.parent.to != hashSize {
			return
		}
		s.parts[1] = cut(end, v.parent.from)
		end = v.parent.to
	}
	if s.tokens {
		if v.tokens.from > end {
			return
		}
		s.parts[2] = cut(end, v.tokens.from)
		end = v.tokens.to
	}
	s.parts[3] = cut(end, len(rest))
	b.shapes[kind] = s
}

// alike reads an event with the given shape. If it does not match, b.hashes and b.tokens may have
// grown.
func (b *Batch) alike(e *Event, p []byte, s *shape) (rest []byte, ok bool) {
	if s.hashes == 0 || !bytes.HasPrefix(p, s.parts[0]) || len(b.hashes)+s.hashes > maxHashes {
		return p, false
	}
	p = p[len(s.parts[0]):]
	*e = b.Events[s.event]
	hashes, tokens := len(b.hashes), len(b.tokens)
	for range s.hashes {
		h, rest, ok := plainHash(p)
		if !ok {
			return p, false
		}
		b.hashes, p = append(b.hashes, h), rest
	}
	e.Hashes = b.hashes[hashes:len(b.hashes):len(b.hashes)]
	if s.parent {
		if p, ok = bytes.CutPrefix(p, s.parts[1]); !ok {
			return p, false
		}
		if e.Parent, p, ok = plainHash(p); !ok {
			return p, false
		}
	}
	if s.tokens {
		if p, ok = bytes.CutPrefix(p, s.parts[2]); !ok {
			return p, false
		}
		var err error
		if b.tokens, p, err = appendTokens(b.tokens, p); err != nil {
			return p, false
		}
		e.Tokens = b.tokens[tokens:len(b.tokens):len(b.tokens)]
	}
	return bytes.CutPrefix(p, s.parts[3])
}

// plainHash reads a hash that is a 64-bit integer.
func plainHash(p []byte) (block.EngineHash, []byte, bool) {
	if len(p) < hashSize || p[0] != mpUint64 && p[0] != mpInt64 {
		return 0, p, false
	}
	return block.EngineHash(binary.BigEndian.Uint64(p[1:])), p[hashSize:], true
}
