package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// maxBody bounds a request body, where Options do not.
const maxBody = 256 << 20

// responder is a ResponseWriter that counts bytes and, if requested, computes their checksum.
type responder struct {
	http.ResponseWriter
	st     *incarnation
	status int
	out    int64
	most   int64 // of the request's body
	verify bool
	sum    *xxhash.Digest // of the response body, when verifying
}

// WriteHeader implements http.ResponseWriter.
func (w *responder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *responder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if w.verify {
		_, _ = w.sum.Write(b)
	}
	n, err := w.ResponseWriter.Write(b)
	w.out += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController find the connection.
func (w *responder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func checksum(b []byte) uint64 { return xxhash.Sum64(b) }

func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// body reads the request body and sends its checksum if requested.
func (w *responder) body(r *http.Request) ([]byte, *apiError) {
	if w.verify {
		w.Header().Set(HeaderRequestSum, sumText(checksum(nil)))
	}
	var b []byte
	switch {
	case r.ContentLength > w.most:
		return nil, &apiError{http.StatusRequestEntityTooLarge, errTooLarge, "The request body is too large.", ""}
	case r.ContentLength > 0:
		b = make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, b); err != nil {
			return nil, badRequest("", "The request body ended early: %v", err)
		}
	default:
		var err error
		if b, err = io.ReadAll(http.MaxBytesReader(w, r.Body, w.most)); err != nil {
			return nil, &apiError{http.StatusRequestEntityTooLarge, errTooLarge, err.Error(), ""}
		}
	}
	if w.verify {
		w.Header().Set(HeaderRequestSum, sumText(checksum(bytes.Replace(b, askedReport, nil, 1))))
	}
	return b, nil
}

// handler wraps the routes: it counts, and lets faults have their way.
func (e *Engine) handler(st *incarnation) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !st.enter() {
			panic(http.ErrAbortHandler)
		}
		defer st.active.Done()
		begun := time.Now()
		w := &responder{ResponseWriter: rw, st: st, most: cmp.Or(e.opt.MaxBody, maxBody)}
		if w.verify = r.Header.Get(HeaderVerify) != ""; w.verify {
			w.sum = xxhash.New()
		}
		w.Header().Set("Server", "uvicorn")
		if id := r.Header.Get(headerRequestID); id != "" {
			w.Header().Set(headerRequestID, id)
		}
		if !isAdmin(r.URL.Path) {
			e.faults.answer.Pass(r.Context().Done())
		}
		defer func() {
			st.http.Observe(page.Exchange{
				Method: r.Method, Path: r.URL.Path, Status: w.status, In: r.ContentLength, Out: w.out, Seconds: time.Since(begun).Seconds(),
			})
		}()
		e.mux.ServeHTTP(w, r)
	})
}
