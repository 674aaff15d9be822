package vocab

// hard reports whether there is a piece boundary at i regardless of the surrounding text. 0 < i <
// len(s).
func (v *Vocab) hard(s []byte, i int) bool { return v.pat.Boundary(s, i) }

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

// BoundarySafe reports whether the tokens of text, which is in text space, have a boundary at byte
// pos. A cached block that ends at pos can be reused only in that case. It examines the pre-token
// around pos. It returns false if there is no word boundary within a kilobyte, and true if the
// vocabulary cannot encode.
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

// boundaryIn reports whether the tokens of s, which starts a piece, have a boundary at pos. cut
// means that the text continues after s; a piece that reaches the end of s is then not evaluated.
func (v *Vocab) boundaryIn(s []byte, pos int, cut bool) bool {
	for sp := v.pat.Split(s); ; {
		a := sp.Pos()
		if a == pos {
			return true
		}
		b := sp.Next()
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
