package vocab

import "unicode/utf8"

// hard tells that there is a piece boundary at i whatever surrounds it: no
// match of the split pattern holds both the character before and the one
// after. 0 < i < len(s).
func (v *Vocab) hard(s []byte, i int) bool {
	if !utf8.FullRune(s[i:]) || !utf8.RuneStart(s[i]) {
		return false // inside a character, or before one that is cut off
	}
	switch v.pat.family {
	case famNone:
		return false
	case famSpaces:
		return s[i] == ' ' && s[i-1] != ' ' && !v.pat.reaches(s, i, true)
	}
	prev := classBefore(s[:i])
	next, _ := classAt(s[i:])
	switch {
	case prev&clL != 0:
		return next&(clL|clMark) == 0 && s[i] != '\''
	case prev == clNumber:
		return next != clNumber
	case prev == clNewline:
		return next&clWhite == 0 && s[i] != '/'
	default:
		return next == clSpace && prev&clWhite == 0
	}
}

// classBefore returns the class of the last character of s.
func classBefore(s []byte) class {
	if c := s[len(s)-1]; c < utf8.RuneSelf {
		return classTable[c]
	}
	r, n := utf8.DecodeLastRune(s)
	if r == utf8.RuneError && n <= 1 {
		return clOther
	}
	return classOf(r)
}

// lastHard returns the last hard boundary of s in (lo, at], or -1.
func (v *Vocab) lastHard(s []byte, lo, at int) int {
	for i := min(at, len(s)-1); i > lo; i-- {
		if v.hard(s, i) {
			return i
		}
	}
	return -1
}

// boundaryReach is how far BoundarySafe looks back for a place to start from.
const boundaryReach = 1 << 10

// BoundarySafe tells whether the tokens of text, which is in text space, have
// a boundary at byte pos. A cached block that ends there can only be reused if
// they do. It looks at the pre-token around pos; where it cannot tell (no word
// boundary within a kilobyte) it says no. Without an encoder it says yes.
func (v *Vocab) BoundarySafe(text []byte, pos int) bool {
	if pos <= 0 || pos >= len(text) || !v.CanEncode() {
		return true
	}
	lo, hi := max(0, pos-boundaryReach), min(len(text), pos+boundaryReach)
	cut := hi
	if hi == len(text) {
		cut = -1
	}
	start, known := lo, lo == 0
	for at := lo; ; {
		sp, ok := v.added.all.next(text[:hi], at)
		if !ok {
			break
		}
		end := sp.lit + sp.size
		if sp.lit < pos && pos < end {
			return false
		}
		if sp.lit == pos || end == pos {
			return true
		}
		if sp.lit > pos {
			hi = sp.lit
			break
		}
		at, start, known = end, end, true
	}
	if begin := v.lastHard(text[:hi], start, pos); begin == pos {
		return true
	} else if begin > 0 {
		start = begin
	} else if !known {
		return false
	}
	return v.boundaryIn(text[start:hi], pos-start, hi == cut)
}

// boundaryIn tells whether the tokens of s, which starts a piece, have a
// boundary at pos. cut says that s goes on; a piece that reaches its end is
// not judged then.
func (v *Vocab) boundaryIn(s []byte, pos int, cut bool) bool {
	for sp := v.pat.split(s); ; {
		a := sp.pos
		if a == pos {
			return true
		}
		b := sp.next()
		if b <= pos {
			continue
		}
		if cut && b == len(s) {
			return false
		}
		var buf [64]uint32
		for _, id := range v.bpe.encode(buf[:0], s[a:b]) {
			if a += v.TokenLen(id); a >= pos {
				return a == pos
			}
		}
		return false
	}
}
