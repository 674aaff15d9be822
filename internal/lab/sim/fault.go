package sim

import (
	"context"
	"fmt"
	"sync"
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
)

// Faults are what an engine does wrong, beside its event stream. The zero
// value is none.
type Faults struct {
	ErrorNext   int     `json:"error_next"`   // inference requests that are refused, from the next on
	ErrorShare  float64 `json:"error_share"`  // share of inference requests that are refused
	ErrorStatus int     `json:"error_status"` // with this status; default 500
	Slow        float64 `json:"slow"`         // steps take so many times longer; 0: once
	Hang        Hang    `json:"hang"`

	Events kvstream.Faults `json:"events"` // on every rank
}

// faultState holds the faults in force.
type faultState struct {
	mu    sync.Mutex
	f     Faults
	count uint64        // inference requests, for ErrorShare
	free  chan struct{} // closed unless the engine hangs with HangAll
}

// SetFaults replaces the faults in force. They outlive restarts.
func (e *Engine) SetFaults(f Faults) {
	s := &e.faults
	s.mu.Lock()
	was := s.f.Hang == HangAll
	s.f = f
	switch now := f.Hang == HangAll; {
	case now && !was:
		s.free = make(chan struct{})
	case was && !now:
		close(s.free)
	}
	s.mu.Unlock()
	if st := e.current(); st != nil {
		e.applyFaults(st)
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

// stall waits while the engine hangs altogether.
func (s *faultState) stall(ctx context.Context) {
	s.mu.Lock()
	free := s.free
	s.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
	}
}

// refuse returns the status with which the next inference request is to be
// refused, or 0.
func (s *faultState) refuse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	hit := s.f.ErrorNext > 0
	if hit {
		s.f.ErrorNext--
	}
	// Spread evenly: request n is refused when n·share passes a whole number.
	if share := s.f.ErrorShare; share > 0 {
		hit = hit || uint64(float64(s.count)*share) > uint64(float64(s.count-1)*share)
	}
	if !hit {
		return 0
	}
	if s.f.ErrorStatus == 0 {
		return 500
	}
	return s.f.ErrorStatus
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
	if err := e.boot(kept, first); err != nil {
		return fmt.Errorf("sim: restart: %w", err)
	}
	return nil
}
