package answer

import (
	"bytes"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// typeEvents is the content type of server-sent events.
const typeEvents = "text/event-stream"

// Scan reads one response body after another.
type Scan struct {
	readable bool
	events   bool // server-sent events
	begun    bool
	opened   bool // the first non-space byte was read
	json     bool // the body begins like a JSON value
	usage    usageScanner
	counter  eventCounter
	text     textFinder
	id       idFinder
	fault    faultFinder
	finish   finishFinder
	repeats  repeatFinder
	last     byte // the last byte of a whole body that is not white space
	model    answeredModel
}

// Open prepares for a body with the given content-type and content-encoding.
func (s *Scan) Open(contentType, encoding string) {
	s.readable = encoding == "" || encoding == "identity"
	s.events = strings.HasPrefix(contentType, typeEvents)
}

// Write reads the next chunk. first is true once, at the first generated text. tokens is the number
// of data events that began in p.
func (s *Scan) Write(p []byte) (tokens int, first bool) {
	if len(p) == 0 {
		return 0, false
	}
	if !s.readable || !s.events {
		first = !s.begun
		s.begun = true
	}
	if !s.readable {
		return 0, first
	}
	s.usage.write(p)
	s.id.write(p)
	s.model.write(p)
	s.repeats.write(p)
	s.finish.write(p)
	if s.events {
		first = s.text.write(p)
		tokens = s.counter.write(p, &s.fault)
	} else {
		s.readWhole(p)
	}
	return tokens, first
}

// readWhole reads the beginning of a non-streamed body.
func (s *Scan) readWhole(p []byte) {
	for i := 0; i < len(p) && !s.opened; i++ {
		if !isBlank(p[i]) {
			s.opened, s.json = true, p[i] == '{' || p[i] == '['
			s.fault.begin()
			p, i = p[i:], -1
		}
	}
	if t := bytes.TrimRight(p, " \t\r\n"); len(t) > 0 {
		s.last = t[len(t)-1]
	}
	if s.opened {
		s.fault.write(p)
		s.text.write(p)
	}
}

// Reset prepares the scan for another response and keeps its memory.
func (s *Scan) Reset() {
	s.usage.reset()
	s.id.reset()
	s.fault.reset()
	s.readable, s.events, s.begun, s.opened, s.json = false, false, false, false, false
	s.counter = eventCounter{}
	s.finish, s.last = finishFinder{}, 0
	s.repeats.reset()
	s.model = answeredModel{}
	s.text = textFinder{}
}

// OtherModel reports whether the answer names a model that is not in names. It returns false if no
// model was found early.
func (s *Scan) OtherModel(names ...string) bool {
	m := s.model.name[:s.model.n]
	if len(m) == 0 {
		return false
	}
	for _, n := range names {
		if string(m) == n {
			return false
		}
	}
	return true
}

// ResponseID returns the id of a stored response, or "".
func (s *Scan) ResponseID() string { return s.id.id }

// Usage returns the reported usage.
func (s *Scan) Usage() request.Usage { return s.usage.result() }
