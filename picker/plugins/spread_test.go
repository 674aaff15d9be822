package plugins

import (
	"container/heap"
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// moment is something that will happen to a request.
type moment struct {
	at time.Time
	do func(time.Time)
}

type moments []moment

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, k int) bool { return m[i].at.Before(m[k].at) }
func (m moments) Swap(i, k int)      { m[i], m[k] = m[k], m[i] }
func (m *moments) Push(x any)        { *m = append(*m, x.(moment)) }
func (m *moments) Pop() any {
	old := *m
	x := old[len(old)-1]
	*m = old[:len(old)-1]
	return x
}

// noisy is a pool of idle engines whose times vary, behind the default policy.
type noisy struct {
	fleet *fleet
	pool  *endpoint.Pool
	s     *picker.Scheduler
	now   time.Time
	queue moments
	rng   *rand.Rand
	speed func(engine int) float64
	count []int
}

func newNoisy(t *testing.T, engines int, speed func(int) float64) *noisy {
	t.Helper()
	f := newFleet(make([]one, engines)...)
	n := &noisy{fleet: f, pool: f.pool, now: t0, rng: rand.New(rand.NewPCG(1, 2)), speed: speed, count: make([]int, engines)}
	p := profile(t, "default")
	var err error
	n.s, err = picker.New(picker.Options{
		Pool: f.pool, Rules: &picker.Rules{Handler: Single(p)}, Matcher: f, Seed: 1, SampleBodies: 1,
		Now: func() time.Time { return n.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// play sends requests of 500 tokens at a rate, for a time.
func (n *noisy) play(t *testing.T, rate float64, length time.Duration) {
	t.Helper()
	clear(n.count)
	for end := n.now.Add(length); n.now.Before(end); {
		next := n.now.Add(time.Duration(n.rng.ExpFloat64() / rate * 1e9))
		for len(n.queue) > 0 && n.queue[0].at.Before(next) {
			m := heap.Pop(&n.queue).(moment)
			n.now = m.at
			m.do(m.at)
		}
		n.now = next
		d, err := n.s.Choose(context.Background(), &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: 500, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		i := int(netip.MustParseAddrPort(d.Endpoints[0]).Addr().As4()[3])
		n.count[i]++
		ttft := .02 * n.speed(i) * math.Exp(.4*n.rng.NormFloat64())
		step := .01 * n.speed(i) * math.Exp(.2*n.rng.NormFloat64())
		first := next.Add(time.Duration(ttft * 1e9))
		last := first.Add(time.Duration(step * 50 * 1e9))
		heap.Push(&n.queue, moment{first, func(at time.Time) {
			d.Observe(request.Event{Kind: request.EventHeaders, At: at, Status: 200})
			d.Observe(request.Event{Kind: request.EventFirstToken, At: at})
		}})
		heap.Push(&n.queue, moment{last, func(at time.Time) {
			d.Observe(request.Event{Kind: request.EventTokens, At: at, Tokens: 50})
			d.Done(request.Outcome{At: at, Status: 200, Complete: true})
		}})
	}
}

// atLeast fails when an engine had less than a share of the mean.
func (n *noisy) atLeast(t *testing.T, what string, share float64) {
	t.Helper()
	total := 0
	for _, c := range n.count {
		total += c
	}
	t.Log(what, n.count)
	if least := slices.Min(n.count); float64(least) < share*float64(total)/float64(len(n.count)) {
		t.Errorf("%s: an engine had %d of %d requests", what, least, total)
	}
}

// TestEqualsShare checks that chance does not decide: equal idle engines get about the same number
// of requests although their times vary by 40%.
func TestEqualsShare(t *testing.T) {
	for _, rate := range []float64{5, 30} {
		n := newNoisy(t, 24, func(int) float64 { return 1 })
		for range 3 {
			n.play(t, rate, 5*time.Minute)
		}
		n.atLeast(t, "equals", .4)
	}
}

// TestSlowEngines checks that engines with half the speed are detected although times vary.
func TestSlowEngines(t *testing.T) {
	n := newNoisy(t, 24, func(i int) float64 { return 1 + float64(i%2) })
	for range 2 {
		n.play(t, 30, 5*time.Minute)
	}
	slow, total, most := 0, 0, slices.Max(n.count)
	for i, c := range n.count {
		total += c
		slow += c * (i % 2)
	}
	if t.Log(n.count); slow*50 > total {
		t.Errorf("slow engines had %d of %d requests", slow, total)
	}
	if most*5 > total {
		t.Errorf("one of twelve equal engines had %d of %d requests", most, total)
	}
}

// TestRecovered checks that engines which were slow once are tried again.
func TestRecovered(t *testing.T) {
	n := newNoisy(t, 24, nil)
	n.speed = func(i int) float64 {
		if i < 3 && n.now.Before(t0.Add(time.Minute)) {
			return 10
		}
		return 1
	}
	for range 5 {
		n.play(t, 30, 5*time.Minute)
	}
	n.atLeast(t, "recovered", .1)
}

// alone sends requests of 500 tokens one at a time, at intervals. first returns the seconds to the
// first token of an engine's next answer. It returns the number of requests that each engine served.
func (n *noisy) alone(t *testing.T, every time.Duration, requests int, first func(engine int) float64) []int {
	t.Helper()
	clear(n.count)
	for range requests {
		begun := n.now
		d, err := n.s.Choose(context.Background(), &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: 500, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		i := int(netip.MustParseAddrPort(d.Endpoints[0]).Addr().As4()[3])
		n.count[i]++
		at := n.now.Add(time.Duration(first(i) * (1 + .1*n.rng.NormFloat64()) * 1e9))
		d.Observe(request.Event{Kind: request.EventHeaders, At: at, Status: 200})
		d.Observe(request.Event{Kind: request.EventFirstToken, At: at})
		end := at.Add(500 * time.Millisecond)
		d.Observe(request.Event{Kind: request.EventTokens, At: end, Tokens: 50})
		d.Done(request.Outcome{At: end, Status: 200, Complete: true})
		if n.now = begun.Add(every); end.After(n.now) {
			n.now = end
		}
	}
	return n.count
}

// paces are the engines of a pool and the interval of its requests, which come one at a time.
var paces = []struct {
	engines int
	every   time.Duration
}{
	{2, time.Second}, {2, 10 * time.Second}, {2, time.Minute},
	{8, time.Second}, {8, time.Minute},
	{100, 10 * time.Second},
}

// TestSlowFirstAnswer checks that an engine whose first answer was slow has its share again after two
// minutes and ten requests of each engine, in a pool without any queue.
func TestSlowFirstAnswer(t *testing.T) {
	for _, p := range paces {
		for _, cold := range []int{1, p.engines} {
			n := newNoisy(t, p.engines, nil)
			answers := make([]int, p.engines)
			first := func(i int) float64 {
				if answers[i]++; i < cold && answers[i] == 1 {
					return 30
				}
				return .08
			}
			n.alone(t, p.every, max(10*p.engines, int(2*time.Minute/p.every)), first)
			if least := slices.Min(answers); least == 0 {
				t.Errorf("%d engines, %d cold, every %v: an engine was never used", p.engines, cold, p.every)
			}
			n.alone(t, p.every, 20*p.engines, first)
			if n.count[0] < 10 {
				t.Errorf("%d engines, %d cold, every %v: the cold one had %d of %d requests", p.engines, cold, p.every, n.count[0], 20*p.engines)
			}
		}
	}
}

// TestSlowEngineAlone checks that an engine with a third of the speed rarely gets a request in a pool
// without any queue, and more requests once it is as fast as the others.
func TestSlowEngineAlone(t *testing.T) {
	for _, p := range paces {
		n := newNoisy(t, p.engines, nil)
		const requests, share = 1000, .03
		slow := n.alone(t, p.every, requests, func(i int) float64 {
			if i == 0 {
				return .24
			}
			return .08
		})[0]
		t.Logf("%d engines, every %v: the slow one had %d of %d requests", p.engines, p.every, slow, requests)
		if slow < 1 || float64(slow) > share*requests {
			t.Errorf("%d engines, every %v: the slow one had %d of %d requests", p.engines, p.every, slow, requests)
		}
		// at most an hour without a retrial
		n.alone(t, p.every, int(max(time.Hour, 50*p.every)/p.every)+10*p.engines, func(int) float64 { return .08 })
		if again := n.alone(t, p.every, 20*p.engines, func(int) float64 { return .08 })[0]; again < 10 {
			t.Errorf("%d engines, every %v: the recovered one had %d of %d requests", p.engines, p.every, again, 20*p.engines)
		}
	}
}

// TestRetrialsKeepPrefixes checks that no request leaves an engine that holds its prompt for the
// retrial of an engine that was slow once.
func TestRetrialsKeepPrefixes(t *testing.T) {
	for _, p := range paces {
		n := newNoisy(t, p.engines, nil)
		answers := 0
		cold := func(i int) float64 {
			if i == 0 {
				if answers++; answers == 1 {
					return 30
				}
			}
			return .08
		}
		for range 100 * p.engines {
			if n.alone(t, p.every, 1, cold); answers > 0 {
				break
			}
		}
		if answers != 1 {
			t.Fatalf("%d engines, every %v: the cold engine had %d requests", p.engines, p.every, answers)
		}
		n.fleet.list[1].held = 400
		if got := n.alone(t, p.every, 500, cold); got[1] != 500 {
			t.Errorf("%d engines, every %v: the engine with the prompt had %d of 500 requests, the cold one %d", p.engines, p.every, got[1], got[0])
		}
	}
}
