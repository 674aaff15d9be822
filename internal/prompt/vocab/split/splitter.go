package split

import "bytes"

// family is the shape of a split pattern; the patterns of one family differ
// in parameters only.
type family uint8

const (
	famNone     family = iota // one piece for the whole text
	famGPT2                   // GPT-2
	famCL100K                 // cl100k_base, Llama 3, Qwen 2 to 3
	famO200K                  // o200k_base, tekken: letters split by case
	famDeepSeek               // DeepSeek V3 and R1
	famSpaces                 // SentencePiece: between a non-space and a space
)

// Pattern is a split pattern that we scan by hand: Go's regular expressions
// have no look-ahead, and a scanner is an order of magnitude faster.
type Pattern struct {
	family      family
	name        string // common name
	digits      int    // longest run of numbers (famSpaces: of leading spaces, 0 = any) in a piece
	marks       bool   // combining marks count as letters
	contraction bool   // o200k: 's, 't, ... end a word
	slash       bool   // o200k: slashes follow punctuation like line ends
	// except are the tokens that reach over a space (famSpaces).
	except [][]byte
}

// Splitter cuts a text into pieces from left to right.
type Splitter struct {
	p     *Pattern
	s     []byte
	pos   int
	chunk int // famDeepSeek: end of the stretch without numbers and ideographs
}

// Split starts to cut a text.
func (p *Pattern) Split(s []byte) Splitter { return Splitter{p: p, s: s} }

// Next returns the end of the piece that starts at Pos and moves there.
// The text must not be used up.
func (sp *Splitter) Next() int {
	i := sp.pos
	switch sp.p.family {
	case famCL100K:
		sp.pos = sp.p.cl100k(sp.s, i)
	case famGPT2:
		sp.pos = gpt2(sp.s, i)
	case famO200K:
		sp.pos = sp.p.o200k(sp.s, i)
	case famDeepSeek:
		sp.pos = sp.deepseek(i)
	case famSpaces:
		sp.pos = sp.p.spaces(sp.s, i)
	default:
		sp.pos = len(sp.s)
	}
	return sp.pos
}

// Pos returns where the next piece begins.
func (sp *Splitter) Pos() int { return sp.pos }

// Done reports whether the whole text has been consumed.
func (sp *Splitter) Done() bool { return sp.pos >= len(sp.s) }

// runOf returns the end of the run of characters of class mask at i.
func runOf(s []byte, i int, mask class) int {
	for i < len(s) {
		if c := s[i]; c < 0x80 {
			if classTable[c]&mask == 0 {
				return i
			}
			i++
			continue
		}
		cl, n := classAt(s[i:])
		if cl&mask == 0 {
			return i
		}
		i += n
	}
	return i
}

// runOfMax is runOf for at most n characters.
func runOfMax(s []byte, i, n int, mask class) int {
	for ; n > 0 && i < len(s); n-- {
		cl, w := classAt(s[i:])
		if cl&mask == 0 {
			break
		}
		i += w
	}
	return i
}

// newlines returns the end of the run of CR, LF and, if slash, '/' at i.
func newlines(s []byte, i int, slash bool) int {
	for i < len(s) && (s[i] == '\n' || s[i] == '\r' || slash && s[i] == '/') {
		i++
	}
	return i
}

// contractionAt returns the length of 's, 't, 're, 've, 'm, 'll or 'd at i,
// 0 when there is none. fold ignores case; U+017F is a small s then.
func contractionAt(s []byte, i int, fold bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return 0
	}
	lower := func(k int) byte {
		if k >= len(s) {
			return 0
		}
		if c := s[k]; fold && c >= 'A' && c <= 'Z' {
			return c + 32
		}
		return s[k]
	}
	a, b := lower(i+1), lower(i+2)
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case (a == 'r' || a == 'v') && b == 'e' || a == 'l' && b == 'l':
		return 3
	case fold && a == 0xc5 && b == 0xbf:
		return 3
	}
	return 0
}

// whitespace ends a piece that starts with white space and that no other
// alternative took. lineEnds also tries "\s*[\r\n]+" first.
func whitespace(s []byte, i int, lineEnds bool) int {
	end, last, lastNL := i, i, -1
	for end < len(s) {
		cl, n := classAt(s[end:])
		if cl&clWhite == 0 {
			break
		}
		last = end
		end += n
		if cl == clNewline {
			lastNL = end
		}
	}
	switch {
	case lineEnds && lastNL >= 0:
		return lastNL
	case end == len(s) || last == i:
		return end
	}
	return last // the last one belongs to the next piece
}

// spaces splits before each run of spaces after another character or, with digits 1, before each
// space.
func (p *Pattern) spaces(s []byte, i int) int {
	for {
		for i < len(s) && s[i] == ' ' {
			i++
			if p.digits == 1 {
				break
			}
		}
		for i < len(s) && s[i] != ' ' {
			i++
		}
		if i >= len(s) || !p.reaches(s, i, false) {
			return i
		}
	}
}

// reaches reports whether an exception token spans the cut at i. open is true if s may continue: a
// token truncated by the end of s then counts.
func (p *Pattern) reaches(s []byte, i int, open bool) bool {
	for _, tok := range p.except {
		for k := 1; k < len(tok); k++ {
			if tok[k] != ' ' || tok[k-1] == ' ' || tok[k-1] != s[i-1] || k > i {
				continue
			}
			rest := s[i-k:]
			if bytes.HasPrefix(rest, tok) || open && bytes.HasPrefix(tok, rest) {
				return true
			}
		}
	}
	return false
}
