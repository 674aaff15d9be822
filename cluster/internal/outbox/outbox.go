package outbox

import (
	"sync"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Queue holds the items of one consumer. Push is safe for concurrent use.
type Queue[T any] struct {
	mu      sync.Mutex
	classes [2]fifo[T]
	limit   int
	open    bool
	dropped uint64
	ready   chan struct{}
}

type fifo[T any] struct {
	items []item[T]
	bytes int
}

type item[T any] struct {
	v    T
	size int
}

// New returns a closed queue for at most limit bytes of each class.
func New[T any](limit int) *Queue[T] {
	return &Queue[T]{limit: limit, ready: make(chan struct{}, 1)}
}

// Push queues v, or drops it when the queue is closed or full.
func (q *Queue[T]) Push(class group.Class, v T, size int) {
	q.mu.Lock()
	f := &q.classes[class]
	if !q.open || f.bytes+size > q.limit {
		q.dropped++
		q.mu.Unlock()
		return
	}
	f.items = append(f.items, item[T]{v, size})
	f.bytes += size
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Pop calls take for each waiting item, Live ones first, until take returns false. That last item
// is removed too. Pop reports whether there were any items.
func (q *Queue[T]) Pop(take func(T) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := false
	for i := range q.classes {
		f := &q.classes[i]
		for len(f.items) > 0 {
			it := f.items[0]
			f.items[0] = item[T]{}
			f.items = f.items[1:]
			f.bytes -= it.size
			taken = true
			if !take(it.v) {
				return true
			}
		}
		f.items = nil
	}
	return taken
}

// Ready receives a signal after a Push. The consumer then pops until the queue is empty.
func (q *Queue[T]) Ready() <-chan struct{} { return q.ready }

// SetOpen opens or closes the queue and discards its items: messages queued before a connection
// broke are stale afterwards.
func (q *Queue[T]) SetOpen(open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = open
	q.classes = [2]fifo[T]{}
}

// Stats returns the number and size of waiting items, and the number dropped so far.
func (q *Queue[T]) Stats() (items, bytes int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.classes {
		items += len(q.classes[i].items)
		bytes += q.classes[i].bytes
	}
	return items, bytes, q.dropped
}
