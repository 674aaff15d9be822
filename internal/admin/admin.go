package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// Check is one line of the readiness response.
type Check struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not ready, or which part is degraded
}

// Options configure a Server. A nil function disables its page.
type Options struct {
	// Bind is the host:port for metrics, health and status; port 0 picks a free one. Its protected
	// pages are only for clients on this machine.
	Bind string
	// Control is an additional listener with every page: host:port or unix:PATH; "" for none.
	// Except on loopback it needs TLS, and Token or client certificates.
	Control string
	Token   string      // accepted at Control; "" disables tokens
	TLS     *tls.Config // for Control unless it is a socket file; nil: none

	Gatherer   prometheus.Gatherer
	Registerer prometheus.Registerer // for the package's own metrics; may be nil
	Ready      func() []Check
	Stalled    func() []string // names of stalled loops of the process; nil: unknown
	Status     func() any      // returns the JSON value of /status
	// History returns the JSON value of /history: the last hour of a model's requests, or of all for
	// "". ok is false for a model without requests.
	History func(model string) (series any, ok bool)
	// Decisions returns the JSON value of /debug/decisions, and the replicas that did not answer.
	// local restricts it to this replica.
	Decisions func(ctx context.Context, id string, n int, local bool) (found any, silent []string)
	Explain   func(ctx context.Context, r *http.Request) (any, error)
	Record    http.Handler                // GET /debug/record; it must end when the replica stops
	Flight    http.Handler                // POST and GET /debug/flight, GET /debug/flight/{name}
	Reload    func(context.Context) error // POST /-/reload
	LogLevels LogLevels                   // GET and PUT /-/loglevel; nil: none
	Pools     *Pools                      // of a process that serves several; nil: it serves one
	Budget    *budget.Budget              // memory for request bodies; nil: unlimited
	Listeners *budget.Listeners           // limits connections; nil: unlimited
	Log       *slog.Logger
}

// Limits of the listeners.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second // for a request with its body
	writeTimeout  = time.Minute      // for a response that is not a stream
	idleTimeout   = time.Minute
	maxHeader     = 32 << 10
	maxSmallBody  = 64 << 10 // of every page except explain
)

// ErrControl is wrapped if the control listener would admit unauthenticated clients.
var ErrControl = errors.New("admin: a control listener beyond this machine needs TLS, and a token or client certificates")

// Server is a running administration port with its optional control listener.
type Server struct {
	http, control *http.Server
	lis           net.Listener
	ends          []chan struct{}
}

// Open listens on o.Bind and o.Control and serves until Close.
func Open(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(o.Registerer)
	lis, err := net.Listen("tcp", o.Bind)
	if err != nil {
		return nil, fmt.Errorf("admin: listen on %s: %w", o.Bind, err)
	}
	s := &Server{lis: lis}
	if o.Control != "" {
		control, g, err := o.listenControl(m)
		if err != nil {
			return nil, errors.Join(err, lis.Close())
		}
		s.control = s.serve(control, handler(o, g, m), o.Log)
		o.Log.Info("control listening", "address", o.Control)
	}
	s.http = s.serve(o.Listeners.LimitShort("admin", 16, lis), handler(o, guard{metrics: m}, m), o.Log)
	return s, nil
}

// listenControl opens the control listener. The returned guard authenticates its clients.
func (o *Options) listenControl(m *metrics) (net.Listener, guard, error) {
	if path, ok := strings.CutPrefix(o.Control, "unix:"); ok {
		lis, err := listenUnix(path)
		if err != nil {
			return nil, guard{}, fmt.Errorf("admin: listen on %s: %w", o.Control, err)
		}
		return o.Listeners.LimitRequests("control", 16, lis), guard{socket: true, metrics: m}, nil
	}
	g := guard{token: o.Token, certificates: o.TLS != nil && o.TLS.ClientAuth >= tls.RequireAnyClientCert, metrics: m}
	lis, err := net.Listen("tcp", o.Control)
	if err != nil {
		return nil, g, fmt.Errorf("admin: listen on %s: %w", o.Control, err)
	}
	if addr, ok := lis.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		if o.TLS == nil || o.Token == "" && !g.certificates {
			return nil, g, errors.Join(fmt.Errorf("%w: %s", ErrControl, o.Control), lis.Close())
		}
	}
	if lis = o.Listeners.LimitRequests("control", 16, lis); o.TLS != nil {
		conf := o.TLS.Clone()
		conf.NextProtos = []string{"http/1.1"}
		lis = tls.NewListener(lis, conf)
	}
	return lis, g, nil
}

// listenUnix listens on a socket file that only this user may open. It replaces a file left by a
// dead process.
func listenUnix(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(errors.New("another process is listening on the socket"), c.Close())
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	return lis, nil
}

// serve serves pages on a listener until Close.
func (s *Server) serve(lis net.Listener, h http.Handler, log *slog.Logger) *http.Server {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	s.ends = append(s.ends, done)
	go func() {
		defer close(done)
		if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			log.Error("admin port stopped", "error", err)
		}
	}()
	return srv
}

// Addr returns the address of metrics, health and status.
func (s *Server) Addr() net.Addr { return s.lis.Addr() }

// Close stops the server and waits for its requests until ctx is done.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	for _, srv := range []*http.Server{s.http, s.control} {
		if srv == nil {
			continue
		}
		if err := srv.Shutdown(ctx); err != nil {
			errs = append(errs, err, srv.Close())
		}
	}
	for _, done := range s.ends {
		<-done
	}
	return errors.Join(errs...)
}

// handler returns all pages. g protects pages that act, or that show requests or memory.
func handler(o Options, g guard, m *metrics) http.Handler {
	made := newPress(o.Budget.Share(budget.Admin))
	mux := o.mux(made, g, m)
	if o.Pools != nil {
		o.Pools.serve(mux, made, g, m)
	}
	guarded := func(pattern string, h http.Handler) {
		mux.Handle(pattern, http.MaxBytesHandler(g.protect(h), maxSmallBody))
	}
	if o.LogLevels != nil {
		guarded("GET /-/loglevel", logLevels(o.LogLevels))
		guarded("PUT /-/loglevel", logLevels(o.LogLevels))
	}
	for path, h := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace, "cmdline": pprof.Cmdline} {
		guarded("GET /debug/pprof/"+path, unhurried(h))
	}
	return hardened(mux)
}

// mux returns the pages of one pool. made renders them.
func (o *Options) mux(made *press, g guard, m *metrics) *http.ServeMux {
	mux := http.NewServeMux()
	open := func(pattern string, h http.Handler) { mux.Handle(pattern, http.MaxBytesHandler(h, maxSmallBody)) }
	guarded := func(pattern string, h http.Handler) { open(pattern, g.protect(h)) }
	if o.Gatherer != nil {
		open("GET /metrics", made.whole(promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{Timeout: 10 * time.Second, EnableOpenMetrics: true})))
	}
	open("GET /healthz", unlessStalled(o.Stalled, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	if o.Ready != nil {
		open("GET /readyz", unlessStalled(o.Stalled, readyz(o.Ready)))
	}
	if o.Status != nil {
		open("GET /status", made.whole(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, o.Status()) })))
		if o.Pools == nil {
			open("GET /{$}", made.whole(page(o.Status)))
		}
	}
	if o.History != nil {
		open("GET /history", made.whole(history(o.History)))
	}
	if o.Decisions != nil {
		guarded("GET /debug/decisions", made.whole(decisions(o.Decisions)))
	}
	if o.Explain != nil {
		mux.Handle("POST /debug/explain", g.protect(m.charged(o.Budget, explain(o.Explain))))
	}
	if o.Record != nil {
		guarded("GET /debug/record", unhurried(o.Record))
	}
	if o.Flight != nil {
		for _, pattern := range []string{"POST /debug/flight", "GET /debug/flight", "GET /debug/flight/{name}"} {
			guarded(pattern, unhurried(o.Flight))
		}
	}
	if o.Reload != nil {
		guarded("POST /-/reload", reload(o.Reload))
	}
	return mux
}
