package vocab

import "unicode/utf8"

// noToken marks a byte or character that the vocabulary has no token for.
const noToken = ^uint32(0)

// smallPiece is the number of symbols up to which merging scans for the best
// pair; longer pieces use a heap, so that no text costs quadratic time.
const smallPiece = 160

// bpe holds the tables for byte-pair encoding of one piece.
type bpe struct {
	pieces *pieceTable
	pairs  *pairTable
	bytes  [256]uint32 // token of each byte, or noToken
	self   []uint64    // bit per id: encoding the token's bytes gives the token
	chars  bool        // symbols start as characters (SentencePiece) instead of bytes
	whole  bool        // a piece that is a token is never merged (ignore_merges)
	unk    uint32      // the unknown token, or noToken
}

func (b *bpe) isSelf(id uint32) bool { return b.self[id>>6]&(1<<(id&63)) != 0 }

// encode appends the ids of one piece.
func (b *bpe) encode(dst []uint32, piece []byte) []uint32 {
	if id, ok := b.pieces.find(piece); ok && (b.whole || b.isSelf(id)) {
		return append(dst, id)
	}
	return b.merge(dst, piece)
}

// merge appends the ids of a piece by applying merges, lowest rank first, the
// leftmost of equal ones first.
func (b *bpe) merge(dst []uint32, piece []byte) []uint32 {
	if len(piece) <= smallPiece {
		var buf [smallPiece]uint32
		return append(dst, b.mergeSmall(b.symbols(buf[:0], piece))...)
	}
	syms := b.symbols(make([]uint32, 0, len(piece)), piece)
	if len(syms) <= smallPiece {
		return append(dst, b.mergeSmall(syms)...)
	}
	return mergeLarge(b.pairs, dst, syms)
}

// symbols appends the ids that merging starts from.
func (b *bpe) symbols(dst []uint32, piece []byte) []uint32 {
	if !b.chars {
		for _, c := range piece {
			if id := b.bytes[c]; id != noToken {
				dst = append(dst, id)
			} else if b.unk != noToken {
				dst = append(dst, b.unk)
			}
		}
		return dst
	}
	for len(piece) > 0 {
		n := runeLen(piece)
		if id, ok := b.pieces.find(piece[:n]); ok {
			dst = append(dst, id)
		} else {
			dst = b.fallback(dst, piece[:n])
		}
		piece = piece[n:]
	}
	return dst
}

// fallback appends the byte tokens of a character, or the unknown token if a byte token is missing.
func (b *bpe) fallback(dst []uint32, char []byte) []uint32 {
	start := len(dst)
	for _, c := range char {
		id := b.bytes[c]
		if id == noToken {
			if dst = dst[:start]; b.unk != noToken {
				dst = append(dst, b.unk)
			}
			return dst
		}
		dst = append(dst, id)
	}
	return dst
}

// mergeSmall merges in place and returns the remaining tokens.
func (b *bpe) mergeSmall(syms []uint32) []uint32 {
	var ranks, merged [smallPiece]uint32
	n := len(syms)
	for i := 0; i+1 < n; i++ {
		ranks[i], merged[i] = b.pairs.find(syms[i], syms[i+1])
	}
	for n > 1 {
		best, at := noMerge, 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noMerge {
			break
		}
		syms[at] = merged[at]
		copy(syms[at+1:n-1], syms[at+2:n])
		copy(ranks[at:n-1], ranks[at+1:n])
		copy(merged[at:n-1], merged[at+1:n])
		n--
		if at+1 < n {
			ranks[at], merged[at] = b.pairs.find(syms[at], syms[at+1])
		}
		if at > 0 {
			ranks[at-1], merged[at-1] = b.pairs.find(syms[at-1], syms[at])
		}
	}
	return syms[:n]
}

// markSelf computes, for every token that text can produce, whether encoding
// its bytes gives the token back.
func (b *bpe) markSelf(v *Vocab, ids []uint32) {
	b.self = make([]uint64, (v.Size()+63)/64)
	var buf []uint32
	for _, id := range ids {
		tok := v.token(id)
		if b.chars && !utf8.Valid(tok) {
			continue
		}
		buf = b.merge(buf[:0], tok)
		if len(buf) == 1 && buf[0] == id {
			b.self[id>>6] |= 1 << (id & 63)
		}
	}
}
