package core

import (
	"errors"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// Outcomes of a job other than success.
var (
	ErrStopped = errors.New("core: the engine stopped")
	ErrAborted = errors.New("core: aborted")
)

// Job is one sequence on its way through a core.
type Job struct {
	page.RequestTimes
	Req   engine.Request
	Lease string // name of the lease of its blocks, with Req.Hold
	Stamp uint64 // of its prompt
	// Notify signals a change of State; it buffers one signal.
	Notify chan struct{}

	mu     sync.Mutex
	tokens int // generated so far
	cached int
	over   bool
	err    error
}

// NewJob returns a job of a request, which ends with a stop or by its length.
func NewJob(r engine.Request, stop bool) *Job {
	return &Job{RequestTimes: page.RequestTimes{Prompt: r.Prompt, Output: r.Output, Stop: stop, Arrived: time.Now()}, Req: r, Notify: make(chan struct{}, 1)}
}

func (j *Job) progress(m engine.Mark, tell bool) {
	j.mu.Lock()
	j.tokens, j.cached = m.Generated, m.Cached
	j.mu.Unlock()
	if tell {
		j.notify()
	}
}

func (j *Job) end(err error) {
	j.mu.Lock()
	j.over, j.err = true, err
	j.mu.Unlock()
	j.notify()
}

func (j *Job) notify() {
	select {
	case j.Notify <- struct{}{}:
	default:
	}
}

// State returns how far the job is.
func (j *Job) State() (tokens, cached int, over bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tokens, j.cached, j.over, j.err
}
