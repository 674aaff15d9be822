package kvtransfer

import (
	"bytes"
	"encoding/json"
	"errors"
)

// MaxMembers is the maximum number of an object's fields. Requests have a few dozen.
const MaxMembers = 4096

// maxDepth is the maximum nesting depth of a value.
const maxDepth = 512

// Errors of Parse.
var (
	ErrSyntax = errors.New("kvtransfer: not valid JSON")
	ErrObject = errors.New("kvtransfer: not a JSON object")
	ErrDepth  = errors.New("kvtransfer: JSON nests too deep")
	ErrMany   = errors.New("kvtransfer: JSON object has too many members")
)

// member is one field of a JSON object, as offsets into its text, so that the rest of the text
// stays unchanged.
type member struct {
	key        string // decoded
	start, end int    // of the whole field, from the key's quote to the value's end
	value      int    // where the value starts
}

// Object is the text of a JSON object and its fields in order. Keys may repeat.
type Object struct {
	text    []byte
	members []member
}

// Parse finds the fields of the object in text. Values are checked for balance and depth, not
// decoded.
func Parse(text []byte) (Object, error) {
	o := Object{text: text}
	s := scanner{text: text}
	s.space()
	if !s.take('{') {
		return o, ErrObject
	}
	s.space()
	for first := true; ; first = false {
		if s.take('}') {
			break
		}
		if !first && !s.take(',') {
			return o, ErrSyntax
		}
		s.space()
		m, err := s.member()
		if err != nil {
			return o, err
		}
		if len(o.members) == MaxMembers {
			return o, ErrMany
		}
		o.members = append(o.members, m)
		s.space()
	}
	s.space()
	if s.at != len(text) {
		return o, ErrSyntax
	}
	return o, nil
}

// Text returns the object's original text.
func (o *Object) Text() []byte { return o.text }

// Get returns the text of a field's value, the last one if the key repeats, as in Python's json, or
// nil.
func (o *Object) Get(key string) []byte {
	for i := len(o.members) - 1; i >= 0; i-- {
		if m := &o.members[i]; m.key == key {
			return o.text[m.value:m.end]
		}
	}
	return nil
}

// Keys returns all keys in order.
func (o *Object) Keys() []string {
	keys := make([]string, len(o.members))
	for i := range o.members {
		keys[i] = o.members[i].key
	}
	return keys
}

// Count returns how often a key occurs.
func (o *Object) Count(key string) (n int) {
	for i := range o.members {
		if o.members[i].key == key {
			n++
		}
	}
	return n
}

// Edit changes one field: a nil Value removes it, any other replaces its value.
type Edit struct {
	Key   string
	Value []byte
}

// With returns the object's text with edits applied. A repeated field that is set is kept once; a
// new one is appended; all other bytes are copied.
func (o *Object) With(edits ...Edit) []byte { return o.Pieces(edits...).Join() }

// Find returns the text of the value at a path of keys, or nil.
func Find(text []byte, path ...string) []byte {
	for _, key := range path {
		o, err := Parse(text)
		if err != nil {
			return nil
		}
		if text = o.Get(key); text == nil {
			return nil
		}
	}
	return text
}

// IsNull reports whether a value is absent or null.
func IsNull(value []byte) bool { return value == nil || string(value) == "null" }

// Elements returns the texts of an array's elements; ok is false for other values.
func Elements(text []byte) (list [][]byte, ok bool) {
	s := scanner{text: text}
	s.space()
	if !s.take('[') {
		return nil, false
	}
	s.space()
	for first := true; ; first = false {
		if s.take(']') {
			return list, true
		}
		if !first && !s.take(',') {
			return nil, false
		}
		s.space()
		start := s.at
		if s.skip() != nil {
			return nil, false
		}
		list = append(list, text[start:s.at])
		s.space()
	}
}

// Whole reports whether a text is exactly one JSON value.
func Whole(text []byte) bool {
	s := scanner{text: text}
	if s.skip() != nil {
		return false
	}
	s.space()
	return s.at == len(text)
}

// scanner scans JSON text.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) member() (m member, err error) {
	m.start = s.at
	if err := s.quoted(); err != nil {
		return m, err
	}
	raw := s.text[m.start:s.at]
	if bytes.IndexByte(raw, '\\') < 0 {
		m.key = string(raw[1 : len(raw)-1])
	} else if json.Unmarshal(raw, &m.key) != nil {
		return m, ErrSyntax
	}
	s.space()
	if !s.take(':') {
		return m, ErrSyntax
	}
	s.space()
	m.value = s.at
	err = s.skip()
	m.end = s.at
	return m, err
}

// quoted scans a string.
func (s *scanner) quoted() error {
	if !s.take('"') {
		return ErrSyntax
	}
	for quote := s.at - 1; ; { // the last quote seen
		if quote < s.at {
			n := bytes.IndexByte(s.text[s.at:], '"')
			if n < 0 {
				return ErrSyntax
			}
			quote = s.at + n
		}
		escape := bytes.IndexByte(s.text[s.at:quote], '\\')
		if escape < 0 {
			s.at = quote + 1
			return nil
		}
		s.at += escape + 2
	}
}

// skip scans one value.
func (s *scanner) skip() error {
	var open [maxDepth]byte // expected closing brackets
	depth := 0
	for {
		s.space()
		if s.at >= len(s.text) {
			return ErrSyntax
		}
		switch c := s.text[s.at]; c {
		case '{', '[':
			if depth == maxDepth {
				return ErrDepth
			}
			open[depth] = c + 2 // the closing bracket in ASCII
			depth++
			s.at++
			continue
		case '}', ']':
			if depth == 0 || open[depth-1] != c {
				return ErrSyntax
			}
			depth--
			s.at++
		case ',', ':':
			if depth == 0 {
				return ErrSyntax
			}
			s.at++
			continue
		case '"':
			if err := s.quoted(); err != nil {
				return err
			}
		default:
			if !s.scalar() {
				return ErrSyntax
			}
		}
		if depth == 0 {
			return nil
		}
	}
}

// scalar scans a number, true, false or null, without validating which.
func (s *scanner) scalar() bool {
	start := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.' {
			s.at++
			continue
		}
		break
	}
	return s.at > start
}
