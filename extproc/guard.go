package extproc

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/tap"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// errStarved is why a stream was ended whose body did not come in time, or whose
// memory was needed.
var errStarved = errors.New("extproc: the request's body did not come in time, or its memory was needed")

const (
	// slowBody is the least speed at which a body that is held must come, in bytes
	// a second.
	slowBody = 64 << 10
	// patience is how many times longer than for a body that is held the wait may
	// be while nothing is: the proxy may be collecting the body itself.
	patience = 10
	// shedEvery is the least time between two sheddings: a garbage collection must
	// show what the last one gave.
	shedEvery = 100 * time.Millisecond
	// checkEvery is how many bytes are received between two looks at the memory.
	checkEvery = 4 << 20
)

// guards knows the streams whose request is not placed yet, and ends those that
// take too long, or the oldest half of them when memory runs out. Nothing else can: a
// message that is still arriving belongs to gRPC, and its stream's goroutine
// waits for it. Safe for concurrent use.
type guards struct {
	budget  *budget.Budget
	timeout time.Duration // of a body that is held
	shed    func(streams int)

	turn   atomic.Uint32
	shards [16]guardShard
	next   atomic.Int64 // unix nanoseconds before which nothing is shed
	seen   atomic.Int64 // bytes received
}

type guardShard struct {
	mu          sync.Mutex
	first, last *guard // by age
	n           int
}

// guard is what guards knows of one stream.
type guard struct {
	shard      *guardShard
	cancel     context.CancelCauseFunc
	timer      *time.Timer
	held       bool // part of the body is held
	prev, next *guard
	waiting    bool // it is in the list; guarded by shard.mu
}

type guardKey struct{}

// tap gives a stream that begins a context which guards can end.
func (gs *guards) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &guard{shard: &gs.shards[gs.turn.Add(1)%uint32(len(gs.shards))], cancel: cancel, waiting: true}
	g.timer = time.AfterFunc(patience*gs.timeout, func() { cancel(errStarved) })
	s := g.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.prev = s.last; g.prev != nil {
		g.prev.next = g
	} else {
		s.first = g
	}
	s.last = g
	s.n++
	return context.WithValue(ctx, guardKey{}, g), nil
}

// guardOf returns the guard of a stream, nil when it has none.
func guardOf(ctx context.Context) *guard {
	g, _ := ctx.Value(guardKey{}).(*guard)
	return g
}

// hold shortens the wait once part of a body is held, of which size bytes are
// expected.
func (g *guard) hold(timeout time.Duration, size int) {
	if g == nil || g.held {
		return
	}
	g.held = true
	g.timer.Reset(timeout + time.Duration(size/slowBody)*time.Second)
}

// settle ends the watch over a stream: its request is placed.
func (g *guard) settle() {
	if g == nil {
		return
	}
	g.timer.Stop()
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	g.remove()
}

// remove takes g out of its list. The shard is locked.
func (g *guard) remove() {
	if !g.waiting {
		return
	}
	g.waiting = false
	s := g.shard
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		s.first = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		s.last = g.prev
	}
	g.prev, g.next = nil, nil
	s.n--
}

// end frees what the stream's context holds.
func (g *guard) end() {
	if g != nil {
		g.settle()
		g.cancel(nil)
	}
}

// received counts bytes that came from the network and looks at the memory from
// time to time.
func (gs *guards) received(n int) {
	if total := gs.seen.Add(int64(n)); total/checkEvery != (total-int64(n))/checkEvery {
		gs.relieve()
	}
}

// relieve ends the oldest half of the streams that wait for their bodies when
// live memory is too high.
func (gs *guards) relieve() {
	if !gs.budget.Pressed() {
		return
	}
	now, next := time.Now().UnixNano(), gs.next.Load()
	if now < next || !gs.next.CompareAndSwap(next, now+int64(shedEvery)) {
		return
	}
	ended := 0
	for i := range gs.shards {
		ended += gs.shards[i].relieve()
	}
	gs.shed(ended)
	go runtime.GC() // so that Pressed sees what became free
}

func (s *guardShard) relieve() (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for most := (s.n + 1) / 2; ended < most; ended++ {
		g := s.first
		g.remove()
		g.cancel(errStarved)
	}
	return ended
}

// receivePool is the memory into which gRPC receives.
type receivePool struct {
	*dirtyPool
	guards *guards
}

// Get implements mem.BufferPool.
func (p receivePool) Get(n int) *[]byte {
	p.guards.received(n)
	return p.dirtyPool.Get(n)
}
