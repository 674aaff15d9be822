package sidecar

import (
	"net/http"
	"time"
)

// harmless are the paths of forwarded requests that are idempotent.
var harmless = map[string]bool{
	"/v1/embeddings": true, "/pooling": true, "/classify": true, "/invocations": true, "/tokenize": true, "/detokenize": true,
	"/score": true, "/v1/score": true, "/rerank": true, "/v1/rerank": true, "/v2/rerank": true, "/v1/messages/count_tokens": true,
}

// onceMore is the transport of forwarded requests. It retries an idempotent request that was lost
// with a stale connection.
type onceMore struct{ s *Server }

// RoundTrip implements http.RoundTripper.
func (t onceMore) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.GetBody == nil || !harmless[r.URL.Path] {
		return t.s.o.Transport.RoundTrip(r)
	}
	var wire wire
	start := time.Now()
	resp, err := t.s.o.Transport.RoundTrip(r.WithContext(wire.watch(r.Context())))
	if err == nil || r.Context().Err() != nil || !wire.stale(start) {
		return resp, err
	}
	body, again := r.GetBody()
	if again != nil {
		return nil, err
	}
	t.s.m.retries.WithLabelValues("stale").Inc()
	second := r.Clone(r.Context())
	second.Body = body
	return t.s.o.Transport.RoundTrip(second)
}
