package sse

import (
	"bytes"
	"io"
)

// MaxEvent is the largest event that is buffered. Larger ones are forwarded in parts.
const MaxEvent = 4 << 20

// Events splits a stream into events, each including its final blank line.
type Events struct {
	R    io.Reader
	Buf  []byte // data read
	at   int    // start of the next event
	seen int    // bytes of the current event that contain no end
	err  error
}

// Next returns the next event after skip held bytes, reading as needed, without consuming it. At
// the end of the stream it returns the rest with the error.
func (e *Events) Next(skip int) ([]byte, error) {
	for {
		rest := e.Buf[e.at+skip:]
		if n := eventEnd(rest, max(0, e.seen-3)); n > 0 {
			e.seen = 0
			return rest[:n], nil
		}
		e.seen = len(rest)
		switch {
		case e.err != nil && len(rest) > 0:
			e.seen = 0
			return rest, e.err
		case e.err != nil:
			return nil, e.err
		case len(rest) >= MaxEvent:
			e.seen = 0
			return rest, nil
		}
		e.fill()
	}
}

// fill reads once. It moves the rest to the front to make room.
func (e *Events) fill() {
	if len(e.Buf) == cap(e.Buf) && e.at > 0 {
		e.Buf = e.Buf[:copy(e.Buf, e.Buf[e.at:])]
		e.at = 0
	}
	if len(e.Buf) == cap(e.Buf) {
		e.Buf = append(e.Buf, make([]byte, len(e.Buf)+4<<10)...)[:len(e.Buf)]
	}
	n, err := e.R.Read(e.Buf[len(e.Buf):cap(e.Buf)])
	e.Buf, e.err = e.Buf[:len(e.Buf)+n], err
}

// Take consumes and returns the next n bytes. They are valid until the next call of Next.
func (e *Events) Take(n int) []byte {
	part := e.Buf[e.at : e.at+n]
	if e.at += n; e.at == len(e.Buf) {
		e.Buf, e.at = e.Buf[:0], 0
	}
	return part
}

// More reports whether another whole event has been read.
func (e *Events) More() bool { return eventEnd(e.Buf[e.at:], 0) > 0 }

// First returns the length of the first event in text, including its final blank line, 0 if its end is
// missing.
func First(text []byte) int { return eventEnd(text, 0) }

// returns ends an event whose lines end in carriage returns only.
var returns = []byte("\r\r")

// eventEnd returns the length of the event at the start of text, 0 if its end is missing. The
// search begins at from. Lines ending in carriage returns only get newlines instead; JSON contains
// neither.
func eventEnd(text []byte, from int) int {
	for i := from; i < len(text); i++ {
		n := bytes.IndexByte(text[i:], '\n')
		if n < 0 {
			end := bytes.Index(text[i:], returns)
			if end < 0 {
				return 0
			}
			event := text[:i+end+len(returns)]
			for k, c := range event {
				if c == '\r' {
					event[k] = '\n'
				}
			}
			return len(event)
		}
		i += n
		switch rest := text[i+1:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i + 2
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i + 3
		}
	}
	return 0
}
