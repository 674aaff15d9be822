package endpoint

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// Unseen handles first tokens that are not observed: of answers that are not streamed, and behind
// proxies that send response bodies never or only on request. Without Unseen, a request would count
// as waiting until its end, so its predicted first-token time is used instead. It is safe for
// concurrent use.
type Unseen struct {
	asked, unasked visibility // of requested bodies, and of others

	next atomic.Int64 // earliest deadline, Unix nanoseconds; 0: none

	mu    sync.Mutex
	queue deadlines
}

const (
	unseenLimit = 32
	unseenFrom  = 8
	maxWatched  = 1 << 16
)

// visibility is the bounded number of unseen minus seen first tokens of a kind.
type visibility struct{ score atomic.Int64 }

type deadline struct {
	at int64
	t  *Ticket
}

// deadlines is a heap by time; it implements heap.Interface.
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

// of returns the visibility of requested or other bodies.
func (b *Unseen) of(asked bool) *visibility {
	if asked {
		return &b.asked
	}
	return &b.unasked
}

// ObserveFirstToken records an observed first token of a streamed answer. asked means that its body
// was requested.
func (b *Unseen) ObserveFirstToken(asked bool) { b.of(asked).move(-1) }

// Ended records the end of a complete streamed answer, and whether its first token was observed.
func (b *Unseen) Ended(asked, seen bool) {
	if !seen {
		b.of(asked).move(1)
	}
}

func (v *visibility) move(by int64) {
	v.score.Store(min(max(v.score.Load()+by, -unseenLimit), unseenLimit))
}

// Score returns the bounded number of unseen minus seen first tokens of such answers. Below 0,
// first tokens are observed. Bodies that were not requested count as unseen initially.
func (b *Unseen) Score(asked bool) int64 {
	if asked {
		return b.asked.score.Load()
	}
	return b.unasked.score.Load() + unseenFrom
}

// Watch counts the first token of t at the deadline, unless it is streamed and such first tokens
// are observed.
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

// Expire handles the deadlines that have passed.
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
