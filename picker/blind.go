package picker

import (
	"container/heap"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"sync"
	"sync/atomic"
	"time"
)

// blindness deals with first tokens that nobody sees: answers that are not
// streamed, and proxies that do not show us response bodies. Such a request
// would count as waiting until it ends, so the predicted moment stands in.
type blindness struct {
	score atomic.Int64 // of the last requests, unseen minus seen, bounded
	next  atomic.Int64 // earliest deadline, Unix nanoseconds; 0: none

	mu    sync.Mutex
	queue deadlines
}

const (
	blindLimit = 32
	blindFrom  = 8
	maxWatched = 1 << 16
)

type deadline struct {
	at int64
	t  *endpoint.Ticket
}

// deadlines is a heap by time; its methods are those of heap.Interface.
type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push appends a deadline.
func (d *deadlines) Push(x any) { *d = append(*d, x.(deadline)) }

// Pop removes the last deadline.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = deadline{}
	*d = (*d)[:last]
	return x
}

// saw notes a first token that was seen when it came.
func (b *blindness) saw() { b.move(-1) }

// ended notes a complete streamed answer.
func (b *blindness) ended(seen bool) {
	if !seen {
		b.move(1)
	}
}

func (b *blindness) move(by int64) {
	b.score.Store(min(max(b.score.Load()+by, -blindLimit), blindLimit))
}

// watch lets the first token of t count as come at the deadline, unless it is
// streamed to a client and such first tokens are seen.
func (b *blindness) watch(t *endpoint.Ticket, streamed bool, at time.Time) {
	if streamed && b.score.Load() < blindFrom {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) >= maxWatched {
		return
	}
	heap.Push(&b.queue, deadline{at.UnixNano(), t})
	b.next.Store(b.queue[0].at)
}

// expire passes the deadlines that are over at now.
func (b *blindness) expire(now time.Time) {
	next := b.next.Load()
	if next == 0 || next > now.UnixNano() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) > 0 && b.queue[0].at <= now.UnixNano() {
		d := heap.Pop(&b.queue).(deadline)
		d.t.FirstToken(time.Unix(0, d.at))
	}
	b.next.Store(0)
	if len(b.queue) > 0 {
		b.next.Store(b.queue[0].at)
	}
}
