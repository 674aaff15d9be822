package responses

import (
	"bytes"
	"net/http"
)

// recorder keeps the engine's answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorder) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *recorder) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *recorder) copyTo(w http.ResponseWriter) {
	for name, v := range a.header {
		w.Header()[name] = v
	}
	w.WriteHeader(max(a.status, http.StatusContinue))
	_, _ = w.Write(a.body.Bytes()) // the client is gone
}

type readCloser struct{ *bytes.Reader }

// Close implements io.Closer.
func (readCloser) Close() error { return nil }
