package plugins

import (
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

func load(requests, prefill int64) endpoint.Load {
	return endpoint.Load{Requests: requests, Prefill: prefill, Waiting: min(requests, 1)}
}

func profile(tb testing.TB, name string) *cycle.Profile {
	tb.Helper()
	p, ok := readyProfile(name)
	if !ok {
		tb.Fatalf("no profile %s", name)
	}
	return p
}

func TestLMetric(t *testing.T) {
	f := newFleet(
		one{load: load(2, 500), held: 200}, // (500 + 800) × 2 = 2600
		one{load: load(3, 0), held: 600},   // 400 × 3 = 1200
		one{load: load(1, 1000)},           // (1000 + 1000) × 1 = 2000
		one{load: load(4, 100), held: 5000} /* (100 + 0) × 4 = 400 */)
	if got := f.scores(t, ask(1000), "lmetric-policy", ""); !near(got, []float64{-2600, -1200, -2000, -400}) {
		t.Error(got)
	}
	if at := f.pick(t, profile(t, "lmetric"), ask(1000)); at != 3 {
		t.Errorf("picked %d", at)
	}
	// Idle endpoints all cost 0: the first wins.
	f = newFleet(one{load: load(1, 5)}, one{}, one{held: 900})
	for range 20 {
		if at := f.pick(t, profile(t, "lmetric"), ask(1000)); at != 1 {
			t.Fatalf("picked %d", at)
		}
	}
}

func TestLoadOnly(t *testing.T) {
	f := newFleet(one{load: load(2, 0)}, one{load: load(1, 9999)}, one{load: load(1, 0), held: 1000})
	for range 20 {
		if at := f.pick(t, profile(t, "load_only"), ask(1000)); at != 1 {
			t.Fatalf("picked %d", at)
		}
	}
}

func TestSticky(t *testing.T) {
	f := newFleet(one{load: load(2, 0)}, one{load: load(1, 0)}, one{load: load(50, 90000)})
	r := ask(1000)
	r.Session = "s"
	if at := f.pick(t, profile(t, "sticky"), r); at != 1 {
		t.Errorf("first pick %d", at)
	}
	f.sessions.Bind(sessions.Binding{Session: sessions.KeyOf("s"), Endpoint: 2, At: t0})
	if at := f.pick(t, profile(t, "sticky"), r); at != 2 {
		t.Errorf("later pick %d", at)
	}
	if at := f.pick(t, profile(t, "sticky"), ask(1000)); at != 1 {
		t.Errorf("without a session %d", at)
	}
}

func TestUnified(t *testing.T) {
	r := ask(1000)
	r.Session = "s"
	f := func(name string, want int, list ...one) {
		t.Helper()
		fl := newFleet(list...)
		fl.sessions.Bind(sessions.Binding{Session: sessions.KeyOf("s"), Endpoint: 0, At: t0})
		if at := fl.pick(t, profile(t, "unified"), r); at != want {
			t.Errorf("%s: picked %d, want %d", name, at, want)
		}
	}
	f("stays", 0, one{load: load(4, 9000), held: 501}, one{}, one{load: load(2, 0)})
	f("exactly half is not enough", 1, one{load: load(4, 9000), held: 500}, one{}, one{load: load(2, 0)})
	f("too busy: 7 > 2 × 9/3", 1, one{load: load(7, 0), held: 900}, one{}, one{load: load(2, 0)})
	f("just busy enough: 6 = 2 × 9/3", 0, one{load: load(6, 0), held: 900}, one{load: load(1, 0)}, one{load: load(2, 0)})
	f("the mean counts as 1 at least", 0, one{load: load(2, 0), held: 900}, one{}, one{})
	f("tie by new prefill", 2, one{load: load(9, 9)}, one{held: 100}, one{held: 300})
	f("tie by requests", 1, one{load: load(9, 9)}, one{held: 1000}, one{load: load(3, 0), held: 1000})
}

// TestUnifiedTurns checks that complete ties are resolved in turn.
func TestUnifiedTurns(t *testing.T) {
	f := newFleet(one{load: load(1, 10)}, one{}, one{}, one{})
	p := profile(t, "unified")
	got := []int{}
	for range 6 {
		got = append(got, f.pick(t, p, ask(10)))
	}
	for i, want := range []int{1, 2, 3, 1, 2, 3} {
		if got[i] != want {
			t.Fatalf("turns %v", got)
		}
	}
}

func TestDynamo(t *testing.T) {
	f := newFleet(
		one{load: endpoint.Load{Requests: 1, Prefill: 160, Tokens: 320}, held: 80}, // prefill (160+80)/16 = 15, active (320+160)/16 = 30
		one{load: endpoint.Load{Requests: 1, Tokens: 480}})                         // prefill 10, active 40
	if got := f.scores(t, ask(160), "dynamo-cost-policy", ""); !near(got, []float64{-45, -50}) {
		t.Error(got)
	}
	if got := f.scores(t, ask(160), "dynamo-cost-policy", `{"overlapScoreWeight":8}`); !near(got, []float64{-150, -120}) {
		t.Error(got)
	}
	// Softmax over the range: e^(1/0.5) to 1.
	p := &cycle.Profile{}
	plugin := build(t, "dynamo-cost-policy", `{"routerTemperature":0.5}`)
	plugin.Join(p, "d", 1)
	first, n := 0, 4000
	for range n {
		if f.pick(t, p, ask(160)) == 0 {
			first++
		}
	}
	want := math.Exp(2) / (1 + math.Exp(2))
	if share := float64(first) / float64(n); math.Abs(share-want) > .02 {
		t.Errorf("share %.3f, want %.3f", share, want)
	}
}

func TestCacheAware(t *testing.T) {
	e := func(requests int64, held int32, kv float64) one {
		return one{load: endpoint.Load{Requests: requests}, held: held, gauges: &endpoint.Gauges{Values: gauge.Values{KVUse: kv}}}
	}
	f := func(name string, want int, list ...one) {
		t.Helper()
		if at := newFleet(list...).pick(t, profile(t, "cache_aware"), ask(1000)); at != want {
			t.Errorf("%s: picked %d, want %d", name, at, want)
		}
	}
	f("balanced: longest match", 1, e(10, 301, .1), e(60, 400, .9), e(0, 0, 0))
	f("out of balance: fewest requests", 2, e(10, 301, .1), e(66, 400, .9), e(1, 0, .9))
	f("far apart, but not by the ratio", 1, e(200, 301, .1), e(265, 400, .9))
	f("no long match: most free cache", 2, e(10, 300, .5), e(60, 200, .9), e(20, 0, .1))
}

func TestPredicted(t *testing.T) {
	cost := endpoint.Cost{Base: .02, PerToken: 1e-4, PerPair: 1e-8, Step: .01, PerSeq: 5e-5, PerContext: 4e-8}
	l := endpoint.Load{
		Requests: 5, Waiting: 2, Prefill: 3000, Pairs: 4e6, Tokens: 320_000, Context: 300_000, Rate: .5, Busy: .1,
		LastFirst: t0.Add(-100 * time.Millisecond).UnixNano(),
	}
	const answer = 200
	f := newFleet(one{cost: &cost, load: l, held: 6000}, one{cost: &cost})
	// Endpoint 0: 4,000 new tokens of 10,000: pairs 4000 × 8000 = 3.2e7.
	own := .4 + .32
	wait := .3 + .04 - .1
	want0 := wait + own + .02 + own*(.5+3*.1+2) + .5*own*.5*(wait+own/2)/.9 +
		.1*answer*(.01+4*5e-5+310_000*4e-8) + 30*.4096*.1*.1
	// Endpoint 1: the whole prompt is new, and the endpoint is idle: pairs 10000 × 5000. The load
	// of endpoint 0 does not matter.
	own1 := 1 + .5
	want1 := own1 + 2*.02 + own1*.5 + .1*answer*(.01+5e-5+4e-4)
	got := f.scores(t, ask(10000), "predicted-ttft-scorer", "")
	if !near(got, []float64{-want0, -want1}) {
		t.Errorf("%v, want %v %v", got, -want0, -want1)
	}
	r := ask(10000)
	r.SLOTTFT = time.Second
	got = f.scores(t, r, "predicted-ttft-scorer", "")
	if !near(got, []float64{-want0, -want1 - 4*.54}) {
		t.Errorf("with a target: %v", got)
	}
	if at := f.pick(t, profile(t, "default"), ask(10000)); at != 1 {
		t.Errorf("picked %d", at)
	}
}

// TestPredictedMarginal checks that a candidate's cost does not depend on the load of other
// candidates.
func TestPredictedMarginal(t *testing.T) {
	idle := one{}
	hot := one{held: 15_000, load: endpoint.Load{Requests: 300, Waiting: 20, Prefill: 80_000, Context: 4_000_000, Rate: 20, Busy: .9}}
	alone := newFleet(idle, idle).scores(t, ask(16_000), "predicted-ttft-scorer", "")
	beside := newFleet(idle, hot).scores(t, ask(16_000), "predicted-ttft-scorer", "")
	if alone[0] != beside[0] {
		t.Errorf("an idle endpoint costs %v beside an idle one and %v beside a hot one", -alone[0], -beside[0])
	}
	if beside[0] <= beside[1] {
		t.Errorf("the hot endpoint is chosen: %v", beside)
	}
}

// TestPredictedBlind checks that the endpoint with the fewest requests is chosen if nothing is
// cached, learned or measured.
func TestPredictedBlind(t *testing.T) {
	f := newFleet(one{load: load(3, 0)}, one{load: load(1, 0)}, one{load: load(2, 0)})
	for range 10 {
		if at := f.pick(t, profile(t, "default"), ask(100)); at != 1 {
			t.Fatalf("picked %d", at)
		}
	}
}

// TestPredictedLimit checks that for any weights, no request waits at a holder for longer than an
// idle endpoint takes to build the whole prompt.
func TestPredictedLimit(t *testing.T) {
	f := func(waiting int32, want int) {
		t.Helper()
		queue := endpoint.Load{Requests: 1, Waiting: 1, Prefill: int64(waiting), LastFirst: t0.UnixNano()}
		fl := newFleet(one{cost: &simple, load: queue, held: 900}, one{cost: &simple})
		got := fl.scores(t, ask(1000), "predicted-ttft-scorer", `{"ownWeight":100,"copyThreshold":0}`)
		if (got[0] > got[1]) != (want == 0) {
			t.Errorf("%d tokens wait: %v", waiting, got)
		}
	}
	f(800, 0)  // .8 + .1 s against 1 s
	f(1000, 1) // 1 + .1 s
}

// TestPredictedLimitUnlike: the delay in a fleet without caches bounds waits only among equal
// engines. If engines differ in speed, a request stays while leaving would cost more in total,
// including the requests that it would delay.
func TestPredictedLimitUnlike(t *testing.T) {
	queue := func(tokens int64) endpoint.Load {
		return endpoint.Load{Requests: 5, Waiting: 5, Prefill: tokens, LastFirst: t0.UnixNano()}
	}
	for _, c := range []struct {
		third float64 // relative to the time of the others
		want  int
	}{{1, 1}, {1.05, 1}, {2, 0}, {.5, 0}} {
		third := simple
		third.PerToken *= c.third
		fl := newFleet(one{cost: &simple, load: queue(4000), held: 900}, one{cost: &simple, load: queue(2000)}, one{cost: &third, load: queue(int64(9000 / c.third))})
		got := fl.scores(t, ask(1000), "predicted-ttft-scorer", `{"copyThreshold":0}`)
		if (got[0] > got[1]) != (c.want == 0) {
			t.Errorf("a third engine that takes %v times as long: %v", c.third, got)
		}
	}
}

// TestMaxShare checks that the option limits an endpoint's share of the requests in flight.
func TestMaxShare(t *testing.T) {
	f := newFleet(one{load: endpoint.Load{Requests: 60}, held: 10_000}, one{load: endpoint.Load{Requests: 20}}, one{}, one{})
	free := f.scores(t, ask(10_000), "predicted-ttft-scorer", `{"decodeWeight":0}`)
	bound := f.scores(t, ask(10_000), "predicted-ttft-scorer", `{"decodeWeight":0,"maxShare":0.4}`)
	if free[0] < free[1] || bound[0] > bound[1] {
		t.Errorf("free %v, bound %v", free, bound)
	}
}

// TestPredictedBusy: a candidate's cost includes its recent minutes of work, weighted by the
// tracked share of its engine's requests.
func TestPredictedBusy(t *testing.T) {
	const full = 2 * 50e-6 * 8192 // of an engine at twice the prior's times
	cost := endpoint.Cost{PerToken: 1e-4, Idle: 2}
	f := func(running int, told float64) {
		t.Helper()
		f := newFleet(
			one{cost: &cost, load: endpoint.Load{Requests: 2, Busy: .5}, gauges: &endpoint.Gauges{Values: gauge.Values{Running: running, Waiting: 1}}},
			one{cost: &cost, load: endpoint.Load{Requests: 1, Busy: .1}, gauges: &endpoint.Gauges{Values: gauge.Values{Running: 1}}},
			one{cost: &cost, load: endpoint.Load{Busy: 1}})
		got := f.scores(t, ask(1000), "predicted-ttft-scorer", `{"decodeWeight":0,"ownWeight":0,"stallWeight":0,"alike":0}`)
		want := make([]float64, 3)
		for i, busy := range []float64{.5, .1, 1} {
			want[i] = -.1 - 30*full*told*told*busy*busy
		}
		if !near(got, want) {
			t.Errorf("%d run at the engine: %v, want %v", running, got, want)
		}
	}
	f(0, 1)
	f(1, 1)
	f(4, .5)
}

// TestPredictedTiers checks that a slower tier saves less.
func TestPredictedTiers(t *testing.T) {
	f := newFleet(
		one{cost: &simple, tiers: &[block.NumTiers]int32{0, 0, 1000, 0}},
		one{cost: &simple, tiers: &[block.NumTiers]int32{0, 1000, 0, 0}},
		one{cost: &simple, tiers: &[block.NumTiers]int32{700, 0, 0, 0}})
	got := f.scores(t, ask(1000), "predicted-ttft-scorer", `{"decodeWeight":0,"ownWeight":0}`)
	for i, want := range []float64{.51, .21, .31} {
		if math.Abs(-got[i]-want) > 1e-5 {
			t.Errorf("%v", got)
		}
	}
}
