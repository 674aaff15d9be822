package answer

import "bytes"

// Fault says how an answer with a good status is no answer.
type Fault uint8

// Faults, the worst last.
const (
	Sound    Fault = iota
	Unclosed       // a stream ended well and without its closing event
	Empty          // it holds no generated text, or the engine aborted it
	Broken         // it holds an error of the engine, or nothing, or something else than an answer
)

// faultFinder looks for errors in the place of answers: in the beginning of each event
// of a stream, or of a whole body.
type faultFinder struct {
	head [len(`{"type":"response.failed"`)]byte // of the value, without blanks
	n    int
	live bool   // the value may be an error yet
	is   bool   // it is one
	text []byte // the error, without blanks, as much as is kept
	bad  bool   // an error was the engine's
	any  bool   // there was an error, whoever's
}

// Errors that stand for an answer begin so, without blanks. None may be longer than a head.
var errorHeads = [...]string{
	`{"error":{`, `{"error":"`, `{"object":"error"`, `{"type":"error"`, `{"type":"response.failed"`,
}

// notTheEngines are words of errors that are the client's, or of a queue that is full. In a
// string of the client's their quotes would be escaped.
var notTheEngines = [...]string{
	`"code":4`, `"code":"4`, `"code":503`, `"code":"503`, `"status":4`, `"type":"invalid_request`, `"type":"BadRequest`, `"type":"NotFound`,
	`"type":"not_found`, `"type":"authentication`, `"type":"permission`, `"type":"rate_limit`, `"type":"overloaded`, `"code":"invalid_`, `"code":"rate_limit`,
}

const maxErrorText = 2 << 10

func (f *faultFinder) reset() { *f = faultFinder{text: f.text[:0]} }

// begin is told where a value begins, whose bytes follow by write.
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

// end is told where the value ends.
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

// Closed reports whether the closing event of a stream was there.
func (s *Scan) Closed() bool { return s.counter.closed }

// Fault returns what is wrong with a body that was read to its end, of a request that
// has answers of JSON or of events with JSON.
func (s *Scan) Fault() Fault {
	s.fault.end()
	switch {
	case !s.readable:
		return Sound
	case s.fault.bad, !s.events && !s.json, s.events && s.counter.events == 0:
		return Broken
	case s.events && !s.counter.closed:
		return Unclosed
	case s.fault.any: // the client's
		return Sound
	case s.aborted, !s.text.found:
		return Empty
	}
	return Sound
}
