package wire

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/monotime"
)

// ErrStarved ends a stream whose body did not arrive in time or whose memory was needed.
var ErrStarved = errors.New("extproc: the request body did not arrive in time, or its memory was needed")

const (
	// slowBody is the minimum speed of a body being received, in bytes per second.
	slowBody = 64 << 10
	// bodyWaitFactor is the factor for the time limit before any part of the body has arrived: the proxy
	// may be collecting the body itself.
	bodyWaitFactor = 10
	// shedEvery is the minimum time between two rounds of shedding: a garbage collection must show
	// the effect of the last one.
	shedEvery = 100 * time.Millisecond
	// usualWait is the usual upper bound for receiving a request body.
	usualWait = time.Second
	// checkEvery is the number of bytes received between two memory checks.
	checkEvery = 4 << 20
	// crowd is the number of new streams that have not run yet above which each further one waits
	// for its turn.
	crowd = 16
	// streamMemory is the memory of an idle stream: its goroutine's stack and gRPC's state.
	streamMemory = 16 << 10
	// othersPart: one part in this many of the streams' memory is for calls of other services.
	othersPart = 8
)

// errCrowded rejects a stream for lack of memory.
var errCrowded = status.Error(codes.ResourceExhausted, "extproc: too many streams are open for the memory")

// Guards tracks streams whose request is not placed yet. It ends streams that take too long, or the
// oldest when memory runs out. Only this can free that memory: a message being received belongs to
// gRPC, and its stream's goroutine waits for the message. Safe for concurrent use.
type Guards struct {
	Budget  *budget.Budget
	Timeout time.Duration // for a body being received
	Shed    func(streams int)

	turn   atomic.Uint64
	shards [16]guardShard
	others guardShard   // calls of other services: health checks and watches
	next   atomic.Int64 // Unix nanoseconds of the next possible shedding
	seen   atomic.Int64 // bytes received
	begun  atomic.Int64 // streams that have not run yet
	looked atomic.Bool  // a collection has run since memory was first found short; earlier figures may be outdated
}

type guardShard struct {
	mu          sync.Mutex
	first, last *Guard // by age
	n           int
}

// Guard is the state of one stream.
type Guard struct {
	guards     *Guards
	shard      *guardShard
	cancel     context.CancelCauseFunc
	timer      *time.Timer
	number     uint64    // in the order in which streams began
	began      time.Time // when the watch began
	held       bool      // part of the body was received
	prev, next *Guard
	waiting    bool // in the list; guarded by shard.mu
	running    bool // it has run; guarded by shard.mu
	ended      bool // its memory was released; guarded by shard.mu
}

type guardKey struct{}

// Tap reserves the memory of a new stream and gives it a context that guards can cancel.
//
// It runs on the goroutine that reads the connection. Without a pause, that goroutine could read
// thousands of immediately canceled streams before the first one runs, which would delay streams of
// other connections.
func (gs *Guards) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	share := gs.Budget.Share(budget.Streams)
	if share > 0 && gs.Budget.Used(budget.Streams) > share/4*3 {
		gs.shed(true)
	}
	if !gs.Budget.Take(budget.Streams, streamMemory) {
		return nil, errCrowded
	}
	if info.FullMethodName != extprocv3.ExternalProcessor_Process_FullMethodName {
		return gs.other(ctx, share), nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	number := gs.turn.Add(1)
	g := &Guard{guards: gs, shard: &gs.shards[number%uint64(len(gs.shards))], cancel: cancel, waiting: true, number: number}
	wait := bodyWaitFactor * gs.Timeout
	if end, ok := ctx.Deadline(); ok { // an expired stream may never run
		wait = min(wait, time.Until(end)+time.Second)
	}
	g.watch(wait)
	if gs.begun.Add(1) > crowd {
		runtime.Gosched()
	}
	return context.WithValue(ctx, guardKey{}, g), nil
}

// watch adds g to its list, and ends it if it waits too long.
func (g *Guard) watch(wait time.Duration) {
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	g.timer, g.began = time.AfterFunc(wait, g.starve), monotime.Now()
	g.push()
}

// other handles a call of another service in Tap. It has no time limit; the oldest half is ended if
// there are too many.
func (gs *Guards) other(ctx context.Context, share int64) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &Guard{guards: gs, shard: &gs.others, cancel: cancel, waiting: true, running: true}
	g.shard.mu.Lock()
	g.push()
	many := share > 0 && int64(g.shard.n) > share/othersPart/streamMemory
	g.shard.mu.Unlock()
	if many {
		g.shard.relieve()
	}
	context.AfterFunc(ctx, g.End)
	return ctx
}

// push appends g to its list. The shard is locked.
func (g *Guard) push() {
	s := g.shard
	if g.prev = s.last; g.prev != nil {
		g.prev.next = g
	} else {
		s.first = g
	}
	s.last = g
	s.n++
}

// Evict ends the stream because its memory is needed. Safe for concurrent use.
func (g *Guard) Evict() { g.cancel(ErrStarved) }

// starve ends a stream that waits too long. If it has not run by then, it never will.
func (g *Guard) starve() {
	g.cancel(ErrStarved)
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	ran := g.running
	if g.remove(); !ran {
		g.end()
	}
}

// Run marks the stream as running.
func (g *Guard) Run() {
	if g == nil {
		return
	}
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	g.run()
}

// run removes g from the streams that have not run. The shard is locked.
func (g *Guard) run() {
	if !g.running {
		g.running = true
		g.guards.begun.Add(-1)
	}
}

// GuardOf returns a stream's guard, or nil.
func GuardOf(ctx context.Context) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}

// ShortenTimeout sets the time limit for a body of size bytes once its first part was received.
func (g *Guard) ShortenTimeout(timeout time.Duration, size int) {
	if g == nil || g.held {
		return
	}
	g.held = true
	g.timer.Reset(timeout + time.Duration(size/slowBody)*time.Second)
}

// Settle ends the watch of a stream whose request was placed.
func (g *Guard) Settle() {
	if g == nil {
		return
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	g.remove()
}

// remove removes g from its list. The shard is locked.
func (g *Guard) remove() {
	g.run()
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

// End releases the resources of the stream's context.
func (g *Guard) End() {
	if g == nil {
		return
	}
	g.Settle()
	g.cancel(nil)
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	g.end()
}

// end releases the stream's memory, once. The shard is locked.
func (g *Guard) end() {
	if !g.ended {
		g.ended = true
		g.guards.Budget.Release(budget.Streams, streamMemory)
	}
}

// received counts received bytes and periodically checks memory.
func (gs *Guards) received(n int) {
	if total := gs.seen.Add(int64(n)); total/checkEvery != (total-int64(n))/checkEvery {
		gs.relieve()
	}
}

// relieve sheds streams if live memory is too high.
func (gs *Guards) relieve() {
	if !gs.Budget.UnderPressure() {
		gs.looked.Store(false)
		return
	}
	if gs.shed(gs.looked.Load()) {
		go func() { // so that UnderPressure sees the freed memory
			runtime.GC()
			gs.looked.Store(true)
		}()
	}
}

// shed ends the oldest half of the streams that have waited longer than usual for their bodies. If
// there are none and young is set, it does so for all waiting streams. It does nothing soon after
// the last time.
func (gs *Guards) shed(young bool) bool {
	now, next := monotime.Now().UnixNano(), gs.next.Load()
	if now < next || !gs.next.CompareAndSwap(next, now+int64(shedEvery)) {
		return false
	}
	ended := gs.endOldest(monotime.Now().Add(-usualWait))
	if ended == 0 && young {
		ended = gs.endOldest(monotime.Now())
	}
	if ended > 0 {
		gs.Shed(ended)
	}
	return true
}

// endOldest ends the older half of the streams that have waited since at or earlier.
func (gs *Guards) endOldest(at time.Time) (ended int) {
	total := 0
	for i := range gs.shards {
		s := &gs.shards[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		for g := s.first; g != nil && !g.began.After(at); g = g.next {
			total++
		}
	}
	for most := (total + 1) / 2; ended < most; ended++ {
		var oldest *Guard
		for i := range gs.shards {
			if g := gs.shards[i].first; g != nil && (oldest == nil || g.number < oldest.number) {
				oldest = g
			}
		}
		oldest.remove()
		oldest.cancel(ErrStarved)
	}
	return ended
}

func (s *guardShard) relieve() (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for most := (s.n + 1) / 2; ended < most; ended++ {
		g := s.first
		g.remove()
		g.cancel(ErrStarved)
	}
	return ended
}

// Pool is the buffer pool for gRPC's receiving.
func (gs *Guards) Pool() mem.BufferPool { return receivePool{&Buffers, gs} }

type receivePool struct {
	*Pool
	guards *Guards
}

// Get implements mem.BufferPool.
func (p receivePool) Get(n int) *[]byte {
	p.guards.received(n)
	return p.Pool.Get(n)
}
