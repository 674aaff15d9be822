package sidecar

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/sse"
)

// maxHead bounds the part of a stream held before the first content.
const maxHead = 64 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// passStream forwards a stream of events as they arrive.
func (x *exchange) passStream(resp *http.Response, d *leg, head *headWatch) *fault {
	pooled := buffers.Get().(*[]byte)
	e := sse.Events{R: resp.Body, Buf: (*pooled)[:0]}
	defer func() {
		*pooled = e.Buf[:0]
		if cap(e.Buf) <= 1<<20 {
			buffers.Put(pooled)
		}
	}()
	open, ended := false, !endless(resp)
	held := 0 // bytes at the start of the buffer held until the first content
	for {
		event, err := e.Next(held)
		if !open && err != nil && head.state.Load() == watchCancelled {
			return &fault{err: errHead, before: true}
		}
		if !open && err != nil && !errors.Is(err, io.EOF) {
			return &fault{err: errBroken, before: true, mayBeDeath: true}
		}
		if event != nil && !open {
			switch state := x.api.Classify(event); {
			case state == kvtransfer.Faulty && d.again:
				return &fault{err: errEngine5, before: true, mayBeDeath: true}
			case state == kvtransfer.Faulty:
				return x.holdFaulty(resp, &e, held+len(event))
			case state == kvtransfer.Declined && d.asks:
				return &fault{err: errDeclined, before: true}
			case state == kvtransfer.Pending && held+len(event) < maxHead:
				held += len(event)
				continue
			}
			head.stop()
			if x.misled(d) {
				return &fault{err: errStale, before: true}
			}
			open = true
			x.begin(resp, d, -1)
			held += len(event)
			if x.tracked() {
				return x.passTracked(resp, d, &e, held, err, ended)
			}
			event = e.Take(held)
			held = 0
		} else if event != nil {
			event = e.Take(len(event))
		}
		if event != nil {
			ended = ended || kvtransfer.Ends(event)
			if err := x.write(event, d); err != nil {
				return &fault{err: err, before: false}
			}
			if !e.More() {
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

// holdFaulty reads a stream whose first event, the next n bytes, is an error, like holdError.
func (x *exchange) holdFaulty(resp *http.Response, e *sse.Events, n int) *fault {
	text := bytes.Clone(e.Take(n))
	for {
		event, err := e.Next(0)
		text = append(text, e.Take(len(event))...)
		switch {
		case errors.Is(err, io.EOF):
			return &fault{err: errEngine5, before: true, mayBeDeath: true, answer: &errorAnswer{resp, text}}
		case err != nil || len(text) > maxHead:
			return &fault{err: errBroken, before: true, mayBeDeath: true}
		}
	}
}

// endless reports whether only the end of the connection ends the response, so that a truncated one
// looks complete.
func endless(resp *http.Response) bool {
	return resp.Close && resp.ContentLength < 0 && resp.TransferEncoding == nil
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}

var (
	wordUsage      = []byte(`"usage"`)
	wordKVTransfer = []byte(`_params"`) // kv_transfer_params, ec_transfer_params, disaggregated_params
)

// write forwards events. It parses only events with usage to be replaced or with KV transfer fields.
func (x *exchange) write(event []byte, d *leg) error {
	usage := (d.cached >= 0 || d.late != nil) && bytes.Contains(event, wordUsage) && d.cachedTokens() >= 0
	if !usage && !bytes.Contains(event, wordKVTransfer) {
		_, err := x.w.Write(event)
		return err
	}
	data := kvtransfer.Field(event, "data")
	out := x.rewrite(data, d, usage)
	if bytes.Equal(out, data) {
		_, err := x.w.Write(event)
		return err
	}
	for line := range bytes.Lines(event) {
		if kvtransfer.IsField(line, "data") {
			if out == nil { // later lines of the event are merged into the first
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

// noteKept logs once that decode keeps the blocks of answers for a next turn's prefill, which
// nothing fetches.
func (x *exchange) noteKept(answer []byte) {
	if string(kvtransfer.Find(answer, keyKVTransfer, "do_remote_decode")) != "true" {
		return
	}
	x.s.kept.Do(func() {
		x.s.o.Log.Warn("the decode engine sends KV blocks back (bidirectional_kv_xfer), which is not supported: set it to false")
	})
}

// rewrite returns the data of an event for the client.
func (x *exchange) rewrite(data []byte, d *leg, usage bool) []byte {
	out := data
	if usage {
		out = x.api.SetCached(out, d.cached, true)
	}
	x.noteKept(data)
	return x.api.StripTransfer(out, true)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
