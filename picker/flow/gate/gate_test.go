package gate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// pool returns a pool of n endpoints.
func pool(n int) *endpoint.Pool {
	p := endpoint.NewPool(endpoint.PoolOptions{})
	specs := make([]endpoint.Spec, n)
	for i := range specs {
		specs[i] = endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte((i + 1) >> 8), byte(i + 1)}), 8000), Models: []string{"m"}}
	}
	p.Set(specs)
	return p
}

// open returns a running gate for n endpoints that each run that many requests at once.
func open(t testing.TB, p *endpoint.Pool, each int64, o rules.Options) *Gate {
	t.Helper()
	return openAt(t, p, each, o, nil)
}

func openAt(t testing.TB, p *endpoint.Pool, each int64, o rules.Options, clock func() time.Time) *Gate {
	t.Helper()
	g, err := New(Options{Pool: p, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	g.Configure(&Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: each}, Queue: func() rules.Options { return o }})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); g.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return g
}

func asks(id string) *request.Request {
	return &request.Request{Target: "m", Model: "m", FairnessID: id}
}

// waiting waits until n requests wait.
func waiting(t *testing.T, g *Gate, n int) {
	t.Helper()
	testkit.Eventually(t, func() string {
		got := 0
		for _, s := range g.Status() {
			got += s.Waiting
		}
		if got != n {
			return fmt.Sprintf("%d requests wait, not %d", got, n)
		}
		return ""
	})
}

// pass returns when r has a permit or is rejected.
func pass(ctx context.Context, g *Gate, r *request.Request) (picker.Permit, error) {
	p, entry, err := g.Enter(ctx, r)
	if entry != nil {
		_, err = entry.Wait(ctx, 0)
	}
	return p, err
}

func TestPermitsAreReassigned(t *testing.T) {
	g := open(t, pool(2), 3, rules.Options{})
	ctx := context.Background()
	var held []picker.Permit
	for range 6 {
		p, err := pass(ctx, g, asks("a"))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, p)
	}
	got := make(chan picker.Permit)
	go func() {
		p, err := pass(ctx, g, asks("a"))
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	waiting(t, g, 1)
	g.Leave(held[0], 1)
	g.Leave(held[0], 1) // the second call has no effect
	if p := <-got; p == (picker.Permit{}) {
		t.Error("dispatched request holds no permit")
	}
	if s := g.Status()[0]; s.InFlight != 6 || s.Permits != 6 || s.Waiting != 0 {
		t.Errorf("status %+v", s)
	}
}

// Requests wait for room at both stages of a pool with prefill endpoints, and are dispatched when
// both have it.
func TestStages(t *testing.T) {
	p := endpoint.NewPool(endpoint.PoolOptions{})
	specs := make([]endpoint.Spec, 3)
	for i := range specs {
		specs[i] = endpoint.Spec{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte((i + 1) >> 8), byte(i + 1)}), 8000), Models: []string{"m"},
			Labels: map[string]string{endpoint.LabelRole: "decode"},
		}
	}
	specs[0].Labels[endpoint.LabelRole] = "prefill"
	p.Set(specs)
	var seconds atomic.Int64                                                                             // the clock is frozen while a request travels to its endpoint
	g := openAt(t, p, 2, rules.Options{}, func() time.Time { return time.Unix(1000+seconds.Load(), 0) }) // 2 permits for prompts, 4 for responses
	prefill := p.Snapshot().Endpoints[0]
	went := make(chan picker.Permit, 8)
	for range 6 {
		go func() {
			place, err := pass(context.Background(), g, asks("a"))
			if err != nil {
				t.Error(err)
			}
			went <- place
		}()
	}
	var prompts [6]endpoint.Ticket
	var held []picker.Permit
	next := func(n int) { // n requests go to the prefill endpoint before the clock advances
		testkit.Await(t, "requests go", func() bool { return len(went) >= n })
		for range n {
			held = append(held, <-went)
			p.LoadTracker().Open(&prompts[len(held)-1], prefill, endpoint.Work{Input: 100, New: 100}, time.Now())
		}
		seconds.Add(1)
	}
	next(2)
	waiting(t, g, 4) // permits for responses are free
	if len(went) > 0 {
		t.Error("more prompts dispatched than their endpoint has permits")
	}
	if s := g.Status()[0]; s.Permits != 4 || s.InFlight != 2 {
		t.Errorf("%d of %d permits are held, want 2 of 4", s.InFlight, s.Permits)
	}
	prompts[0].Release()
	next(1)
	prompts[1].Release()
	next(1)
	prompts[2].Release()
	prompts[3].Release()
	waiting(t, g, 2) // prompts have room, responses do not
	g.Leave(held[0], 1)
	next(1)
	waiting(t, g, 1)
	g.Leave(held[1], 1)
	next(1)
	for _, h := range held[2:] {
		g.Leave(h, 1)
	}
}

func TestEndsOfWaits(t *testing.T) {
	p := pool(1)
	g := open(t, p, 1, rules.Options{MaxRequests: 1, TTL: time.Minute})
	place, err := pass(context.Background(), g, asks("a"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { _, err := pass(ctx, g, asks("a")); ended <- err }()
	waiting(t, g, 1)
	if _, err := pass(context.Background(), g, asks("a")); request.ReasonOf(err) != request.ReasonSaturated {
		t.Errorf("over the limit: %v", err)
	}
	leave()
	if err := <-ended; request.ReasonOf(err) != request.ReasonCancelled {
		t.Errorf("canceled client: %v", err)
	}
	waiting(t, g, 0)
	for _, limit := range []func(*request.Request){
		func(r *request.Request) { r.QueueTTL = time.Millisecond },
		func(r *request.Request) { r.MaxWait = time.Millisecond },
	} {
		r := asks("a")
		limit(r)
		if _, err := pass(context.Background(), g, r); request.ReasonOf(err) != request.ReasonTTLExpired {
			t.Errorf("expired wait: %v", err)
		}
	}
	g.Leave(place, -1)
	if s := g.Status()[0]; s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("status %+v", s)
	}
}

// TestEmptyPool: requests wait for the first endpoint, including one whose model is known from the
// start. They then continue according to the endpoints found.
func TestEmptyPool(t *testing.T) {
	for _, models := range [][]string{nil, {"m"}, {"another"}} {
		p := pool(0)
		g := open(t, p, 1, rules.Options{EmptyTTL: time.Minute, TTL: time.Minute})
		ended := make(chan error)
		go func() { _, err := pass(context.Background(), g, asks("a")); ended <- err }()
		waiting(t, g, 1)
		p.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Models: models}})
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("first endpoint with models %v: %v", models, err)
			}
		case <-time.After(testkit.HangTimeout):
			t.Fatalf("first endpoint with models %v joined, but the request still waits", models)
		}
		p.Set(nil)
		r := asks("a")
		r.QueueTTL = time.Millisecond
		if _, err := pass(context.Background(), g, r); request.ReasonOf(err) != request.ReasonNoEndpoints {
			t.Errorf("without an endpoint: %v", err)
		}
	}
}

// Model names that no endpoint lists wait in the existing pool, since no other pool could free
// permits.
func TestUnlistedNames(t *testing.T) {
	g := open(t, pool(1), 1, rules.Options{})
	stranger := asks("a")
	stranger.Target, stranger.Model = "unheard-of", "unheard-of"
	place, err := pass(t.Context(), g, stranger)
	if err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); len(s) != 1 || s[0].Model != "m" || s[0].InFlight != 1 {
		t.Errorf("%+v", s)
	}
	g.Leave(place, -1)
}

// TestReconfigure: waiting requests are dispatched when the rules change or are removed.
func TestReconfigure(t *testing.T) {
	g := open(t, pool(1), 1, rules.Options{})
	old, _ := pass(context.Background(), g, asks("a"))
	ended := make(chan error)
	go func() { _, err := pass(context.Background(), g, asks("a")); ended <- err }()
	waiting(t, g, 1)
	g.Configure(nil)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if p, err := pass(context.Background(), g, asks("a")); err != nil || p != (picker.Permit{}) {
		t.Errorf("disabled gate returned %v, %v", p, err)
	}
	g.Configure(&Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: 1}, Queue: func() rules.Options { return rules.Options{} }})
	held, err := pass(context.Background(), g, asks("a"))
	if err != nil {
		t.Fatal(err)
	}
	g.Leave(old, -1) // of a removed queue: releases no current permit
	if s := g.Status()[0]; s.InFlight != 1 {
		t.Errorf("%d permits in flight, want 1", s.InFlight)
	}
	g.Leave(held, -1)
}

// TestCrowd: many clients that arrive, leave while waiting and end never hold more permits than
// exist, and none is lost.
func TestCrowd(t *testing.T) {
	g := open(t, pool(2), 4, rules.Options{Default: rules.Band{Fairness: rules.Places}})
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			if i%3 == 0 {
				time.AfterFunc(time.Duration(i%50)*time.Millisecond/10, leave)
			}
			p, err := pass(ctx, g, asks(fmt.Sprint(i%7)))
			if err != nil {
				var e *request.Error
				if !errors.As(err, &e) || e.Reason != request.ReasonCancelled {
					t.Error(err)
				}
				return
			}
			for n := held.Add(1); n > most.Load(); n = held.Load() {
				most.Store(n)
			}
			held.Add(-1)
			g.Leave(p, -1)
		})
	}
	wg.Wait()
	if most.Load() > 8 {
		t.Errorf("%d permits held, want at most 8", most.Load())
	}
	if s := g.Status()[0]; s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("status %+v", s)
	}
}

// TestLearnedLimit: the requests that an engine runs while others wait are its limit. An engine at
// its limit is tested with more.
func TestLearnedLimit(t *testing.T) {
	var l limit
	now := time.Unix(1000, 0)
	for _, step := range []struct {
		running, waiting int
		inFlight         int64
		age              time.Duration
		after            time.Duration
		want             int64
	}{
		{running: 3, want: firstGuess},
		{running: 40, waiting: 9, inFlight: 49, want: 40},
		{running: 40, inFlight: 40, after: 5 * time.Second, want: 40}, // the queue is not full
		{running: 40, inFlight: 45, after: 5 * time.Second, want: 42},
		{running: 40, inFlight: 47, want: 42}, // too soon
		{running: 30, waiting: 1, inFlight: 47, want: 30},
		{running: 9, waiting: 1, inFlight: 9, age: time.Minute, want: 30}, // stale gauges are ignored
	} {
		now = now.Add(step.after)
		l.learn(endpoint.Reading{Sampled: true, Age: step.age, Values: gauge.Values{Running: step.running, Waiting: step.waiting}}, step.inFlight, 5, now)
		if l.places != step.want {
			t.Errorf("%+v: learned %d permits", step, l.places)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		s      rules.Sizing
		tokens int
		want   int64
	}{
		{rules.Sizing{Unit: rules.Learned}, 5000, 1},
		{rules.Sizing{Unit: rules.Requests, Requests: 10}, 5000, 1},
		{rules.Sizing{Unit: rules.Tokens, Tokens: 10000}, 5000, 5000},
		{rules.Sizing{Unit: rules.Tokens, Tokens: 10000}, 0, 1},
		{rules.Sizing{Unit: rules.Larger, Requests: 100, Tokens: 100000}, 5000, 50000},
		{rules.Sizing{Unit: rules.Larger, Requests: 100, Tokens: 100000}, 10, 10000},
	} {
		if got := tc.s.Permits(tc.tokens); got != tc.want {
			t.Errorf("%+v, %d tokens: %d permits, want %d", tc.s, tc.tokens, got, tc.want)
		}
	}
}

func TestNoWaitAllocates(t *testing.T) {
	g := open(t, pool(2), 4, rules.Options{})
	ctx, r := context.Background(), asks("a")
	if n := testing.AllocsPerRun(200, func() {
		p, _ := pass(ctx, g, r)
		g.Leave(p, -1)
	}); n != 0 {
		t.Errorf("%g allocations for a request that does not wait, want 0", n)
	}
}

// BenchmarkNoWait measures a request's cost when there is room.
func BenchmarkNoWait(b *testing.B) {
	g := open(b, pool(8), 64, rules.Options{})
	ctx, r := context.Background(), asks("a")
	b.ReportAllocs()
	for b.Loop() {
		p, _ := pass(ctx, g, r)
		g.Leave(p, -1)
	}
}

// BenchmarkHandOn passes permits between requests while others wait. of-baseline is its rate
// relative to a queue without priorities and flows, measured in the same run, both by CPU time.
func BenchmarkHandOn(b *testing.B) {
	for _, n := range []int{10, 5000, 50000} {
		took := 0. // CPU nanoseconds of the last and longest run
		b.Run(fmt.Sprintf("waiters=%d", n), func(b *testing.B) {
			g := open(b, pool(1), 1, rules.Options{Default: rules.Band{Fairness: rules.Places}})
			took = crowd(b, n, func() func() {
				p, _ := pass(context.Background(), g, asks("a"))
				return func() { g.Leave(p, -1) }
			})
		})
		b.Run(fmt.Sprintf("baseline/waiters=%d", n), func(b *testing.B) {
			var l line
			least := crowd(b, n, func() func() {
				l.take()
				return l.giveBack
			})
			if took > 0 {
				b.ReportMetric(least/took, "of-baseline")
			}
		})
	}
}

// line is a minimal queue: a mutex, and a channel per waiting goroutine.
type line struct {
	mu    sync.Mutex
	taken bool
	queue []chan struct{}
}

var channels = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

func (l *line) take() {
	l.mu.Lock()
	if !l.taken {
		l.taken = true
		l.mu.Unlock()
		return
	}
	ch := channels.Get().(chan struct{})
	l.queue = append(l.queue, ch)
	l.mu.Unlock()
	<-ch
	channels.Put(ch)
}

func (l *line) giveBack() {
	l.mu.Lock()
	if len(l.queue) == 0 {
		l.taken = false
	} else {
		l.queue[0] <- struct{}{}
		l.queue = l.queue[1:]
	}
	l.mu.Unlock()
}

// crowd runs n goroutines that take and release a permit, b.N times in total, once all have
// started. It returns the CPU time of one cycle.
func crowd(b *testing.B, n int, take func() func()) (cpu float64) {
	var left atomic.Int64
	var started, wg sync.WaitGroup
	left.Store(int64(b.N))
	b.ReportAllocs()
	hold := take()
	for range n {
		started.Add(1)
		wg.Go(func() {
			started.Done()
			for {
				release := take()
				if left.Add(-1) < 0 {
					release()
					return
				}
				release()
			}
		})
	}
	started.Wait()
	runtime.GC() // collect garbage from starting the goroutines
	begun := processorTime(b)
	b.ResetTimer()
	hold()
	for left.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	cpu = float64(processorTime(b)-begun) / float64(b.N)
	b.ReportMetric(cpu, "cpu-ns/op")
	wg.Wait()
	return cpu
}

// processorTime returns this process's CPU time.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestPlacesOfEndpoints: endpoints have a permit count only while the configuration sets one.
func TestPlacesOfEndpoints(t *testing.T) {
	p := pool(2)
	g := open(t, p, 3, rules.Options{})
	place, err := pass(context.Background(), g, asks("a"))
	if err != nil {
		t.Fatal(err)
	}
	g.Leave(place, 1)
	places := func(want int64) {
		t.Helper()
		for _, ep := range p.Snapshot().Endpoints {
			if got := ep.Permits(); got != want {
				t.Errorf("permits of %s: %d, want %d", ep.Address, got, want)
			}
		}
	}
	places(3)
	g.Configure(nil)
	places(0)
}

// TestEvictionIsReported: an evicted request's callback runs once, and never after it has left.
func TestEvictionIsReported(t *testing.T) {
	g := open(t, pool(1), 1, rules.Options{Evict: true, MaxRequests: 1})
	told := make(chan string, 10)
	ask := func(name string) (picker.Permit, error) {
		r := asks(name)
		r.Priority, r.Evict = -1, func() { told <- name }
		return pass(context.Background(), g, r)
	}
	batch := func(name string) picker.Permit {
		t.Helper()
		place, err := ask(name)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	g.Leave(batch("left"), 1)
	second := batch("second")
	displaced := make(chan error)
	go func() { _, err := ask("waits"); displaced <- err }()
	waiting(t, g, 1)
	if _, err := ask("refused"); request.ReasonOf(err) != request.ReasonSaturated {
		t.Errorf("over the limit: %v", err)
	}
	got := make(chan picker.Permit)
	go func() {
		place, err := pass(context.Background(), g, asks("usual"))
		if err != nil {
			t.Error(err)
		}
		got <- place
	}()
	if name := <-told; name != "second" {
		t.Errorf("callback of %s ran", name)
	}
	if err := <-displaced; request.ReasonOf(err) != request.ReasonSaturated {
		t.Errorf("waiting request of lower priority: %v", err)
	}
	g.Leave(second, 1)
	place := <-got
	g.Leave(second, 1) // the second call has no effect, also for evictable requests
	g.Leave(place, 1)
	if len(told) != 0 {
		t.Errorf("another callback ran: %s", <-told)
	}
}
