package sim

import (
	"errors"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// Outcomes of a job other than success.
var (
	errStopped = errors.New("sim: the engine stopped")
	errAborted = errors.New("sim: aborted")
)

// job is one sequence on its way through a core.
type job struct {
	page.Life
	req   engine.Request
	lease string // name of the lease of its blocks, with req.Hold
	stamp uint64 // of its prompt

	mu     sync.Mutex
	tokens int // generated so far
	cached int
	over   bool
	err    error
	notify chan struct{} // capacity 1: something above changed
}

func newJob(r engine.Request, stop bool) *job {
	return &job{Life: page.Life{Prompt: r.Prompt, Output: r.Output, Stop: stop, Arrived: time.Now()}, req: r, notify: make(chan struct{}, 1)}
}

func (j *job) progress(m engine.Mark, tell bool) {
	j.mu.Lock()
	j.tokens, j.cached = m.Generated, m.Cached
	j.mu.Unlock()
	if tell {
		j.tell()
	}
}

func (j *job) end(err error) {
	j.mu.Lock()
	j.over, j.err = true, err
	j.mu.Unlock()
	j.tell()
}

func (j *job) tell() {
	select {
	case j.notify <- struct{}{}:
	default:
	}
}

// state returns how far the job is.
func (j *job) state() (tokens, cached int, over bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tokens, j.cached, j.over, j.err
}
