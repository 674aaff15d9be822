package sidecar

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/pd/handover"
)

// Bounds of a stream: what is held before the first content, and the largest event
// that is looked into. A larger one is passed on as it comes.
const (
	maxHead  = 64 << 10
	maxEvent = 4 << 20
)

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// passStream passes a stream of events on as they come.
func (x *exchange) passStream(resp *http.Response, d *leg, head *time.Timer) *fault {
	pooled := buffers.Get().(*[]byte)
	e := events{r: resp.Body, buf: (*pooled)[:0]}
	defer func() {
		*pooled = e.buf[:0]
		if cap(e.buf) <= 1<<20 {
			buffers.Put(pooled)
		}
	}()
	open, ended := false, !endless(resp)
	if !d.again {
		head.Stop() // the engine may take its time
	}
	held := 0 // bytes at the start of the buffer that wait for the first content
	for {
		event, err := e.next(held)
		if !open && err != nil && !errors.Is(err, io.EOF) {
			return &fault{err: errBroken, before: true}
		}
		if event != nil && !open {
			switch state := x.api.Classify(event); {
			case state == handover.Faulty && d.again:
				return &fault{err: errEngine5, before: true}
			case state == handover.Declined && d.asks:
				return &fault{err: errDeclined, before: true}
			case state == handover.Pending && held+len(event) < maxHead:
				held += len(event)
				continue
			}
			head.Stop()
			open = true
			x.begin(resp, d, -1)
			held += len(event)
			event = e.take(held)
			held = 0
		} else if event != nil {
			event = e.take(len(event))
		}
		if event != nil {
			ended = ended || handover.Ends(event)
			if err := x.write(event, d); err != nil {
				return &fault{err: err, before: false}
			}
			if !e.more() {
				x.flush()
			}
		}
		if err == nil {
			continue
		}
		if !open {
			return &fault{err: errBroken, before: true}
		}
		if errors.Is(err, io.EOF) {
			if err = nil; !ended {
				err = errBroken
			}
		}
		return x.ended(resp, err)
	}
}

// endless reports whether the connection's end is the answer's only end, so that one which
// breaks off looks whole.
func endless(resp *http.Response) bool {
	return resp.Close && resp.ContentLength < 0 && resp.TransferEncoding == nil
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}

var (
	wordUsage    = []byte(`"usage"`)
	wordHandOver = []byte(`_params"`) // kv_transfer_params, ec_transfer_params, disaggregated_params
)

// write passes events on. Only those that hold usage which is not the prefill leg's,
// or a hand-over, are decoded.
func (x *exchange) write(event []byte, d *leg) error {
	usage := (d.cached >= 0 || d.late != nil) && bytes.Contains(event, wordUsage) && d.cachedTokens() >= 0
	if !usage && !bytes.Contains(event, wordHandOver) {
		_, err := x.w.Write(event)
		return err
	}
	data := handover.Field(event, "data")
	out := x.rewrite(data, d, usage)
	if bytes.Equal(out, data) {
		_, err := x.w.Write(event)
		return err
	}
	for line := range bytes.Lines(event) {
		if handover.IsField(line, "data") {
			if out == nil { // of several lines one is left
				continue
			}
			end := line[len(bytes.TrimRight(line, "\r\n")):]
			line = append(append([]byte("data: "), bytes.ReplaceAll(out, []byte{'\n'}, []byte{' '})...), end...)
			out = nil
		}
		if _, err := x.w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// noteKept says, once, that decode keeps the blocks of answers for a next turn's prefill:
// nobody fetches them.
func (x *exchange) noteKept(answer []byte) {
	if string(handover.Find(answer, keyHandOver, "do_remote_decode")) != "true" {
		return
	}
	x.s.kept.Do(func() {
		x.s.o.Log.Warn("the decode engine keeps the blocks of its answers for the next turn, which is not supported: set bidirectional_kv_xfer to false there")
	})
}

// rewrite returns the data of an event as the client gets it.
func (x *exchange) rewrite(data []byte, d *leg, usage bool) []byte {
	out := data
	if usage {
		out = x.api.SetCached(out, d.cached, true)
	}
	x.noteKept(data)
	return x.api.WithoutHandOver(out, true)
}

// events cuts a stream into events, each with the blank line that ends it.
type events struct {
	r    io.Reader
	buf  []byte
	at   int // where the next event starts
	seen int // bytes of the event under way that hold no end
	err  error
}

// next returns the next event, behind skip bytes that are held, reading as needed,
// and leaves it where it is. At the end of the stream it returns what is left with
// the error.
func (e *events) next(skip int) ([]byte, error) {
	for {
		rest := e.buf[e.at+skip:]
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
		case len(rest) >= maxEvent:
			e.seen = 0
			return rest, nil
		}
		e.fill()
	}
}

// fill reads once. Room is made by moving what is left to the front.
func (e *events) fill() {
	if len(e.buf) == cap(e.buf) && e.at > 0 {
		e.buf = e.buf[:copy(e.buf, e.buf[e.at:])]
		e.at = 0
	}
	if len(e.buf) == cap(e.buf) {
		e.buf = append(e.buf, make([]byte, len(e.buf)+4<<10)...)[:len(e.buf)]
	}
	n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf, e.err = e.buf[:len(e.buf)+n], err
}

// take returns the next n bytes and goes on behind them. They are valid until the
// next call of next.
func (e *events) take(n int) []byte {
	part := e.buf[e.at : e.at+n]
	if e.at += n; e.at == len(e.buf) {
		e.buf, e.at = e.buf[:0], 0
	}
	return part
}

// more reports whether another whole event has been read.
func (e *events) more() bool { return eventEnd(e.buf[e.at:], 0) > 0 }

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

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
