package vocab

// maxAhead is how many tokens engines hash behind a block at most (EAGLE, MTP): the first
// block of a prompt is that much longer.
const maxAhead = 8

// IsTokenBoundary reports whether a token always ends at byte pos of text, which is in text space,
// because a word or an added token ends there.
func (v *Vocab) IsTokenBoundary(text []byte, pos int) bool {
	if pos <= 0 || pos >= len(text) || !v.CanEncode() {
		return true
	}
	return v.hard(text, pos)
}

// Aligned checks blocks against the tokens of text. ends are the byte positions at which
// consecutive blocks end; ends[0] is the start of the first block. Each block should hold size
// tokens. A block at the start of the text may hold some more, because engines with speculative
// decoding hash extra tokens with the preceding block. It returns the number of leading blocks that
// match. A block of generated tokens that differ from the tokens of its text covers fewer tokens,
// or ends inside one.
func (v *Vocab) Aligned(text []byte, ends []int32, size int) int {
	n := len(ends) - 1
	if n <= 0 || !v.CanEncode() {
		return max(n, 0)
	}
	first, last := int(ends[0]), int(ends[n])
	start := v.wordStart(text, first)
	stop := v.wordEnd(text, start, last)
	var buf [512]uint32
	at, block, count := start, 0, 0
	for _, id := range v.EncodePrepared(buf[:0], text[start:stop]) {
		if at < first {
			if at += v.TokenLen(id); at > first {
				return 0
			}
			continue
		}
		at += v.TokenLen(id)
		count++
		switch end := int(ends[block+1]); {
		case at > end, at == end && count != size && (block > 0 || first > 0 || count < size || count > size+maxAhead):
			return block
		case at == end:
			count = 0
			if block++; block == n {
				return n
			}
		}
	}
	return block
}

// wordStart returns the last start of a word or added token at or before pos. If there is none
// within a kilobyte, it returns pos.
func (v *Vocab) wordStart(text []byte, pos int) int {
	lo := max(0, pos-boundaryReach)
	start := lo
	for at := lo; ; {
		sp, ok := v.added.all.next(text[:pos], at)
		if !ok {
			break
		}
		at = sp.lit + sp.size
		start = at
	}
	if i := v.lastHard(text, start, pos); i > 0 {
		return i
	}
	if start > lo || lo == 0 {
		return start
	}
	return pos
}

// wordEnd returns the first position at or after pos, within a kilobyte, at which a word or an
// added token ends. start is the start of a word or token.
func (v *Vocab) wordEnd(text []byte, start, pos int) int {
	stop := min(len(text), pos+boundaryReach)
	for at := start; ; {
		sp, ok := v.added.all.next(text[:stop], at)
		if !ok {
			break
		}
		if at = sp.lit + sp.size; sp.lit >= pos {
			stop = sp.lit
			break
		} else if at >= pos {
			return at
		}
	}
	for i := max(pos, start+1); i < stop; i++ {
		if v.hard(text, i) {
			return i
		}
	}
	return stop
}
