package endpoint

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// Unseen deals with first tokens that nobody sees: answers that are not
// streamed, and proxies that do not show us response bodies. Such a request
// would count as waiting until it ends, so the predicted moment stands in. It is
// safe for concurrent use.
type Unseen struct {
	score atomic.Int64 // of the last requests, unseen minus seen, bounded
	next  atomic.Int64 // earliest deadline, Unix nanoseconds; 0: none

	mu    sync.Mutex
	queue deadlines
}

const (
	unseenLimit = 32
	unseenFrom  = 8
	maxWatched  = 1 << 16
)

type deadline struct {
	at int64
	t  *Ticket
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

// Saw notes a first token that was seen when it came.
func (b *Unseen) Saw() { b.move(-1) }

// Ended notes a complete streamed answer, and whether its first token was seen.
func (b *Unseen) Ended(seen bool) {
	if !seen {
		b.move(1)
	}
}

func (b *Unseen) move(by int64) {
	b.score.Store(min(max(b.score.Load()+by, -unseenLimit), unseenLimit))
}

// Score returns how many more of the last first tokens were not seen than were, within
// bounds: below 0 they are seen.
func (b *Unseen) Score() int64 { return b.score.Load() }

// Watch lets the first token of t count as come at the deadline, unless it is
// streamed to a client and such first tokens are seen.
func (b *Unseen) Watch(t *Ticket, streamed bool, at time.Time) {
	if streamed && b.score.Load() < unseenFrom {
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

// Expire passes the deadlines that are over at now.
func (b *Unseen) Expire(now time.Time) {
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
