package answer

import (
	"bytes"
	"encoding/json"
	"strings"
)

// typeJSON is the content type of non-streamed answers.
const typeJSON = "application/json"

// Rename replaces the model's name in response bodies that pass in arbitrary chunks. It replaces
// the member "model" of an answer or event, or of its member "response" (Responses) or "message"
// (Anthropic). The rest is unchanged, and nothing is delayed.
type Rename struct {
	name []byte // JSON literal of the new name
	on   bool
	line sseLine
	json modelFinder
}

// Open prepares for a body with the given headers and the new name. It reports whether it replaces
// names in this kind of body.
func (r *Rename) Open(contentType, encoding, name string) bool {
	events := strings.HasPrefix(contentType, typeEvents)
	literal, err := json.Marshal(name)
	*r = Rename{name: literal, line: sseLine{on: events}}
	r.on = err == nil && (events || strings.HasPrefix(contentType, typeJSON)) && (encoding == "" || encoding == "identity")
	return r.on
}

// Reset ends the processing of a body.
func (r *Rename) Reset() { *r = Rename{} }

// On reports whether names are being replaced.
func (r *Rename) On() bool { return r.on }

// Write processes the next chunk and returns the bytes to send: p itself if unchanged, otherwise a
// new buffer.
func (r *Rename) Write(p []byte) []byte {
	if !r.on {
		return p
	}
	var out []byte
	from, changed := 0, false // out replaces p[:from]
	begin := func(at int) {
		if !changed {
			changed, out = true, make([]byte, 0, len(p)+2*len(r.name))
		}
		out = append(out, p[from:at]...)
		from = len(p)
	}
	if r.json.phase == valueDropped {
		begin(0)
	}
	for i := 0; i < len(p); {
		dropped := r.json.phase == valueDropped
		if !r.line.data(p[i]) {
			if dropped { // the line ends within the name
				from = i
			}
			r.json = modelFinder{}
			i++
			continue
		}
		i += r.json.read(p[i:])
		switch drop := r.json.phase == valueDropped; {
		case drop && !dropped:
			begin(i - 1) // the quote is part of the name
			out = append(out, r.name...)
		case dropped && !drop:
			from = i
		}
	}
	if !changed {
		return p
	}
	return append(out, p[from:]...)
}

// sseLine finds the data lines of server-sent events. If on is false, every byte is data.
type sseLine struct {
	on      bool
	off     bool // on a line without data
	matched int
}

// data reads one byte and reports whether it belongs to the data of a line.
func (l *sseLine) data(b byte) bool {
	switch {
	case !l.on:
		return true
	case b == '\n' || b == '\r':
		l.off, l.matched = false, 0
		return false
	case l.off:
		return false
	case l.matched == len(eventPrefix):
		return true
	case b == eventPrefix[l.matched]:
		l.matched++
		return false
	default:
		l.off = true
		return false
	}
}

// findPhase is the finder's position in a JSON text.
type findPhase uint8

const (
	between      findPhase = iota // between strings
	keyRead                       // in a key
	textPassed                    // in another string
	valueDropped                  // in the model's name
)

// maxKey is the length of the longest key that counts.
const maxKey = len("response")

// modelFinder finds the model's name in a JSON text.
type modelFinder struct {
	phase   findPhase
	escaped bool
	depth   int
	object  [3]bool // whether the containers at depth 1 and 2 are objects
	inner   bool    // the object at depth 2 may contain the model
	keyNext bool    // the next string is a key
	want    bool    // the next string is the name
	key     [maxKey + 1]byte
	keyLen  int
}

// read consumes at least one byte and returns the number. It stops after a quote that opens or
// closes the name, and never passes the end of a line.
func (f *modelFinder) read(p []byte) int {
	if f.phase == between {
		f.structure(p[0])
		return 1
	}
	if f.escaped {
		f.escaped = false
		f.keep('\\')
		return 1
	}
	if f.phase == textPassed {
		if i := bytes.IndexAny(p, "\"\\\n\r"); i != 0 {
			if i < 0 {
				i = len(p)
			}
			return i
		}
	}
	switch c := p[0]; c {
	case '\\':
		f.escaped = true
		f.keep(c)
	case '"':
		f.phase = between
	default:
		f.keep(c)
	}
	return 1
}

// keep appends a byte to the current key.
func (f *modelFinder) keep(c byte) {
	if f.phase == keyRead && f.keyLen < len(f.key) {
		f.key[f.keyLen] = c
		f.keyLen++
	}
}

// structure reads one byte outside of strings.
func (f *modelFinder) structure(c byte) {
	switch c {
	case ' ', '\t', '\n', '\r':
		return
	case '"':
		switch {
		case f.keyNext:
			f.phase, f.keyLen = keyRead, 0
		case f.want:
			f.phase = valueDropped
		default:
			f.phase = textPassed
		}
	case '{', '[':
		f.enter(c == '{')
	case '}', ']':
		f.depth = max(f.depth-1, 0)
		f.keyNext = false
	case ',':
		f.keyNext = f.depth < len(f.object) && f.object[f.depth]
	case ':':
		f.keyNext = false
		f.want = f.keyLen == len("model") && string(f.key[:f.keyLen]) == "model" && (f.depth == 1 || f.depth == 2 && f.inner) && f.object[f.depth]
		return
	}
	f.want = false
}

// enter opens an object or an array.
func (f *modelFinder) enter(object bool) {
	f.depth++
	f.keyNext = object && f.depth < len(f.object)
	if f.depth >= len(f.object) {
		return
	}
	if f.depth == 2 {
		name := string(f.key[:f.keyLen])
		f.inner = object && f.object[1] && (name == "response" || name == "message")
	}
	f.object[f.depth] = object
}
