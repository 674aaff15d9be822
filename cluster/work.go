package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/cluster/group"
)

// workers is how many jobs are done side by side: making a snapshot that somebody
// asked for does not wait for loading one, and the other way round.
const workers = 2

// work does a core's jobs.
type work struct {
	mu    sync.Mutex
	more  *sync.Cond
	queue []group.Job
	ended atomic.Bool
	done  sync.WaitGroup
}

func newWork() *work {
	w := &work{}
	w.more = sync.NewCond(&w.mu)
	return w
}

// add queues jobs.
func (w *work) add(jobs []group.Job) {
	if len(jobs) == 0 {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, jobs...)
	w.mu.Unlock()
	w.more.Broadcast()
}

// start begins to do jobs; input runs what has to run under the core's lock.
func (w *work) start(input func(func())) {
	for range workers {
		w.done.Go(func() {
			for {
				j, ok := w.next()
				if !ok {
					return
				}
				if j.Begin != nil {
					input(j.Begin)
				}
				j.Run(w.ended.Load)
				input(j.End)
			}
		})
	}
}

func (w *work) next() (j group.Job, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.ended.Load() {
		w.more.Wait()
	}
	if w.ended.Load() {
		return j, false
	}
	j = w.queue[0]
	w.queue = w.queue[1:]
	return j, true
}

// close ends the workers and waits for them. What they have not begun is not done.
func (w *work) close() {
	w.mu.Lock()
	w.ended.Store(true)
	w.mu.Unlock()
	w.more.Broadcast()
	w.done.Wait()
}
