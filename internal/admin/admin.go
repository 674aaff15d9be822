package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one line of the readiness answer.
type Check struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not ready, or what is degraded
}

// Options say what a Server shows. Nil functions leave their page out.
type Options struct {
	Bind      string // host:port; port 0 picks a free one
	Gatherer  prometheus.Gatherer
	Ready     func() []Check
	Status    func() any                 // JSON value of /status
	Decisions func(id string, n int) any // JSON value of /debug/decisions
	Explain   func(ctx context.Context, r *http.Request) (any, error)
	Record    http.Handler                // GET /debug/record; it must end when the replica stops
	Reload    func(context.Context) error // POST /-/reload
	Log       *slog.Logger
}

// Server is a running administration port.
type Server struct {
	http *http.Server
	lis  net.Listener
	done chan struct{}
}

// Open listens on o.Bind and serves until Close.
func Open(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	lis, err := net.Listen("tcp", o.Bind)
	if err != nil {
		return nil, fmt.Errorf("admin: listen on %s: %w", o.Bind, err)
	}
	s := &Server{lis: lis, done: make(chan struct{})}
	s.http = &http.Server{Handler: Handler(o), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("admin port stopped", "err", err)
		}
	}()
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.lis.Addr() }

// Close stops the server and waits until its requests have ended or ctx is done.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

// Handler returns the pages as one handler.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	if o.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	if o.Ready != nil {
		mux.HandleFunc("GET /readyz", readyz(o.Ready))
	}
	if o.Status != nil {
		mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, o.Status()) })
		mux.HandleFunc("GET /{$}", page(o.Status))
	}
	if o.Decisions != nil {
		mux.HandleFunc("GET /debug/decisions", decisions(o.Decisions))
	}
	if o.Explain != nil {
		mux.HandleFunc("POST /debug/explain", explain(o.Explain))
	}
	if o.Record != nil {
		mux.Handle("GET /debug/record", o.Record)
	}
	if o.Reload != nil {
		mux.HandleFunc("POST /-/reload", reload(o.Reload))
	}
	mux.HandleFunc("GET /debug/pprof/", loopbackOnly(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", loopbackOnly(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", loopbackOnly(pprof.Symbol))
	mux.HandleFunc("GET /debug/pprof/trace", loopbackOnly(pprof.Trace))
	mux.HandleFunc("GET /debug/pprof/cmdline", loopbackOnly(pprof.Cmdline))
	return mux
}
