package admin

import (
	"bytes"
	"container/list"
	"maps"
	"net/http"
	"sync"
	"time"
)

// press renders pages one at a time and pauses after each for the same time, so page requests use
// at most half of a CPU. A page is sent only when it is complete, and the next may then be
// rendered, so slow readers do not delay others. The memory of pages being sent is limited: the
// oldest is aborted for a new one.
type press struct {
	turn chan struct{}
	most int64 // bytes; 0: unlimited

	mu      sync.Mutex
	sending list.List // of *sending, oldest first
	bytes   int64     // total size of these
}

type sending struct {
	bytes int64
	cut   func()
}

func newPress(most int64) *press { return &press{turn: make(chan struct{}, 1), most: most} }

// send sends a page and aborts older ones that take too much memory.
func (p *press) send(w http.ResponseWriter, body []byte) {
	s := &sending{int64(len(body)), func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) }}
	p.mu.Lock()
	for p.most > 0 && p.bytes+s.bytes > p.most && p.sending.Len() > 0 {
		oldest := p.sending.Front()
		oldest.Value.(*sending).cut()
		p.leave(oldest)
	}
	at := p.sending.PushBack(s)
	p.bytes += s.bytes
	p.mu.Unlock()
	_, _ = w.Write(body) // the client may have disconnected or read too slowly
	p.mu.Lock()
	p.leave(at)
	p.mu.Unlock()
}

// leave removes a page that was sent or aborted, once. p is locked.
func (p *press) leave(at *list.Element) {
	s := at.Value.(*sending)
	p.sending.Remove(at)
	p.bytes -= s.bytes
	s.bytes = 0
}

// whole serializes h, which must end by itself.
func (p *press) whole(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.turn <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		made := sheet{header: http.Header{}, code: http.StatusOK}
		func() {
			begun := time.Now()
			defer func() { time.AfterFunc(time.Since(begun), func() { <-p.turn }) }()
			h.ServeHTTP(&made, r)
		}()
		maps.Copy(w.Header(), made.header)
		w.WriteHeader(made.code)
		p.send(w, made.body.Bytes())
	})
}

// sheet is a page being rendered.
type sheet struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (s *sheet) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *sheet) WriteHeader(code int) { s.code = code }

// Write implements http.ResponseWriter.
func (s *sheet) Write(b []byte) (int, error) { return s.body.Write(b) }
