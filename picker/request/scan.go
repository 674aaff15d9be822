package request

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"runtime"
)

// maxDepth bounds the nesting of a body. Engines have lower limits.
const maxDepth = 1024

// scanner reads JSON in place without building values. It validates the grammar of skipped text
// (brackets, commas, numbers, literals), but not escapes within strings.
type scanner struct {
	b   []byte
	bad int // position of the first error

	// Long base64 strings counted by skip since the last reset. They cost an engine far fewer
	// tokens than their length suggests.
	media      int
	mediaBytes int
	numbers    int // numbers counted by skip since then

	rested int  // position of the last yield
	deep   bool // the nesting limit was exceeded

	stack [maxDepth / 64]uint64 // one bit per open container: 1 for an object
}

// stretch is the number of bytes read between yields, so that small requests do not wait behind a
// large one.
const stretch = 64 << 10

// rest yields the processor.
func (s *scanner) rest(i int) {
	s.rested = i
	runtime.Gosched()
}

// fail records the position of an error.
func (s *scanner) fail(i int) int {
	s.bad = min(i, len(s.b))
	return -1
}

// cut reports whether the error is a premature end.
func (s *scanner) cut() bool { return s.bad >= len(s.b) }

// space returns the index of the first non-space byte at or after i.
func (s *scanner) space(i int) int {
	for i < len(s.b) {
		switch s.b[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// str returns the index after the string literal at i, -1 if it is unterminated.
func (s *scanner) str(i int) int {
	from := i + 1
	for i = from; ; i++ {
		if i = quoteFrom(s.b, i); i < 0 {
			return s.fail(len(s.b))
		}
		k := i
		for k > from && s.b[k-1] == '\\' {
			k--
		}
		if (i-k)&1 == 0 {
			return i + 1
		}
		from = i + 1
	}
}

// quoteFrom returns the index of the first quote at or after i, or -1. It tests a few words inline
// first, because in text with many escaped quotes, such as JSON within JSON, the next one is near.
func quoteFrom(b []byte, i int) int {
	const ones, quotes = 0x0101010101010101, 0x0101010101010101 * '"'
	for range 3 {
		if len(b)-i < 8 {
			break
		}
		w := binary.LittleEndian.Uint64(b[i:]) ^ quotes
		if hit := (w - ones) &^ w & (ones << 7); hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
		i += 8
	}
	n := bytes.IndexByte(b[i:], '"')
	if n < 0 {
		return -1
	}
	return i + n
}

// longString is the minimum length of a string to be tested for base64.
const longString = 2048

// noteMedia counts the string literal at [i, end) if it is long base64 or a data URL.
func (s *scanner) noteMedia(i, end int) {
	text := s.b[i+1 : end-1]
	if bytes.HasPrefix(text, []byte("data:")) {
		if comma := bytes.IndexByte(text[:256], ','); comma > 0 {
			text = text[comma+1:]
		}
	}
	for _, c := range text[:min(len(text), 512)] {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '+', c == '/', c == '-', c == '_', c == '=', c == '\\':
		default:
			return
		}
	}
	s.media++
	s.mediaBytes += end - i
}

// number returns the index after the number at i.
func (s *scanner) number(i int) int {
	b := s.b
	if b[i] == '-' {
		if i++; i < len(b) && b[i] == 'I' {
			return s.literal(i)
		}
	}
	first := i
	i = digits(b, i)
	if i == first || (b[first] == '0' && i > first+1) {
		return s.fail(i)
	}
	if i >= len(b) || b[i] > 'e' || (b[i] != '.' && b[i]|0x20 != 'e') {
		return i
	}
	if b[i] == '.' {
		frac := i + 1
		if i = digits(b, frac); i == frac {
			return s.fail(i)
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exp := i
		if i = digits(b, exp); i == exp {
			return s.fail(i)
		}
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// literal returns the index after true, false, null, or one of the number words that Python's
// parser accepts.
func (s *scanner) literal(i int) int {
	var word string
	switch s.b[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	case 'N':
		word = "NaN"
	case 'I':
		word = "Infinity"
	default:
		return s.fail(i)
	}
	rest := s.b[i:]
	if len(rest) < len(word) && bytes.HasPrefix([]byte(word), rest) {
		return s.fail(len(s.b))
	}
	if !bytes.HasPrefix(rest, []byte(word)) {
		return s.fail(i)
	}
	return i + len(word)
}

// scalar returns the index after the string, number or literal at i.
func (s *scanner) scalar(i int) int {
	switch c := s.b[i]; {
	case c == '"':
		end := s.str(i)
		if end-i > longString {
			s.noteMedia(i, end)
		}
		return end
	case c == '-' || c-'0' <= 9:
		s.numbers++
		return s.number(i)
	default:
		return s.literal(i)
	}
}

// skip returns the index after the value at i, -1 if it is malformed. It is not recursive: one bit
// per level distinguishes objects from arrays.
func (s *scanner) skip(i int) int {
	depth := 0
	for {
		if i = s.space(i); i >= len(s.b) {
			return s.fail(i)
		}
		if i-s.rested >= stretch {
			s.rest(i)
		}
		var closed bool
		switch c := s.b[i]; c {
		case '{', '[':
			if depth == maxDepth {
				s.deep = true
				return s.fail(i)
			}
			s.push(depth, c == '{')
			depth++
			i = s.space(i + 1)
			if c == '[' {
				i = s.ints(i)
			}
			closed = i < len(s.b) && s.b[i] == c+2
			if closed {
				depth--
				i++
			}
		default:
			if i = s.scalar(i); i < 0 {
				return -1
			}
			closed = true
		}
		if closed {
			if i, depth = s.after(i, depth); i < 0 || depth == 0 {
				return i
			}
		}
		if s.object(depth - 1) {
			if i = s.key(i); i < 0 {
				return -1
			}
		}
	}
}

// ints skips plain numbers at i that are followed by a comma, as in lists of token ids, and returns
// the index of the next element.
func (s *scanner) ints(i int) int {
	b := s.b
	for {
		end := digits(b, i)
		if end == i || end >= len(b) || b[end] != ',' || (b[i] == '0' && end > i+1) {
			return i
		}
		s.numbers++
		for i = end + 1; i < len(b) && b[i] == ' '; i++ {
		}
		if i >= len(b) || b[i] == ']' { // a trailing comma: the caller reports it
			return end
		}
	}
}

func (s *scanner) push(depth int, object bool) {
	word, bit := &s.stack[depth>>6], uint64(1)<<(depth&63)
	*word &^= bit
	if object {
		*word |= bit
	}
}

func (s *scanner) object(depth int) bool {
	return s.stack[depth>>6]>>(depth&63)&1 == 1
}

// after moves from the end of a value to the next value, closing containers. At depth 0 the
// outermost value is complete.
func (s *scanner) after(i, depth int) (next, left int) {
	for depth > 0 {
		if i = s.space(i); i >= len(s.b) {
			return s.fail(i), depth
		}
		c := s.b[i]
		switch {
		case c == ',':
			return i + 1, depth
		case c == '}' && s.object(depth-1), c == ']' && !s.object(depth-1):
			depth--
			i++
		default:
			return s.fail(i), depth
		}
	}
	return i, 0
}

// key returns the index after the key at i and its colon.
func (s *scanner) key(i int) int {
	if i = s.space(i); i >= len(s.b) || s.b[i] != '"' {
		return s.fail(i)
	}
	if i = s.str(i); i < 0 {
		return -1
	}
	if i = s.space(i); i >= len(s.b) || s.b[i] != ':' {
		return s.fail(i)
	}
	return i + 1
}

// members iterates over the members of one object.
type members struct {
	s    *scanner
	i    int  // next position
	open bool // the first member was read

	Key Span // the key's literal, quotes included
	Val Span // the value; its end is 0 if the value is malformed
}

// members starts an iteration over the object at i.
func (s *scanner) members(i int) members { return members{s: s, i: i + 1} }

// next reads one member. It returns false at the end of the object or at an error; end
// distinguishes the two.
func (m *members) next() bool {
	s := m.s
	if m.i < 0 {
		return false
	}
	i := s.space(m.i)
	if i >= len(s.b) {
		m.i = s.fail(i)
		return false
	}
	if s.b[i] == '}' {
		m.i, m.Key = i+1, Span{}
		return false
	}
	if m.open {
		if s.b[i] != ',' {
			m.i = s.fail(i)
			return false
		}
		i++
	}
	m.open = true
	return m.member(i)
}

func (m *members) member(i int) bool {
	s := m.s
	i = s.space(i)
	m.Key[0] = i
	m.Val = Span{}
	if m.i = s.key(i); m.i < 0 {
		m.Key = Span{}
		return false
	}
	m.Key[1] = bytes.LastIndexByte(s.b[:m.i], '"') + 1
	m.Val[0] = s.space(m.i)
	s.media, s.mediaBytes, s.numbers = 0, 0, 0
	if m.i = s.skip(m.Val[0]); m.i < 0 {
		return false
	}
	m.Val[1] = m.i
	return true
}

// end returns the index after the object, -1 if it was malformed.
func (m *members) end() int { return m.i }
