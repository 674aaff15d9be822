package pyjson

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/internal/prompt/internal/failure"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// ErrJSON is wrapped by errors about malformed JSON.
var ErrJSON = errors.New("pyjson: malformed JSON")

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
func (d *Decoder) Decode(doc []byte) (v value.Value, err error) {
	defer failure.Catch(&err)
	d.reset(doc)
	v = d.value()
	d.end()
	return v, nil
}

// Object returns the wanted keys of a document that is an object. The values
// of other keys are checked for balance only.
func (d *Decoder) Object(doc []byte, wanted func(key string) bool) (obj *value.Dict, err error) {
	defer failure.Catch(&err)
	d.reset(doc)
	d.space()
	if d.peek() != '{' {
		d.bad("an object")
	}
	obj = value.NewDict(8)
	d.object(obj, wanted)
	d.end()
	return obj, nil
}

// Nested returns the value of a document that the current document holds as a
// string. What was decoded before stays valid.
func (d *Decoder) Nested(doc string) (v value.Value, err error) {
	outer := *d
	d.s, d.pos, d.depth = bytesOf(doc), 0, 0
	defer func() { d.s, d.pos, d.depth = outer.s, outer.pos, outer.depth }()
	defer failure.Catch(&err)
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
	failure.Wrap(ErrJSON, "offset %d: %s expected", d.pos, want)
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

func (d *Decoder) literal(word string, v value.Value) value.Value {
	if !bytes.HasPrefix(d.s[d.pos:], bytesOf(word)) {
		d.bad(word)
	}
	d.pos += len(word)
	return v
}

func (d *Decoder) value() value.Value {
	d.space()
	switch c := d.peek(); c {
	case '{':
		obj := value.NewDict(4)
		d.object(obj, nil)
		return value.FromDict(obj)
	case '[':
		return d.array()
	case '"':
		return value.String(d.str())
	case 't':
		return d.literal("true", value.Bool(true))
	case 'f':
		return d.literal("false", value.Bool(false))
	case 'n':
		return d.literal("null", value.None())
	case 'N':
		return d.literal("NaN", value.Float(math.NaN()))
	case 'I':
		return d.literal("Infinity", value.Float(math.Inf(1)))
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return d.number()
	}
	d.bad("a value")
	return value.Value{}
}

func (d *Decoder) enter() {
	if d.depth++; d.depth > maxJSONDepth {
		failure.Wrap(value.ErrBounds, "JSON nested too deep")
	}
}

func (d *Decoder) object(obj *value.Dict, wanted func(key string) bool) {
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

func (d *Decoder) array() value.Value {
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
	var items []value.Value
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
	return value.List(items)
}

// packed reads the rest of a list of ids. It moves only if it can.
func (d *Decoder) packed() (value.Value, bool) {
	begin, first := d.pos, len(d.ids)
	for {
		n, ok := d.smallInt()
		if !ok || n > math.MaxUint32 {
			break
		}
		d.ids = append(d.ids, uint32(n))
		d.space()
		c := d.peek()
		if c == ']' {
			d.pos++
			out := d.ids[first:len(d.ids):len(d.ids)]
			return value.IDs(out), true
		}
		if c != ',' {
			break
		}
		d.pos++
		d.space()
	}
	d.pos, d.ids = begin, d.ids[:first]
	return value.Value{}, false
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
