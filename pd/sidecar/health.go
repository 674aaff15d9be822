package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// healthTimeout bounds the look at the engine.
const healthTimeout = 2 * time.Second

// health is whether requests are welcome.
type health struct{ draining atomic.Bool }

// Drain says that no more requests are welcome. Those that come are served still, and their
// connections are closed after them.
func (s *Server) Drain() { s.health.draining.Store(true) }

// Ready answers 200 where requests are welcome: the proxy does not drain, and its engine's
// /health says 2xx. Else 503 and why.
func (s *Server) Ready(w http.ResponseWriter, r *http.Request) {
	if why := s.notReady(r.Context()); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ready") // the prober may have left
}

// notReady says why requests are not welcome, "" when they are.
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
