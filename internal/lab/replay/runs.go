package replay

import (
	"container/heap"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/programs"
)

// programHeader is the headers of a request with the name of its program.
type programHeader string

// Get implements request.Headers.
func (h programHeader) Get(name string) string {
	if name == programs.Headers[0] {
		return string(h)
	}
	return ""
}

// runs is the state of a trace whose requests depend on each other.
type runs struct {
	open []int32   // by request: requests that must end before it arrives
	then [][]int32 // by request: requests that wait for it
	due  dueHeap
	held int // requests with open predecessors
}

// due is the arrival of a request whose predecessors have ended.
type due struct {
	at     time.Duration
	number int32
}

// followRuns prepares the arrivals of agent runs. The times of arrival then differ from run to run,
// so the case gets its own copy of the requests.
func (s *simulation) followRuns() {
	if s.Trace.Programs == 0 {
		return
	}
	own := *s.Trace
	own.Requests = slices.Clone(s.Trace.Requests)
	s.Trace = &own
	r := &runs{open: make([]int32, len(own.Requests)), then: make([][]int32, len(own.Requests))}
	for i := range own.Requests {
		q := &own.Requests[i]
		r.open[i] = int32(len(q.After))
		for _, before := range q.After {
			r.then[before] = append(r.then[before], int32(i))
		}
		if len(q.After) > 0 {
			q.At = never
			r.held++
		}
	}
	s.runs = r
}

// ended schedules the requests for which this was the last open predecessor.
func (s *simulation) ended(number int) {
	if s.runs == nil {
		return
	}
	for _, next := range s.runs.then[number] {
		if s.runs.open[next]--; s.runs.open[next] == 0 {
			q := &s.Trace.Requests[next]
			q.At = s.now + q.Pause
			heap.Push(&s.runs.due, due{q.At, next})
			s.runs.held--
		}
	}
}

// left returns the number of requests with open predecessors.
func (r *runs) left() int {
	if r == nil {
		return 0
	}
	return r.held
}

// arrivals is the order in which requests arrive.
type arrivals struct {
	s     *simulation
	at    int // next request with a fixed time
	count int // arrived
}

// next returns the time of the next arrival.
func (a *arrivals) next() time.Duration {
	requests, r := a.s.Trace.Requests, a.s.runs
	for r != nil && a.at < len(requests) && len(requests[a.at].After) > 0 {
		a.at++
	}
	fixed := never
	if a.at < len(requests) {
		fixed = requests[a.at].At
	}
	if r != nil && len(r.due) > 0 {
		return min(fixed, r.due[0].at)
	}
	return fixed
}

// take returns the number of the request that arrives at the time of next.
func (a *arrivals) take() int {
	a.count++
	if r := a.s.runs; r != nil && len(r.due) > 0 && r.due[0].at <= a.next() {
		return int(heap.Pop(&r.due).(due).number)
	}
	a.at++
	return a.at - 1
}

// programs summarises the times of runs that began after the warm-up and had no error.
func (s *simulation) programs() *Summary {
	if s.runs == nil {
		return nil
	}
	type span struct {
		from, to time.Duration
		failed   bool
	}
	spans := make([]span, s.Trace.Programs+1)
	for i := range spans {
		spans[i].from = never
	}
	for i := range s.outcomes {
		r, o := &s.Trace.Requests[i], &s.outcomes[i]
		p := &spans[r.Program]
		p.from, p.to, p.failed = min(p.from, r.At), max(p.to, o.End), p.failed || o.Error != ""
	}
	var took []float64
	for _, p := range spans[1:] {
		if p.from >= s.Warmup && p.from < never && !p.failed {
			took = append(took, (p.to - p.from).Seconds())
		}
	}
	out := summarise(took)
	return &out
}

// dueHeap orders by time, then by number.
type dueHeap []due

// Len implements heap.Interface.
func (h dueHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h dueHeap) Less(a, b int) bool {
	return h[a].at < h[b].at || h[a].at == h[b].at && h[a].number < h[b].number
}

// Swap implements heap.Interface.
func (h dueHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }

// Push implements heap.Interface.
func (h *dueHeap) Push(v any) { *h = append(*h, v.(due)) }

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
