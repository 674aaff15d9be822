package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// healthTimeout bounds the check of the engine.
const healthTimeout = 2 * time.Second

// health is the readiness state.
type health struct{ draining atomic.Bool }

// Drain stops announcing readiness. Further requests are still served, and their connections are
// closed afterwards.
func (s *Server) Drain() { s.health.draining.Store(true) }

// Ready responds 200 if requests are accepted: the proxy is not draining, and its engine's /health
// is 2xx. Otherwise it responds 503 with the reason.
func (s *Server) Ready(w http.ResponseWriter, r *http.Request) {
	if why := s.notReady(r.Context()); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ready") // the prober may have disconnected
}

// notReady returns why requests are not accepted, "" if they are.
func (s *Server) notReady(ctx context.Context) string {
	if s.health.draining.Load() {
		return "draining"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.engine.JoinPath("health").String(), nil)
	if err != nil {
		return "the engine's address: " + err.Error()
	}
	resp, err := s.o.Transport.RoundTrip(r)
	if err != nil {
		return "the engine cannot be reached"
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Sprintf("the engine's /health says %d", resp.StatusCode)
	}
	return ""
}
