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

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}

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
	open := false
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
			switch state := x.api.classify(event); {
			case state == failed && d.again:
				return &fault{err: errEngine5, before: true}
			case state == pending && held+len(event) < maxHead:
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
			err = nil
		}
		return x.ended(resp, err)
	}
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}

var (
	wordUsage    = []byte(`"usage"`)
	wordHandOver = []byte(`_transfer_params"`)
	wordData     = []byte("data:")
	wordEvent    = []byte("event:")
)

// write passes events on. Only those that hold usage which is not the prefill leg's,
// or a hand-over, are decoded.
func (x *exchange) write(event []byte, d *leg) error {
	usage := (d.cached >= 0 || d.late != nil) && bytes.Contains(event, wordUsage) && d.cachedTokens() >= 0
	if !usage && !bytes.Contains(event, wordHandOver) {
		_, err := x.w.Write(event)
		return err
	}
	for line := range bytes.Lines(event) {
		if bytes.HasPrefix(line, wordData) {
			line = x.rewrite(line, d, usage)
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

func (x *exchange) rewrite(line []byte, d *leg, usage bool) []byte {
	text := bytes.TrimSpace(line[len(wordData):])
	out := text
	if usage {
		out = x.api.setCached(out, d.cached, true)
	}
	x.noteKept(text)
	out = x.api.withoutHandOver(out, true)
	if bytes.Equal(out, text) {
		return line
	}
	end := line[len(bytes.TrimRight(line, "\r\n")):]
	return append(append([]byte("data: "), out...), end...)
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

// eventEnd returns the length of the event that text begins with, 0 where its end
// has not come. The search begins at from.
func eventEnd(text []byte, from int) int {
	for i := from; i < len(text); i++ {
		n := bytes.IndexByte(text[i:], '\n')
		if n < 0 {
			return 0
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

// headState says what an event means while the head of an answer is held.
type headState uint8

const (
	pending headState = iota // no content yet
	content
	failed
)

// quiet are the types of events that come before the first content.
var quiet = map[string]bool{
	"message_start": true, "content_block_start": true, "ping": true,
	"response.created": true, "response.queued": true, "response.in_progress": true, "response.output_item.added": true, "response.content_part.added": true,
}

// classify says what an event means while the head is held.
func (a *api) classify(event []byte) headState {
	var name, data []byte
	for line := range bytes.Lines(event) {
		switch {
		case bytes.HasPrefix(line, wordData):
			data = bytes.TrimSpace(line[len(wordData):])
		case bytes.HasPrefix(line, wordEvent):
			name = bytes.TrimSpace(line[len(wordEvent):])
		}
	}
	if string(name) == "error" {
		return failed
	}
	if data == nil {
		return pending
	}
	o, err := handover.Parse(data)
	if err != nil {
		return content // [DONE], or what is not known here
	}
	if !handover.IsNull(o.Get("error")) {
		return failed
	}
	if kind := text(o.Get("type")); kind != "" {
		switch {
		case kind == "error" || kind == "response.failed":
			return failed
		case quiet[kind]:
			return pending
		}
		return content
	}
	choices, ok := handover.Elements(o.Get("choices"))
	if !ok {
		return content
	}
	for _, c := range choices {
		if spoken(c) {
			return content
		}
	}
	return pending
}

// spoken reports whether a choice of a chunk holds anything of the answer.
func spoken(choice []byte) bool {
	o, err := handover.Parse(choice)
	if err != nil {
		return true
	}
	if said(o.Get("finish_reason")) || said(o.Get("text")) || said(o.Get("token_ids")) {
		return true
	}
	delta := o.Get("delta")
	d, err := handover.Parse(delta)
	if delta == nil || err != nil {
		return false
	}
	for _, key := range d.Keys() {
		if key != "role" && said(d.Get(key)) {
			return true
		}
	}
	return false
}

// said reports whether a value is more than null, "", [] or {}.
func said(value []byte) bool {
	return !handover.IsNull(value) && len(value) > 2
}

// text returns a short string value without escapes, or "".
func text(value []byte) string {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return ""
	}
	return string(value[1 : len(value)-1])
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
