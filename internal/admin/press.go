package admin

import (
	"bytes"
	"maps"
	"net/http"
	"time"
)

// press makes pages one after the other, with a rest after each that is as long as it took:
// whoever asks for pages, however often, has half of a processor at most. A page is sent when
// it is whole and the next may be made, so that nobody keeps others waiting by reading slowly.
type press chan struct{}

// whole is h, a page at a time. h must end by itself.
func (p press) whole(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case p <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		made := sheet{header: http.Header{}, code: http.StatusOK}
		func() {
			begun := time.Now()
			defer func() { time.AfterFunc(time.Since(begun), func() { <-p }) }()
			h.ServeHTTP(&made, r)
		}()
		maps.Copy(w.Header(), made.header)
		w.WriteHeader(made.code)
		_, _ = w.Write(made.body.Bytes()) // the client may have gone
	})
}

// sheet is a page in the making.
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
