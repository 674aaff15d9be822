package value

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// smallInt reads an unsigned integer of up to 18 digits, the common case.
func (d *Decoder) smallInt() (int64, bool) {
	i, n := d.pos, int64(0)
	for i < len(d.s) && isDigit(d.s[i]) && i-d.pos < 18 {
		n = n*10 + int64(d.s[i]-'0')
		i++
	}
	size := i - d.pos
	if size == 0 || size > 1 && d.s[d.pos] == '0' {
		return 0, false
	}
	if i < len(d.s) && (isDigit(d.s[i]) || d.s[i] == '.' || d.s[i] == 'e' || d.s[i] == 'E') {
		return 0, false
	}
	d.pos = i
	return n, true
}

func (d *Decoder) number() Value {
	if n, ok := d.smallInt(); ok {
		return Int(n)
	}
	start, float := d.pos, false
	for d.pos < len(d.s) {
		c := d.s[d.pos]
		if c == '.' || c == 'e' || c == 'E' || c == 'I' {
			float = true
		} else if !isDigit(c) && c != '-' && c != '+' {
			break
		}
		d.pos++
		if c == 'I' && d.s[start] == '-' {
			d.pos--
			return d.literal("Infinity", Float(math.Inf(-1)))
		}
	}
	text := alias(d.s[start:d.pos])
	if digits := text[len(text)-len(bytes.TrimLeft(bytesOf(text), "-")):]; len(digits) == 0 || !isDigit(digits[0]) ||
		len(digits) > 1 && digits[0] == '0' && isDigit(digits[1]) {
		d.bad("a number")
	}
	if float {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(f, 0) {
			d.bad("a number")
		}
		return Float(f)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return Int(n)
	}
	if errors.Is(err, strconv.ErrRange) {
		return Big(text)
	}
	d.bad("a number")
	return Value{}
}

// str reads a string.
func (d *Decoder) str() string {
	d.pos++
	rest := d.s[d.pos:]
	q := bytes.IndexByte(rest, '"')
	if q < 0 {
		d.bad("the end of a string")
	}
	if bytes.IndexByte(rest[:q], '\\') < 0 {
		d.pos += q + 1
		return alias(rest[:q])
	}
	if cap(d.arena)-len(d.arena) < len(rest) {
		d.arena = make([]byte, 0, len(rest))
	}
	return d.unescape(d.pos + q)
}

// unescape reads a string with escapes into the arena; quote is the position
// of its first quotation mark, which may be escaped.
func (d *Decoder) unescape(quote int) string {
	start := len(d.arena)
	for {
		b := bytes.IndexByte(d.s[d.pos:quote], '\\')
		if b < 0 {
			d.arena = append(d.arena, d.s[d.pos:quote]...)
			d.pos = quote + 1
			return alias(d.arena[start:])
		}
		d.arena = append(d.arena, d.s[d.pos:d.pos+b]...)
		d.pos += b + 1
		d.escape()
		if d.pos > quote {
			q := bytes.IndexByte(d.s[d.pos:], '"')
			if q < 0 {
				d.bad("the end of a string")
			}
			quote = d.pos + q
		}
	}
}

// jsonEscapes maps the letter of an escape to its byte.
var jsonEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (d *Decoder) escape() {
	c := d.peek()
	if e := jsonEscapes[c]; e != 0 {
		d.arena = append(d.arena, e)
		d.pos++
		return
	}
	r, ok := d.hex4(d.pos)
	if c != 'u' || !ok {
		d.bad("an escape")
	}
	d.pos += 5
	if r >= 0xd800 && r < 0xdc00 && d.peek() == '\\' {
		if lo, ok := d.hex4(d.pos + 1); ok && lo >= 0xdc00 && lo < 0xe000 {
			r = 0x10000 + (r-0xd800)<<10 + (lo - 0xdc00)
			d.pos += 6
		}
	}
	d.arena = utf8.AppendRune(d.arena, r) // a lone surrogate becomes U+FFFD
}

// hex4 decodes the four digits of the \u escape whose letter is at i.
func (d *Decoder) hex4(i int) (rune, bool) {
	if i+5 > len(d.s) || d.s[i] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range d.s[i+1 : i+5] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case (c|0x20) >= 'a' && (c|0x20) <= 'f':
			r = r<<4 | rune((c|0x20)-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// alias returns b as a string without a copy.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
