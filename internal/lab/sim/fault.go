package sim

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
)

// Hang is how an engine hangs.
type Hang string

// Ways to hang.
const (
	HangNone Hang = ""
	// HangEngine: no step begins. The HTTP server answers what needs no step.
	HangEngine Hang = "engine"
	// HangAll: nothing is answered either.
	HangAll Hang = "all"
	// HangFrozen: connections stand and are taken, and nothing is read or
	// written, as by a process that was stopped or a network that lost its way.
	HangFrozen Hang = "frozen"
)

func (h Hang) known() bool {
	return h == HangNone || h == HangEngine || h == HangAll || h == HangFrozen
}

// Faults are what an engine does wrong, beside its event stream. The zero
// value is none.
type Faults struct {
	ErrorNext   int     `json:"error_next"`   // inference requests that are refused, from the next on
	ErrorShare  float64 `json:"error_share"`  // share of inference requests that are refused
	ErrorStatus int     `json:"error_status"` // with this status; default 500
	Slow        float64 `json:"slow"`         // steps take so many times longer; 0: once
	Hang        Hang    `json:"hang"`
	Garbage     bool    `json:"garbage"`     // inference requests are answered with 200 and no JSON
	ResetShare  float64 `json:"reset_share"` // share of inference requests whose connection is reset
	ResetAfter  int     `json:"reset_after"` // tokens of a stream before that; 0: before the answer

	Poison string        `json:"poison"` // the engine dies of a request that contains it
	Up     time.Duration `json:"up"`     // the engine dies again and again, after living so long; 0: it does not
	Down   time.Duration `json:"down"`   // how long one that died refuses connections

	Events kvstream.Faults `json:"events"` // on every rank
}

// faultState holds the faults in force.
type faultState struct {
	mu     sync.Mutex
	f      Faults
	errors spread
	resets spread
	answer gate          // shut while the engine hangs with HangAll
	wire   gate          // shut while it is frozen
	cycle  chan struct{} // ends the restarts of Faults.Up when it is closed; nil: none
}

// SetFaults replaces the faults in force. They outlive restarts.
func (e *Engine) SetFaults(f Faults) {
	s := &e.faults
	s.mu.Lock()
	s.f = f
	s.answer.set(f.Hang == HangAll)
	s.wire.set(f.Hang == HangFrozen)
	if s.cycle != nil {
		close(s.cycle)
		s.cycle = nil
	}
	var cycle chan struct{}
	if f.Up > 0 {
		cycle = make(chan struct{})
		s.cycle = cycle
	}
	s.mu.Unlock()
	if cycle != nil {
		e.background(func() { e.dieAgain(f, cycle) })
	}
	if st := e.current(); st != nil {
		e.applyFaults(st)
	}
}

// dieAgain restarts the engine again and again until end is closed.
func (e *Engine) dieAgain(f Faults, end chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(f.Up):
		}
		if err := e.Restart(RestartOptions{Down: f.Down}); err != nil {
			e.log.Error("restart", "engine", e.Name(), "err", err)
			return
		}
	}
}

// background runs f unless the engine is closed; Close waits for it.
func (e *Engine) background(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.pending.Go(f)
	}
}

// Faults returns the faults in force.
func (e *Engine) Faults() Faults {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	return e.faults.f
}

// Hang changes only how the engine hangs.
func (e *Engine) Hang(h Hang) {
	f := e.Faults()
	f.Hang = h
	e.SetFaults(f)
}

func (e *Engine) applyFaults(st *incarnation) {
	f := e.Faults()
	for _, c := range st.cores {
		c.setPace(func(p *pace) {
			p.hung = f.Hang != HangNone
			p.slow = f.Slow
			if p.slow <= 0 {
				p.slow = 1
			}
		})
	}
	for _, p := range st.pubs {
		p.SetFaults(f.Events)
	}
}

func (s *faultState) garbage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.f.Garbage
}

// refuse returns the status with which the next inference request is to be
// refused, or 0.
func (s *faultState) refuse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	hit := s.errors.next(s.f.ErrorShare)
	if s.f.ErrorNext > 0 {
		s.f.ErrorNext--
		hit = true
	}
	switch {
	case !hit:
		return 0
	case s.f.ErrorStatus == 0:
		return 500
	}
	return s.f.ErrorStatus
}

// reset reports whether the next inference request's connection is to be reset,
// and after how many tokens.
func (s *faultState) reset() (after int, hit bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.f.ResetAfter, s.resets.next(s.f.ResetShare)
}

// dies has the engine die of a request that contains the poison.
func (e *Engine) dies(body []byte) bool {
	f := e.Faults()
	if f.Poison == "" || !bytes.Contains(body, []byte(f.Poison)) {
		return false
	}
	e.background(func() {
		if err := e.Restart(RestartOptions{Down: f.Down}); err != nil {
			e.log.Error("restart", "engine", e.Name(), "err", err)
		}
	})
	return true
}

// spread picks a share of requests, evenly: request n when n·share passes a
// whole number.
type spread struct{ count uint64 }

func (s *spread) next(share float64) bool {
	s.count++
	return uint64(float64(s.count)*share) > uint64(float64(s.count-1)*share)
}

// gate lets everybody pass unless it is shut. Its zero value is open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: it is not shut
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.open == nil:
		g.open = make(chan struct{})
	case !shut && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

// pass waits until the gate is open, or gone is closed.
func (g *gate) pass(gone <-chan struct{}) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-gone:
	}
}

// listener gives connections that freeze with the engine.
type listener struct {
	net.Listener
	wire *gate
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, wire: l.wire, gone: make(chan struct{})}, nil
}

// conn is a connection of a listener.
type conn struct {
	net.Conn
	wire *gate
	once sync.Once
	gone chan struct{}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.pass(c.gone)
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.wire.pass(c.gone)
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// abort breaks the connection of a request off with a reset.
func (w *responder) abort() {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if c, ok := c.(*conn); ok {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // what is left is a reset anyway
		}
	}
	_ = c.Close()
}

// RestartOptions describe a restart.
type RestartOptions struct {
	Down time.Duration `json:"down"` // how long connections are refused
	// SeqAhead makes the new event stream begin so far behind the old one's
	// next number, as if it had already published; 0 begins at 0.
	SeqAhead uint64 `json:"seq_ahead"`
	// KeepStream leaves event connections open, so that subscribers see no
	// disconnect.
	KeepStream bool `json:"keep_stream"`
}

// Restart ends everything in flight with broken connections, waits, and comes
// back on the same addresses with an empty cache, an empty ring and a new
// process start time.
func (e *Engine) Restart(o RestartOptions) error {
	e.restarting.Lock()
	defer e.restarting.Unlock()
	st := e.current()
	if st == nil {
		return fmt.Errorf("sim: restart: %s is not running", e.Name())
	}
	first := uint64(0)
	if o.SeqAhead > 0 && len(st.pubs) > 0 {
		first = st.pubs[0].Stats().NextSeq + o.SeqAhead
	}
	if err := e.down(o.KeepStream); err != nil {
		return fmt.Errorf("sim: restart: %w", err)
	}
	time.Sleep(o.Down)
	var kept []*kvstream.Publisher
	if o.KeepStream {
		kept = st.pubs
		for _, p := range kept {
			p.Reset(first)
		}
	}
	// While the engine was down its ports may have gone to connections of others, for as long as those last.
	err := e.boot(kept, first)
	for end := time.Now().Add(portPatience); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		time.Sleep(portPause)
		err = e.boot(kept, first)
	}
	if err != nil {
		return fmt.Errorf("sim: restart: %w", err)
	}
	return nil
}

// How long a restart waits for its ports, and between two tries.
const (
	portPatience = 10 * time.Second
	portPause    = 5 * time.Millisecond
)
