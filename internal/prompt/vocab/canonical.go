package vocab

import (
	"bytes"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// Verdict is the result of a check.
type Verdict uint8

// Verdicts.
const (
	Unknown   Verdict = iota // the rest depends on text that was not given
	Canonical                // the block's tokens equal the tokens of its text
	Deviates                 // a token is not
)

// Window is a block of tokens and its context. More context leaves fewer cases undecided: a
// sentence before and a word after suffice for most text.
type Window struct {
	// Text is the text before Before, if its tokens are unknown. Its own tokenization is not used,
	// because that also depends on the text after its end.
	Text                 []byte
	Before, Block, After []uint32
	Root                 bool // the prompt starts with Text and Before
	Final                bool // the prompt ends with After
}

// Checker decides whether blocks of generated tokens are canonical: whether
// an engine that tokenizes their text again, as part of the next turn's
// prompt, gets the same tokens. It keeps scratch memory; it is not safe for
// concurrent use.
type Checker struct {
	v    *Vocab
	text []byte
	offs []int // offs[i] = start of token i, offs[len] = len(text); offs[0] is the length of Window.Text
	ids  []uint32
	want []uint32
}

// NewChecker returns a Checker for v, nil when v cannot encode.
func (v *Vocab) NewChecker() *Checker {
	if !v.CanEncode() {
		return nil
	}
	return &Checker{v: v}
}

// Check checks the block. n is the number of its leading tokens that are proven canonical. For
// Deviates it is the index of the first deviating token, and for Unknown the index of the first
// undecided one.
func (c *Checker) Check(w Window) (verdict Verdict, n int) {
	if !c.load(w) {
		return Deviates, 0
	}
	first := len(w.Before)
	lo, hi := c.offs[first], c.offs[first+len(w.Block)]
	good := lo // everything before good is proven
	for pos := 0; pos < len(c.text) && good < hi; {
		sp, ok := c.v.added.all.next(c.text, pos)
		seg := segment{lo: pos, hi: len(c.text), start: pos > 0 || w.Root, end: ok || w.Final}
		if ok {
			seg.hi = sp.start
		}
		if seg.hi > lo && seg.hi > seg.lo {
			at, v := c.segment(seg, max(lo, seg.lo), hi)
			if good = max(good, min(at, hi)); v != Canonical {
				return c.result(v, good, first, len(w.Block))
			}
		}
		if !ok {
			break
		}
		pos = sp.lit + sp.size
		if pos > lo {
			if at := c.literal(sp); at >= 0 && at < hi {
				return c.result(Deviates, max(at, lo), first, len(w.Block))
			}
			good = max(good, min(pos, hi))
		}
	}
	if good < hi {
		return c.result(Unknown, good, first, len(w.Block))
	}
	return Canonical, len(w.Block)
}

// load decodes the window; it returns false when an id is unknown.
func (c *Checker) load(w Window) bool {
	c.text, c.offs, c.ids = append(c.text[:0], w.Text...), c.offs[:0], c.ids[:0]
	for _, part := range [3][]uint32{w.Before, w.Block, w.After} {
		for _, id := range part {
			c.offs = append(c.offs, len(c.text))
			var ok bool
			if c.text, ok = c.v.AppendToken(c.text, id); !ok {
				return false
			}
		}
		c.ids = append(c.ids, part...)
	}
	c.offs = append(c.offs, len(c.text))
	return true
}

// result turns a byte position into the number of the block's tokens that end
// at or before it.
func (c *Checker) result(v Verdict, at, first, n int) (Verdict, int) {
	k := 0
	for k < n && c.offs[first+k+1] <= at {
		k++
	}
	if k == n {
		return Canonical, n
	}
	return v, k
}

// literal checks that a single token covers an added token's text and consumes no other text. It
// returns the position of a deviation, or -1.
func (c *Checker) literal(sp span) int {
	if sp.start < sp.lit {
		return sp.start
	}
	i := c.tokenAt(sp.lit)
	if i < 0 || c.ids[i] != sp.id {
		return sp.lit
	}
	if end := sp.lit + sp.size; sp.stop > end {
		return end
	}
	return -1
}

// tokenAt returns the index of the token that starts at byte pos, or -1.
func (c *Checker) tokenAt(pos int) int {
	lo, hi := 0, len(c.offs)-1
	for lo < hi {
		mid := (lo + hi) / 2
		if c.offs[mid] < pos {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if c.offs[lo] != pos {
		return -1
	}
	return lo
}

// segment is a stretch of text without added tokens. start and end are true if the text really
// begins and ends there.
type segment struct {
	lo, hi     int
	start, end bool
}

// segment compares the pieces of seg between from and to with the tokens. It
// returns how far they agree.
func (c *Checker) segment(seg segment, from, to int) (at int, v Verdict) {
	text := c.text[:seg.hi]
	begin := c.v.lastHard(text, seg.lo, from)
	if begin < 0 {
		if begin = seg.lo; !seg.start {
			return from, Unknown
		}
	}
	limit := seg.hi
	if !seg.end {
		limit = max(begin, c.v.lastHard(text, begin, len(text)-1))
	}
	if bad := c.v.unsettled(text[begin:limit]); bad >= 0 && begin+bad < to {
		bad = max(begin+bad, from)
		if at, v = c.pieces(text, begin, from, bad, limit); v == Canonical {
			return bad, Deviates
		}
		return min(at, bad), v
	}
	return c.pieces(text, begin, from, to, limit)
}

// pieces splits text from begin on and compares the pieces that overlap
// [from, to). Pieces that end after limit are undecided.
func (c *Checker) pieces(text []byte, begin, from, to, limit int) (at int, v Verdict) {
	for sp := c.v.pat.Split(text[begin:]); !sp.Done(); {
		a := begin + sp.Pos()
		if a >= to {
			return a, Canonical
		}
		b := begin + sp.Next()
		if b <= from {
			continue
		}
		if b > limit {
			return a, Unknown
		}
		if bad := c.piece(a, b); bad >= 0 {
			return bad, Deviates
		}
	}
	return len(text), Canonical
}

// piece compares one piece's tokens. It returns the position of the first
// token that differs, or -1.
func (c *Checker) piece(a, b int) int {
	if a < c.offs[0] {
		return c.straddling(a, b)
	}
	i := c.tokenAt(a)
	if i < 0 {
		return a
	}
	if c.offs[i+1] == b && c.v.bpe.isSelf(c.ids[i]) {
		return -1
	}
	c.want = c.v.bpe.encode(c.want[:0], c.text[a:b])
	return c.compare(c.want, i, b)
}

// compare compares the tokens from i on with want, the tokens of a piece that ends at b. It returns
// the results of piece.
func (c *Checker) compare(want []uint32, i, b int) int {
	for _, id := range want {
		if i >= len(c.ids) || c.ids[i] != id {
			return c.offs[min(i, len(c.offs)-1)]
		}
		i++
	}
	if c.offs[i] != b {
		return c.offs[i]
	}
	return -1
}

// straddling is piece for a piece that begins in the text before the first token: one of its tokens
// has to begin where the piece begins.
func (c *Checker) straddling(a, b int) int {
	first := c.offs[0]
	c.want = c.v.bpe.encode(c.want[:0], c.text[a:b])
	k := 0
	for ; k < len(c.want) && a < first; k++ {
		a += c.v.TokenLen(c.want[k])
	}
	if a != first {
		return first
	}
	return c.compare(c.want[k:], 0, b)
}

// unsettled returns the position of the first byte that a round trip through text would change, or
// -1: invalid UTF-8, or a character that the normaliser replaces.
func (v *Vocab) unsettled(s []byte) int {
	if !utf8.Valid(s) {
		for i := 0; i < len(s); {
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				return i
			}
			i += n
		}
	}
	for _, st := range v.norm.steps {
		if st.kind != stepForm || split.IsStableNFC(s) {
			continue
		}
		form := split.Normal(st.form, s)
		if bytes.Equal(form, s) {
			continue
		}
		i := 0
		for i < len(s) && i < len(form) && s[i] == form[i] {
			i++
		}
		return i
	}
	return -1
}
