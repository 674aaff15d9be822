package value

import (
	"bytes"
	"errors"
	"math"
	"runtime"
)

// ErrJSON is wrapped by errors about malformed JSON.
var ErrJSON = errors.New("pyjson: malformed JSON")

// maxJSONDepth bounds the nesting of documents.
const maxJSONDepth = 500

// The values of a document may take memoryBase bytes plus memoryFactor bytes per byte of the
// document. Text takes less than one byte per byte; a list of empty objects would take thirty.
const (
	memoryBase   = 96 << 10
	memoryFactor = 6
)

// Decoder turns JSON into Values, as Python's json.loads reads it: the last of
// duplicate keys wins, key order is kept. Strings without escapes alias the
// document; others alias the decoder's buffer, which the next document
// overwrites. A Decoder is reused, not shared.
type Decoder struct {
	s      []byte
	pos    int
	depth  int
	rested int    // where others were last let run
	left   int    // bytes that values may still take
	arena  []byte // unescaped strings; never grown while in use
	ids    []uint32

	// PackIDs decodes lists of 32-bit numbers as IDs values, for bodies whose prompt is token ids.
	// Templates do not support IDs.
	PackIDs bool
}

// Decode returns the document's value.
func (d *Decoder) Decode(doc []byte) (v Value, err error) {
	defer Catch(&err)
	d.reset(doc)
	v = d.value()
	d.end()
	return v, nil
}

// Object returns the wanted keys of a document that is an object. The values
// of other keys are checked for balance only.
func (d *Decoder) Object(doc []byte, wanted func(key string) bool) (obj *Dict, err error) {
	defer Catch(&err)
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

// Nested decodes a document that the current document contains as a string. Values decoded earlier
// stay valid.
func (d *Decoder) Nested(doc string) (v Value, err error) {
	outer := *d
	d.s, d.pos, d.depth, d.rested = bytesOf(doc), 0, 0, 0
	defer func() { d.s, d.pos, d.depth, d.rested = outer.s, outer.pos, outer.depth, outer.rested }()
	defer Catch(&err)
	v = d.value()
	d.end()
	return v, nil
}

func (d *Decoder) reset(doc []byte) {
	d.s, d.pos, d.depth, d.rested, d.arena, d.ids = doc, 0, 0, 0, d.arena[:0], d.ids[:0]
	d.left = memoryBase + memoryFactor*len(doc)
}

// Charge deducts n bytes from the current document's memory limit for a value derived from its
// values. It returns false if the limit is exceeded.
func (d *Decoder) Charge(n int) bool {
	d.left -= n
	return d.left >= 0
}

func (d *Decoder) spend(n int) {
	if !d.Charge(n) {
		RaiseAs(ErrBounds, "JSON of %d bytes holds too many values", len(d.s))
	}
}

// keepBuffer is the largest buffer that Release keeps, in bytes.
const keepBuffer = 64 << 10

// Release frees the last document and large buffers. Its values are invalid afterwards.
func (d *Decoder) Release() {
	d.s = nil
	if cap(d.arena) > keepBuffer {
		d.arena = nil
	}
	if cap(d.ids)*4 > keepBuffer {
		d.ids = nil
	}
}

func (d *Decoder) end() {
	if d.space(); d.pos < len(d.s) {
		d.bad("the end")
	}
}

// stretch is the number of bytes decoded before yielding the processor. Small requests then do not
// wait behind a large one for a whole scheduler time slice.
const stretch = 64 << 10

// rest lets others run after each stretch.
func (d *Decoder) rest() {
	if d.pos-d.rested >= stretch {
		d.rested = d.pos
		runtime.Gosched()
	}
}

func (d *Decoder) bad(want string) {
	RaiseAs(ErrJSON, "offset %d: %s expected", d.pos, want)
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
		d.spend(dictSize)
		obj := NewDict(0)
		d.object(obj, nil)
		return FromDict(obj)
	case '[':
		return d.array()
	case '"':
		return String(d.str())
	case 't':
		return d.literal("true", Bool(true))
	case 'f':
		return d.literal("false", Bool(false))
	case 'n':
		return d.literal("null", None())
	case 'N':
		return d.literal("NaN", Float(math.NaN()))
	case 'I':
		return d.literal("Infinity", Float(math.Inf(1)))
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return d.number()
	}
	d.bad("a value")
	return Value{}
}

func (d *Decoder) enter() {
	if d.depth++; d.depth > maxJSONDepth {
		RaiseAs(ErrBounds, "JSON nested too deep")
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
			v := d.value()
			d.spend(obj.needs())
			obj.Set(key, v)
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
		v := d.value()
		if len(items) == cap(items) {
			room := max(2, 2*len(items))
			d.spend(Size * room)
			grown := make([]Value, len(items), room)
			copy(grown, items)
			items = grown
		}
		items = append(items, v)
		if !d.more(']') {
			break
		}
	}
	d.pos++
	d.depth--
	return List(items)
}

// packed reads the rest of a list of ids. It moves only if it can.
func (d *Decoder) packed() (Value, bool) {
	begin, first := d.pos, len(d.ids)
	if most := (len(d.s)-d.pos)/2 + 1; cap(d.ids)-first < most {
		d.ids = make([]uint32, 0, most) // earlier lists keep their array
		first = 0
	}
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
			return IDs(out), true
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
	d.rest()
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
				return // the end of a value that contains a number or a word
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
	quote := -1 // the next one, escaped or not
	for {
		if quote < d.pos {
			q := bytes.IndexByte(d.s[d.pos:], '"')
			if q < 0 {
				d.bad("the end of a string")
			}
			quote = d.pos + q
		}
		b := bytes.IndexByte(d.s[d.pos:quote], '\\')
		if b < 0 {
			d.pos = quote + 1
			return
		}
		if d.pos += b + 2; d.pos > len(d.s) {
			d.bad("the end of a string")
		}
	}
}
