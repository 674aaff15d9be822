package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/model"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/responses"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// Engine is one simulated engine: an HTTP server over one or more cores.
type Engine struct {
	opt   Options
	addr  string // bound
	words *vocab.Vocabulary
	mux   http.Handler
	page  *page.Page
	log   *slog.Logger

	restarting sync.Mutex // one Restart or Close at a time

	lora    model.Adapters
	faults  faultState
	named   atomic.Value   // string: the version that it names
	pending sync.WaitGroup // restarts requested over HTTP

	mu     sync.RWMutex
	state  *incarnation // nil while down
	closed bool
}

// incarnation is the state that a restart replaces.
type incarnation struct {
	id      string // the engine's, for KV transfers
	addr    string
	cores   []*core.Core
	pubs    []*kvstream.Publisher // by rank; empty without events
	start   time.Time
	ready   time.Time
	http    *page.HTTPMeter
	server  *http.Server
	stored  *responses.Handler
	serving chan struct{} // closed when the server's goroutine has returned
	cancel  context.CancelFunc

	spoiled sync.Map // first blocks with incorrect content, by name

	mu      sync.Mutex
	stopped bool
	active  sync.WaitGroup // handlers
}

// enter counts a handler in; it returns false when the incarnation is over.
func (st *incarnation) enter() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.stopped {
		return false
	}
	st.active.Add(1)
	return true
}

// Open binds the engine's sockets and starts serving.
func Open(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{opt: o, words: vocab.New(), addr: o.Addr, log: o.Log, lora: model.NewAdapters(o.Adapters)}
	e.page = newPage(&e.opt)
	e.mux = e.routes()
	if err := e.boot(nil, 0); err != nil {
		return nil, err
	}
	return e, nil
}

func newPage(o *Options) *page.Page {
	return page.New(&page.Options{Model: o.Model, Ranks: o.Ranks, Core: o.Core, MaxLoRA: o.MaxLoRA, NoProcessMetrics: o.NoProcessMetrics})
}

// Addr returns the bound host:port of the HTTP server.
func (e *Engine) Addr() string { return e.addr }

// Name returns the engine's name.
func (e *Engine) Name() string {
	if e.opt.Name != "" {
		return e.opt.Name
	}
	return e.addr
}

// Options returns the options with defaults filled in.
func (e *Engine) Options() Options { return e.opt }

// EventAddrs returns the bound host:port of the PUB and replay sockets by rank; replay is "" if
// there is none.
func (e *Engine) EventAddrs() (pub, replay []string) {
	st := e.current()
	if st == nil {
		return nil, nil
	}
	for _, p := range st.pubs {
		pub = append(pub, p.Addr())
		replay = append(replay, p.ReplayAddr())
	}
	return pub, replay
}

// Close stops serving, aborts requests in flight and waits for every goroutine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.SetFaults(faults.Faults{}) // releases requests that a fault holds
	e.pending.Wait()
	e.restarting.Lock()
	defer e.restarting.Unlock()
	return e.down(false)
}

func (e *Engine) current() *incarnation {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.state
}

// boot starts an incarnation: cores, publishers (or those given), HTTP.
func (e *Engine) boot(pubs []*kvstream.Publisher, firstSeq uint64) (err error) {
	st := &incarnation{start: time.Now(), http: page.NewHTTPMeter(), serving: make(chan struct{}), pubs: pubs}
	st.ready = st.start.Add(e.opt.StartDelay)
	defer func() {
		if err != nil {
			err = errors.Join(err, st.stop(false))
		}
	}()
	ln, err := net.Listen("tcp", e.addr)
	if err != nil {
		close(st.serving)
		return fmt.Errorf("sim: %w", err)
	}
	if bound := ln.Addr().String(); bound != e.addr { // only at the first boot
		e.addr = bound
	}
	st.addr, st.id = e.addr, fmt.Sprintf("engine-%s-%d", e.addr, st.start.UnixNano())
	if e.opt.Events != nil && pubs == nil {
		if st.pubs, err = openPublishers(&e.opt, e.addr, firstSeq); err != nil {
			_ = ln.Close()
			close(st.serving)
			return err
		}
	}
	for r := range e.opt.Ranks {
		var pub *kvstream.Publisher
		if len(st.pubs) > 0 {
			pub = st.pubs[r]
		}
		c, err := core.New(e.opt.core(r, pub, e.lora.Name))
		if err != nil {
			_ = ln.Close()
			close(st.serving)
			return err
		}
		st.cores = append(st.cores, c)
	}
	e.serve(st, faults.Listener{Listener: ln, Wire: &e.faults.wire})
	return nil
}

func (e *Engine) serve(st *incarnation, ln net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	st.cancel = cancel
	st.stored = responses.New(ctx, e.handler(st), http.Header{HeaderEngine: {e.Name()}})
	st.server = &http.Server{
		Handler: st.stored, ReadHeaderTimeout: time.Minute, IdleTimeout: e.opt.Idle,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
	e.mu.Lock()
	e.state = st
	e.mu.Unlock()
	e.applyFaults(st)
	go func() {
		defer close(st.serving)
		if err := st.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			e.log.Error("serving stopped", "engine", e.Name(), "err", err)
		}
	}()
}

// down ends the current incarnation. With keep, its publishers live on and are
// not closed.
func (e *Engine) down(keep bool) error {
	e.mu.Lock()
	st := e.state
	e.state = nil
	e.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.stop(keep)
}

func (st *incarnation) stop(keep bool) (err error) {
	st.mu.Lock()
	st.stopped = true
	st.mu.Unlock()
	if st.cancel != nil {
		st.cancel()
		err = st.server.Close()
	}
	<-st.serving
	st.stored.Wait()
	st.active.Wait()
	for _, c := range st.cores {
		c.Close()
	}
	if keep {
		return err
	}
	for _, p := range st.pubs {
		err = errors.Join(err, p.Close())
	}
	return err
}

// pick chooses the core for a request: the rank that the client names, or the
// one with the fewest requests.
func (st *incarnation) pick(rank string) (*core.Core, error) {
	if n, err := strconv.Atoi(rank); err == nil {
		if n < 0 || n >= len(st.cores) {
			return nil, badRequest(headerRank, "data_parallel_rank %d is out of range [0, %d).", n, len(st.cores))
		}
		return st.cores[n], nil
	}
	best := st.cores[0]
	least := best.InFlight()
	for _, c := range st.cores[1:] {
		if n := c.InFlight(); n < least {
			best, least = c, n
		}
	}
	return best, nil
}
