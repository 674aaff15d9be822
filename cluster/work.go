package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// work runs a core's jobs, with one goroutine per lane.
type work struct {
	mu    sync.Mutex
	more  *sync.Cond
	lanes [group.NumLanes][]group.Job
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
	for _, j := range jobs {
		w.lanes[j.Lane] = append(w.lanes[j.Lane], j)
	}
	w.mu.Unlock()
	w.more.Broadcast()
}

// start starts the goroutines. input runs a function under the core's lock.
func (w *work) start(input func(func())) {
	for lane := range w.lanes {
		w.done.Go(func() {
			for {
				j, ok := w.next(lane)
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

func (w *work) next(lane int) (j group.Job, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.lanes[lane]
	for len(*q) == 0 && !w.ended.Load() {
		w.more.Wait()
	}
	if w.ended.Load() {
		return j, false
	}
	j = (*q)[0]
	(*q)[0] = group.Job{} // release its pages
	*q = (*q)[1:]
	return j, true
}

// close stops the work and waits. Queued jobs are not run.
func (w *work) close() {
	w.mu.Lock()
	w.ended.Store(true)
	w.mu.Unlock()
	w.more.Broadcast()
	w.done.Wait()
}
