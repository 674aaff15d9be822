package admission

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/programs"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// nextGate counts the permits that it has given and got back.
type nextGate struct {
	mu     sync.Mutex
	out    int
	refuse error
	queues bool // requests wait in it once
}

func (n *nextGate) Enter(context.Context, *request.Request) (picker.Permit, picker.QueueEntry, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return picker.Permit{}, nil, n.refuse
	}
	n.out++
	if n.queues {
		return picker.Permit{Queue: 7, Handle: 9}, n, nil
	}
	return picker.Permit{Queue: 7, Handle: 9}, nil, nil
}

func (n *nextGate) Leave(p picker.Permit, _ float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.Handle == 9 {
		n.out--
	}
}

func (n *nextGate) Expected() float64                                 { return 3 }
func (n *nextGate) Wait(context.Context, time.Duration) (bool, error) { return false, nil }
func (n *nextGate) Withdraw()                                         { n.Leave(picker.Permit{Handle: 9}, -1) }

// gateOf returns a gate of an engine with memory for that many tokens.
func gateOf(t testing.TB, next picker.Gate, tokens int) *Gate {
	t.Helper()
	p := endpoint.NewPool(endpoint.PoolOptions{})
	p.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Models: []string{"m"}}})
	p.Snapshot().Endpoints[0].SetGauges(endpoint.Gauges{At: time.Now(), BlockSize: 1, Blocks: tokens})
	g, err := New(Options{Pool: p, Next: next, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	g.Configure(&programs.Config{Headers: programs.Headers, Parents: programs.Parents, Share: 1, MaxWait: 10 * time.Minute})
	return g
}

func ask(session string, tokens int) *request.Request {
	return &request.Request{Target: "m", Model: "m", Kind: request.KindChat, Session: session, InputTokens: tokens}
}

// enter asks for a permit, and waits for it if it must.
func enter(ctx context.Context, g *Gate, r *request.Request) (picker.Permit, error) {
	p, e, err := g.Enter(ctx, r)
	for waits := e != nil; waits && err == nil; {
		waits, err = e.Wait(ctx, time.Second)
	}
	return p, err
}

// TestKept checks that a new program waits for the memory of another, and that every end returns its
// permit of the next gate exactly once.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &nextGate{queues: true}
		g := gateOf(t, next, 1000)
		ctx := context.Background()
		first, err := enter(ctx, g, ask("a", 900))
		if err != nil {
			t.Fatal(err)
		}
		g.Place(first, 900, 900)
		began, done := time.Now(), make(chan time.Duration)
		go func() {
			p, err := enter(ctx, g, ask("b", 900))
			if err != nil {
				t.Error(err)
			}
			g.Leave(p, 1)
			done <- time.Since(began)
		}()
		gone, cancel := context.WithCancel(ctx)
		left := make(chan error)
		go func() {
			_, err := enter(gone, g, ask("c", 900))
			left <- err
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if st := g.Status()[0]; st.Kept != 2 || st.Limit != 1000 {
			t.Fatalf("%+v, want 2 kept requests", st)
		}
		cancel()
		if err := <-left; request.ReasonOf(err) != request.ReasonCancelled {
			t.Errorf("error %v after the client has left", err)
		}
		g.Leave(first, 1)
		g.Leave(first, 1)
		if took := <-done; took < 30*time.Second || took > 40*time.Second {
			t.Errorf("kept for %v, want until the memory of the first program is free", took)
		}
		if next.out != 0 || len(g.flights) != 0 || g.Status()[0].Kept != 0 {
			t.Errorf("%d permits, %d requests, %+v remain", next.out, len(g.flights), g.Status())
		}
	})
}

// TestNextRefuses checks that a refused or withdrawn request leaves nothing behind.
func TestNextRefuses(t *testing.T) {
	next := &nextGate{refuse: errors.New("full")}
	g := gateOf(t, next, 1000)
	if _, err := enter(context.Background(), g, ask("a", 500)); err == nil || len(g.flights) != 0 {
		t.Errorf("error %v, %d requests", err, len(g.flights))
	}
	next.refuse, next.queues = nil, true
	_, e, _ := g.Enter(context.Background(), ask("a", 500))
	if e == nil || e.Expected() != 3 {
		t.Fatal("the request does not wait in the next gate")
	}
	e.Withdraw()
	if next.out != 0 || len(g.flights) != 0 {
		t.Errorf("%d permits, %d requests remain", next.out, len(g.flights))
	}
}

// TestPasses checks that requests without a program, without a configuration, or at engines of unknown
// memory are not kept, and that the first two allocate nothing.
func TestPasses(t *testing.T) {
	next := &nextGate{}
	g := gateOf(t, next, 1000)
	bare := ask("", 5000)
	if n := testing.AllocsPerRun(100, func() { p, _, _ := g.Enter(context.Background(), bare); g.Leave(p, 1) }); n != 0 {
		t.Errorf("%v allocations without a program", n)
	}
	g.Configure(nil)
	if n := testing.AllocsPerRun(100, func() { p, _, _ := g.Enter(context.Background(), ask("a", 5000)); g.Leave(p, 1) }); n > 1 {
		t.Errorf("%v allocations without a configuration", n)
	}
	g = gateOf(t, next, 0)
	for range 3 {
		if _, e, err := g.Enter(context.Background(), ask("a", 5000)); e != nil || err != nil {
			t.Errorf("a request is kept although the engine's memory is unknown: %v", err)
		}
	}
}

// TestConfigureNil checks that kept requests pass once the configuration has no programs.
func TestConfigureNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateOf(t, &nextGate{}, 1000)
		p, _ := enter(context.Background(), g, ask("a", 900))
		g.Place(p, 900, 900)
		done := make(chan error)
		go func() { _, err := enter(context.Background(), g, ask("b", 900)); done <- err }()
		time.Sleep(time.Second)
		synctest.Wait()
		g.Configure(nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkNoProgram(b *testing.B) {
	g := gateOf(b, &nextGate{}, 1000)
	r, ctx := ask("", 5000), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, _, _ := g.Enter(ctx, r)
		g.Leave(p, 1)
	}
}
