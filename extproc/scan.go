package extproc

import (
	"strings"

	"github.com/grapevine-epp/grapevine/picker"
)

// responseScan reads what the picker wants to know from a response body as it
// passes by. A compressed body is not read.
type responseScan struct {
	readable bool
	events   bool // server-sent events
	begun    bool
	usage    usageScanner
	counter  eventCounter
	text     textFinder
}

// open prepares for the body that the response headers announce.
func (s *responseScan) open(h headerView) {
	enc := h.Get(headerContentEncoding)
	s.readable = enc == "" || enc == "identity"
	s.events = strings.HasPrefix(h.Get(headerContentType), contentTypeEvents)
}

// write reads the next piece. first is true once, when generated text is
// there; tokens is the number of data events that began in p.
func (s *responseScan) write(p []byte) (tokens int, first bool) {
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
	if s.events {
		first = s.text.write(p)
		tokens = s.counter.write(p)
	}
	return tokens, first
}

// reset makes the scan fit for another response and keeps its memory.
func (s *responseScan) reset() {
	s.usage.reset()
	s.readable, s.events, s.begun = false, false, false
	s.counter = eventCounter{}
	s.text = textFinder{head: s.text.head[:0]}
}

// result returns the usage that was reported.
func (s *responseScan) result() picker.Usage { return s.usage.result() }
