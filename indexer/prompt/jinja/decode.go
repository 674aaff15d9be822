package jinja

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// ErrJSON is wrapped by errors about malformed JSON.
var ErrJSON = errors.New("jinja: malformed JSON")

// maxJSONDepth bounds the nesting of documents.
const maxJSONDepth = 500

// Decoder turns JSON into Values, as Python's json.loads reads it: the last of
// duplicate keys wins, key order is kept. Strings without escapes alias the
// document; others alias the decoder's buffer, which the next document
// overwrites. A Decoder is reused, not shared.
type Decoder struct {
	s     []byte
	pos   int
	depth int
	arena []byte // unescaped strings; never grown while in use
	ids   []uint32

	// PackIDs makes lists that hold nothing but numbers of 32 bits IDs values.
	// Templates do not know them: it is for bodies whose prompt is token ids.
	PackIDs bool
}

// Decode returns the document's value.
func (d *Decoder) Decode(doc []byte) (v Value, err error) {
	defer catch(&err)
	d.reset(doc)
	v = d.value()
	d.end()
	return v, nil
}

// Object returns the wanted keys of a document that is an object. The values
// of other keys are checked for balance only.
func (d *Decoder) Object(doc []byte, wanted func(key string) bool) (obj *Dict, err error) {
	defer catch(&err)
	d.reset(doc)
	d.space()
	if d.peek() != '{' {
		d.bad("an object")
	}
	obj = NewDict(8)
	d.object(obj, wanted)
	d.end()
	return obj, nil
}

// Nested returns the value of a document that the current document holds as a
// string. What was decoded before stays valid.
func (d *Decoder) Nested(doc string) (v Value, err error) {
	outer := *d
	d.s, d.pos, d.depth = bytesOf(doc), 0, 0
	defer func() { d.s, d.pos, d.depth = outer.s, outer.pos, outer.depth }()
	defer catch(&err)
	v = d.value()
	d.end()
	return v, nil
}

func (d *Decoder) reset(doc []byte) {
	d.s, d.pos, d.depth, d.arena, d.ids = doc, 0, 0, d.arena[:0], d.ids[:0]
}

func (d *Decoder) end() {
	if d.space(); d.pos < len(d.s) {
		d.bad("the end")
	}
}

func (d *Decoder) bad(want string) {
	panic(failure{fmt.Errorf("%w: offset %d: %s expected", ErrJSON, d.pos, want)})
}

func (d *Decoder) peek() byte {
	if d.pos < len(d.s) {
		return d.s[d.pos]
	}
	return 0
}

func (d *Decoder) space() {
	for d.pos < len(d.s) {
		switch d.s[d.pos] {
		case ' ', '\n', '\t', '\r':
			d.pos++
		default:
			return
		}
	}
}

func (d *Decoder) literal(word string, v Value) Value {
	if !bytes.HasPrefix(d.s[d.pos:], bytesOf(word)) {
		d.bad(word)
	}
	d.pos += len(word)
	return v
}

func (d *Decoder) value() Value {
	d.space()
	switch c := d.peek(); c {
	case '{':
		obj := NewDict(4)
		d.object(obj, nil)
		return DictValue(obj)
	case '[':
		return d.array()
	case '"':
		return StringValue(d.str())
	case 't':
		return d.literal("true", BoolValue(true))
	case 'f':
		return d.literal("false", BoolValue(false))
	case 'n':
		return d.literal("null", NoneValue())
	case 'N':
		return d.literal("NaN", FloatValue(math.NaN()))
	case 'I':
		return d.literal("Infinity", FloatValue(math.Inf(1)))
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return d.number()
	}
	d.bad("a value")
	return Value{}
}

func (d *Decoder) enter() {
	if d.depth++; d.depth > maxJSONDepth {
		failWith(ErrBounds, "JSON nested too deep")
	}
}

func (d *Decoder) object(obj *Dict, wanted func(key string) bool) {
	d.enter()
	d.pos++
	d.space()
	for d.peek() != '}' {
		if d.space(); d.peek() != '"' {
			d.bad("a key")
		}
		key := d.str()
		if d.space(); d.peek() != ':' {
			d.bad(`":"`)
		}
		d.pos++
		if wanted == nil || wanted(key) {
			obj.Set(key, d.value())
		} else {
			d.skip()
		}
		if !d.more('}') {
			break
		}
	}
	d.pos++
	d.depth--
}

func (d *Decoder) array() Value {
	d.enter()
	start := d.pos
	d.pos++
	d.space()
	if d.PackIDs && isDigit(d.peek()) {
		if v, ok := d.packed(); ok {
			d.depth--
			return v
		}
	}
	var items []Value
	for d.peek() != ']' {
		if len(items) == 16 {
			items = slices.Grow(items, min(len(d.s)-d.pos, 1<<20)/(2*(d.pos-start)/16+1)) // by the length of the first
		}
		items = append(items, d.value())
		if !d.more(']') {
			break
		}
	}
	d.pos++
	d.depth--
	return ListValue(items)
}

// packed reads the rest of a list of ids. It moves only if it can.
func (d *Decoder) packed() (Value, bool) {
	begin, first := d.pos, len(d.ids)
	for {
		v, ok := d.smallInt()
		if !ok || v.n > math.MaxUint32 {
			break
		}
		d.ids = append(d.ids, uint32(v.n))
		d.space()
		c := d.peek()
		if c == ']' {
			d.pos++
			out := d.ids[first:len(d.ids):len(d.ids)]
			return Value{kind: IDs, ref: &out}, true
		}
		if c != ',' {
			break
		}
		d.pos++
		d.space()
	}
	d.pos, d.ids = begin, d.ids[:first]
	return Value{}, false
}

// more moves over a comma and returns true, or stays at the closing bracket.
func (d *Decoder) more(end byte) bool {
	d.space()
	switch d.peek() {
	case ',':
		d.pos++
		if d.space(); d.peek() == end {
			d.bad("a value")
		}
		return true
	case end:
		return false
	}
	d.bad(`","`)
	return false
}

// skip moves over a value without building it.
func (d *Decoder) skip() {
	d.space()
	depth := 0
	for d.pos < len(d.s) {
		switch d.s[d.pos] {
		case '"':
			d.skipString()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return // the end of what holds a number or a word
			}
			if depth--; depth == 0 {
				d.pos++
				return
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return
			}
		}
		d.pos++
	}
	d.bad("a value")
}

func (d *Decoder) skipString() {
	d.pos++
	for {
		q := bytes.IndexByte(d.s[d.pos:], '"')
		if q < 0 {
			d.bad("the end of a string")
		}
		b := bytes.IndexByte(d.s[d.pos:d.pos+q], '\\')
		if b < 0 {
			d.pos += q + 1
			return
		}
		if d.pos += b + 2; d.pos > len(d.s) {
			d.bad("the end of a string")
		}
	}
}

// smallInt reads an unsigned integer of up to 18 digits, the common case.
func (d *Decoder) smallInt() (Value, bool) {
	i, n := d.pos, int64(0)
	for i < len(d.s) && isDigit(d.s[i]) && i-d.pos < 18 {
		n = n*10 + int64(d.s[i]-'0')
		i++
	}
	size := i - d.pos
	if size == 0 || size > 1 && d.s[d.pos] == '0' {
		return Value{}, false
	}
	if i < len(d.s) && (isDigit(d.s[i]) || d.s[i] == '.' || d.s[i] == 'e' || d.s[i] == 'E') {
		return Value{}, false
	}
	d.pos = i
	return IntValue(n), true
}

func (d *Decoder) number() Value {
	if v, ok := d.smallInt(); ok {
		return v
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
			return d.literal("Infinity", FloatValue(math.Inf(-1)))
		}
	}
	text := string(d.s[start:d.pos])
	if digits := text[len(text)-len(bytes.TrimLeft(bytesOf(text), "-")):]; len(digits) == 0 || !isDigit(digits[0]) ||
		len(digits) > 1 && digits[0] == '0' && isDigit(digits[1]) {
		d.bad("a number")
	}
	if float {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(f, 0) {
			d.bad("a number")
		}
		return FloatValue(f)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return IntValue(n)
	}
	if errors.Is(err, strconv.ErrRange) {
		return Value{kind: Big, s: text}
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
		d.arena = make([]byte, 0, len(rest)+len(rest)/2)
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

// hex4 reads the four digits of the \u escape whose letter is at i.
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
