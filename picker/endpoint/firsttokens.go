package endpoint

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// Unseen deals with first tokens that nobody sees: answers that are not
// streamed, and proxies that do not show us response bodies, or show those alone that
// were asked for. Such a request would count as waiting until it ends, so the predicted
// moment stands in. It is safe for concurrent use.
type Unseen struct {
	asked, unasked visibility // of bodies that were asked for, and of others

	next atomic.Int64 // earliest deadline, Unix nanoseconds; 0: none

	mu    sync.Mutex
	queue deadlines
}

const (
	unseenLimit = 32
	unseenFrom  = 8
	maxWatched  = 1 << 16
)

// visibility is of the last requests of a kind: unseen minus seen, bounded.
type visibility struct{ score atomic.Int64 }

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

// of returns what is known of requests whose bodies were asked for, or not.
func (b *Unseen) of(asked bool) *visibility {
	if asked {
		return &b.asked
	}
	return &b.unasked
}

// ObserveFirstToken notes a first token that was seen when it came, of a streamed answer whose body was
// asked for or not.
func (b *Unseen) ObserveFirstToken(asked bool) { b.of(asked).move(-1) }

// Ended notes a complete streamed answer, and whether its first token was seen.
func (b *Unseen) Ended(asked, seen bool) {
	if !seen {
		b.of(asked).move(1)
	}
}

func (v *visibility) move(by int64) {
	v.score.Store(min(max(v.score.Load()+by, -unseenLimit), unseenLimit))
}

// Score returns how many more of the last first tokens of such answers were not seen than
// were, within bounds: below 0 they are seen. Until they are, those that nobody asked for
// count as unseen.
func (b *Unseen) Score(asked bool) int64 {
	if asked {
		return b.asked.score.Load()
	}
	return b.unasked.score.Load() + unseenFrom
}

// Watch lets the first token of t count as come at the deadline, unless it is
// streamed to a client and such first tokens are seen.
func (b *Unseen) Watch(t *Ticket, streamed, asked bool, at time.Time) {
	if streamed && b.Score(asked) < unseenFrom {
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
