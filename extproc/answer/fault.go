package answer

import "bytes"

// Fault is a defect of a response with a success status.
type Fault uint8

// Faults, the worst last.
const (
	Sound      Fault = iota
	Unclosed         // a stream ended normally but without its closing event
	Unfinished       // a stream without a finish reason
	Empty            // no generated text, aborted by the engine, of repeated text, or with every event twice
	Broken           // an engine error, empty, or not an answer
)

// faultFinder looks for errors in place of answers, at the beginning of each stream event or of a
// whole body.
type faultFinder struct {
	head [len(`{"type":"response.failed"`)]byte // of the value, without white space
	n    int
	live bool   // the value may still be an error
	is   bool   // the value is an error
	text []byte // the beginning of the error, without white space
	bad  bool   // an engine error was found
	any  bool   // an error of any origin was found
}

// Prefixes of error values, without white space. None may be longer than head.
var errorHeads = [...]string{
	`{"error":{`, `{"error":"`, `{"object":"error"`, `{"type":"error"`, `{"type":"response.failed"`,
}

// notTheEngines are parts of errors caused by the client or by a full queue. In a client's string
// their quotes would be escaped.
var notTheEngines = [...]string{
	`"code":4`, `"code":"4`, `"code":503`, `"code":"503`, `"status":4`, `"type":"invalid_request`, `"type":"BadRequest`, `"type":"NotFound`,
	`"type":"not_found`, `"type":"authentication`, `"type":"permission`, `"type":"rate_limit`, `"type":"overloaded`, `"code":"invalid_`, `"code":"rate_limit`,
}

const maxErrorText = 2 << 10

func (f *faultFinder) reset() { *f = faultFinder{text: f.text[:0]} }

// begin starts a value, whose bytes follow by write.
func (f *faultFinder) begin() { f.n, f.live, f.is, f.text = 0, true, false, f.text[:0] }

// write reads the next bytes of the value.
func (f *faultFinder) write(p []byte) {
	for i := 0; i < len(p) && f.live; i++ {
		if isBlank(p[i]) {
			continue
		}
		if !f.is {
			f.match(p[i])
			continue
		}
		if len(f.text) == maxErrorText {
			return
		}
		f.text = append(f.text, p[i])
	}
}

// match takes the next byte of the head.
func (f *faultFinder) match(b byte) {
	f.head[f.n] = b
	f.n++
	f.live = false
	for _, h := range errorHeads {
		if len(h) >= f.n && h[f.n-1] == b && h[:f.n] == string(f.head[:f.n]) {
			f.live, f.is = true, len(h) == f.n
			break
		}
	}
	if f.is {
		f.text = append(f.text, f.head[:f.n]...)
	}
}

// end ends the value.
func (f *faultFinder) end() {
	f.any = f.any || f.live && f.is
	if f.live && f.is && !f.bad {
		f.bad = true
		for _, w := range notTheEngines {
			f.bad = f.bad && !bytes.Contains(f.text, []byte(w))
		}
	}
	f.live = false
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// Closed reports whether the stream's closing event was read.
func (s *Scan) Closed() bool { return s.counter.closed }

// Finished reports whether a finish reason was found in the stream.
func (s *Scan) Finished() bool { return s.events && s.finish.found }

// Fault returns the fault of a completely read body. The request must be of a kind with JSON
// answers or JSON events.
func (s *Scan) Fault() Fault {
	s.fault.end()
	switch {
	case !s.readable:
		return Sound
	case s.fault.bad, !s.events && !s.json, !s.events && s.last != '}' && s.last != ']', s.events && s.counter.events == 0:
		return Broken
	case s.events && !s.counter.closed:
		return Unclosed
	case s.fault.any: // a client error
		return Sound
	case s.finish.aborted, !s.text.found, s.repeats.repeats(), s.counter.twice():
		return Empty
	case s.events && !s.finish.found:
		return Unfinished
	}
	return Sound
}
