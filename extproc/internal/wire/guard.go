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

// ErrStarved is why a stream was ended whose body did not come in time, or whose
// memory was needed.
var ErrStarved = errors.New("extproc: the request's body did not come in time, or its memory was needed")

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
	// usualWait is how long the body of a request takes at most, as a rule.
	usualWait = time.Second
	// checkEvery is how many bytes are received between two looks at the memory.
	checkEvery = 4 << 20
	// crowd is how many streams may have begun without having run before each
	// further one waits for a turn of its own.
	crowd = 16
	// streamMemory is what a stream takes that holds nothing: its goroutine's stack and
	// gRPC's state.
	streamMemory = 16 << 10
	// othersPart is the part of the streams' memory, one in so many, that calls of other
	// services may take.
	othersPart = 8
)

// errCrowded refuses a stream for which there is no memory.
var errCrowded = status.Error(codes.ResourceExhausted, "extproc: too many streams are open for the memory")

// Guards knows the streams whose request is not placed yet, and ends those that
// take too long, or the oldest of them when memory runs out. Nothing else can: a
// message that is still arriving belongs to gRPC, and its stream's goroutine
// waits for it. Safe for concurrent use.
type Guards struct {
	Budget  *budget.Budget
	Timeout time.Duration // of a body that is held
	Shed    func(streams int)

	turn   atomic.Uint64
	shards [16]guardShard
	others guardShard   // calls of other services: health checks and watches
	next   atomic.Int64 // unix nanoseconds before which nothing is shed
	seen   atomic.Int64 // bytes received
	begun  atomic.Int64 // streams that have not run yet
	looked atomic.Bool  // memory was collected since it was first found short: what was alive then may be long gone
}

type guardShard struct {
	mu          sync.Mutex
	first, last *Guard // by age
	n           int
}

// Guard is what guards knows of one stream.
type Guard struct {
	guards     *Guards
	shard      *guardShard
	cancel     context.CancelCauseFunc
	timer      *time.Timer
	number     uint64    // of streams, in the order in which they began
	began      time.Time // when it was watched
	held       bool      // part of the body is held
	prev, next *Guard
	waiting    bool // it is in the list; guarded by shard.mu
	running    bool // it is not among those that have only begun; guarded by shard.mu
	ended      bool // its memory was given back; guarded by shard.mu
}

type guardKey struct{}

// Tap takes the memory of a stream that begins, and gives it a context which guards can
// end.
//
// It runs on the goroutine that reads the connection, which without a pause would read
// thousands of streams that are broken off at once before the first of them runs; those
// of other connections would wait behind them all.
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
	wait := patience * gs.Timeout
	if end, ok := ctx.Deadline(); ok { // a stream whose time is over may never run
		wait = min(wait, time.Until(end)+time.Second)
	}
	g.watch(wait)
	if gs.begun.Add(1) > crowd {
		runtime.Gosched()
	}
	return context.WithValue(ctx, guardKey{}, g), nil
}

// watch puts g into its list, and off it when it waits too long.
func (g *Guard) watch(wait time.Duration) {
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	g.timer, g.began = time.AfterFunc(wait, g.starve), monotime.Now()
	g.push()
}

// other is what Tap does with a call of another service: it may last as long as it
// likes, and the oldest half is ended when there are too many.
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

// push puts g at the end of its list. The shard is locked.
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

// Evict ends the stream: what it holds is needed. It may be called by any goroutine.
func (g *Guard) Evict() { g.cancel(ErrStarved) }

// starve ends a stream that waits too long. One that has not run by then never will.
func (g *Guard) starve() {
	g.cancel(ErrStarved)
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	ran := g.running
	if g.remove(); !ran {
		g.end()
	}
}

// Run says that the stream runs.
func (g *Guard) Run() {
	if g == nil {
		return
	}
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	g.run()
}

// run takes g from those that have only begun. The shard is locked.
func (g *Guard) run() {
	if !g.running {
		g.running = true
		g.guards.begun.Add(-1)
	}
}

// GuardOf returns the guard of a stream, nil when it has none.
func GuardOf(ctx context.Context) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}

// ShortenTimeout shortens the wait once part of a body is held, of which size bytes are
// expected.
func (g *Guard) ShortenTimeout(timeout time.Duration, size int) {
	if g == nil || g.held {
		return
	}
	g.held = true
	g.timer.Reset(timeout + time.Duration(size/slowBody)*time.Second)
}

// Settle ends the watch over a stream: its request is placed.
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

// remove takes g out of its list. The shard is locked.
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

// End frees what the stream's context holds.
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

// end gives the stream's memory back, once. The shard is locked.
func (g *Guard) end() {
	if !g.ended {
		g.ended = true
		g.guards.Budget.Release(budget.Streams, streamMemory)
	}
}

// received counts bytes that came from the network and looks at the memory from
// time to time.
func (gs *Guards) received(n int) {
	if total := gs.seen.Add(int64(n)); total/checkEvery != (total-int64(n))/checkEvery {
		gs.relieve()
	}
}

// relieve sheds when live memory is too high.
func (gs *Guards) relieve() {
	if !gs.Budget.UnderPressure() {
		gs.looked.Store(false)
		return
	}
	if gs.shed(gs.looked.Load()) {
		go func() { // so that Pressed sees what became free
			runtime.GC()
			gs.looked.Store(true)
		}()
	}
}

// shed ends the oldest half of the streams that wait for their bodies for longer than most
// requests take, and where there are none of these and young says so, of all that wait; unless
// that was done a moment ago.
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

// endOldest ends the older half of the streams that began to wait at a time or before.
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

// Pool is the memory into which gRPC receives.
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
