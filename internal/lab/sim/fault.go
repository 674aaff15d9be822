package sim

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
)

// faultState holds the faults in force.
type faultState struct {
	mu     sync.Mutex
	f      faults.Faults
	errors faults.Spread
	resets faults.Spread
	answer faults.Gate   // shut while the engine hangs with HangAll
	wire   faults.Gate   // shut while it is frozen
	cycle  chan struct{} // ends the restarts of Faults.Up when it is closed; nil: none
}

// SetFaults replaces the faults in force. They outlive restarts.
func (e *Engine) SetFaults(f faults.Faults) {
	s := &e.faults
	s.mu.Lock()
	s.f = f
	s.answer.Set(f.Hang == faults.HangAll)
	s.wire.Set(f.Hang == faults.HangFrozen)
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

// dieAgain restarts the engine repeatedly until end is closed.
func (e *Engine) dieAgain(f faults.Faults, end chan struct{}) {
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

// background runs f in a goroutine unless the engine is closed. Close waits until f returns.
func (e *Engine) background(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.pending.Go(f)
	}
}

// Faults returns the faults in force.
func (e *Engine) Faults() faults.Faults {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	return e.faults.f
}

// Hang changes only how the engine hangs.
func (e *Engine) Hang(h faults.Hang) {
	f := e.Faults()
	f.Hang = h
	e.SetFaults(f)
}

func (e *Engine) applyFaults(st *incarnation) {
	f := e.Faults()
	for _, c := range st.cores {
		c.SetPace(func(p *core.Pace) {
			p.Hung = f.Hang != faults.HangNone
			p.Slow = f.Slow
			if p.Slow <= 0 {
				p.Slow = 1
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

// refuse returns the error status for the next inference request, or 0.
func (s *faultState) refuse(body []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f.ErrorOnly != "" && !bytes.Contains(body, []byte(s.f.ErrorOnly)) {
		return 0
	}
	hit := s.errors.Next(s.f.ErrorShare)
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

// reset reports whether to reset the next inference request's connection, and after how many
// tokens.
func (s *faultState) reset() (after int, hit bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.f.ResetAfter, s.resets.Next(s.f.ResetShare)
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

// abort breaks the connection of a request off with a reset.
func (w *responder) abort() {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	faults.Reset(c)
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
	// Model is the model served after the restart, without aliases and with these Adapters; ""
	// keeps the current model.
	Model    string   `json:"model"`
	Adapters []string `json:"adapters"`
}

// Restart breaks all connections in flight, waits, and starts again on the same addresses with an
// empty cache, an empty replay buffer and a new process start time.
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
	if o.Model != "" {
		e.opt.Model, e.opt.Root, e.opt.Aliases = o.Model, "", nil
		e.lora.Replace(o.Adapters)
		e.page = newPage(&e.opt)
	}
	var kept []*kvstream.Publisher
	if o.KeepStream {
		kept = st.pubs
		for _, p := range kept {
			p.Reset(first)
		}
	}
	// While the engine was down, other connections may have used its ports as source ports. Retry
	// until they are closed.
	err := e.boot(kept, first)
	for end := time.Now().Add(portTimeout); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
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
	portTimeout = 10 * time.Second
	portPause   = 5 * time.Millisecond
)
