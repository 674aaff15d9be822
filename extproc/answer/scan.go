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
	opened   bool // the body's first byte that is no blank was seen
	json     bool // and begins a value of JSON
	usage    usageScanner
	counter  eventCounter
	text     textFinder
	id       idFinder
	fault    faultFinder
	aborted  bool // the engine ended it: finish_reason abort
	model    answeredModel
}

// Open prepares for a body by its headers content-type and content-encoding.
func (s *Scan) Open(contentType, encoding string) {
	s.readable = encoding == "" || encoding == "identity"
	s.events = strings.HasPrefix(contentType, typeEvents)
}

// Write reads the next piece. first is true once, when generated text is
// there; tokens is the number of data events that began in p.
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
	s.aborted = s.aborted || aborts(p)
	if s.events {
		first = s.text.write(p)
		tokens = s.counter.write(p, &s.fault)
	} else {
		s.readWhole(p)
	}
	return tokens, first
}

// aborts reports whether a piece of a body says that the engine aborted the request. In
// generated text the quotes would be escaped. A report that is cut in two is missed.
func aborts(p []byte) bool {
	i := bytes.Index(p, []byte(`"abort"`))
	return i >= 0 && bytes.Contains(p[max(0, i-len(`"finish_reason" : `)):i], []byte(`"finish_reason"`))
}

// readWhole looks at the beginning of a body that is not streamed.
func (s *Scan) readWhole(p []byte) {
	for i := 0; i < len(p) && !s.opened; i++ {
		if !isBlank(p[i]) {
			s.opened, s.json = true, p[i] == '{' || p[i] == '['
			s.fault.begin()
			p, i = p[i:], -1
		}
	}
	if s.opened {
		s.fault.write(p)
		s.text.write(p)
	}
}

// Reset makes the scan fit for another response and keeps its memory.
func (s *Scan) Reset() {
	s.usage.reset()
	s.id.reset()
	s.fault.reset()
	s.readable, s.events, s.begun, s.opened, s.json, s.aborted = false, false, false, false, false, false
	s.counter = eventCounter{}
	s.model = answeredModel{}
	s.text = textFinder{}
}

// OtherModel reports whether the answer names a model that is none of names. One that names no
// model, or names it late, is not another's.
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

// ResponseID returns the id of a stored response, "" for answers that have none.
func (s *Scan) ResponseID() string { return s.id.id }

// Usage returns the usage that was reported.
func (s *Scan) Usage() request.Usage { return s.usage.result() }
