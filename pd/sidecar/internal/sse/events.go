package sse

import (
	"bytes"
	"io"
)

// MaxEvent is the largest event that is taken in whole. A larger one is passed on as it
// comes.
const MaxEvent = 4 << 20

// Events cuts a stream into events, each with the blank line that ends it.
type Events struct {
	R    io.Reader
	Buf  []byte // what was read
	at   int    // where the next event starts
	seen int    // bytes of the event under way that hold no end
	err  error
}

// Next returns the next event, behind skip bytes that are held, reading as needed,
// and leaves it where it is. At the end of the stream it returns what is left with
// the error.
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

// fill reads once. Room is made by moving what is left to the front.
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

// Take returns the next n bytes and goes on behind them. They are valid until the
// Next call of next.
func (e *Events) Take(n int) []byte {
	part := e.Buf[e.at : e.at+n]
	if e.at += n; e.at == len(e.Buf) {
		e.Buf, e.at = e.Buf[:0], 0
	}
	return part
}

// More reports whether another whole event has been read.
func (e *Events) More() bool { return eventEnd(e.Buf[e.at:], 0) > 0 }

// returns ends an event whose lines end in carriage returns alone.
var returns = []byte("\r\r")

// eventEnd returns the length of the event that text begins with, 0 where its end
// has not come. The search begins at from. Lines that end in carriage returns alone get
// newlines instead: JSON has neither in it.
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
