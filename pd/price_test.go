package pd

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// even1ms prefills a token in one millisecond and decodes a step in ten.
var even1ms = endpoint.Cost{Base: .01, PerToken: .001, Step: .01}

type candidate struct {
	role string
	held int32
	load endpoint.Load
	rack string
	slow float64
}

// market is a scripted pool for the tests of prices.
type market struct {
	pool *endpoint.Pool
	list []candidate
}

func newMarket(list ...candidate) *market {
	m := &market{endpoint.NewPool(endpoint.PoolOptions{}), list}
	var specs []endpoint.Spec
	for i, c := range list {
		labels := map[string]string{}
		if c.role != "" {
			labels[endpoint.LabelRole] = c.role
		}
		if c.rack != "" {
			labels["topology.kubernetes.io/rack"] = c.rack
		}
		specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000), Labels: labels})
	}
	m.pool.Set(specs)
	for i, ep := range m.pool.Snapshot().Endpoints {
		m.pool.LoadTracker().SetRemote(ep, list[i].load)
		cost := even1ms
		if list[i].slow > 0 {
			cost.PerToken *= list[i].slow
		}
		ep.SetPriorCost(cost)
	}
	return m
}

func (m *market) Match(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for k, ep := range eps {
		held[k].Run.Tokens[block.TierGPU] = m.list[ep.ID].held
	}
}
func (m *market) Chosen(*request.Request, *endpoint.Endpoint)                                       {}
func (m *market) Finished(*request.Request, *endpoint.Endpoint, cycle.PrefixMatch, request.Outcome) {}

func (m *market) place(tb testing.TB, r *request.Request, options ...func(*Options)) (string, *cycle.Plan) {
	tb.Helper()
	o := Options{Decode: profile("decode"), Prefill: profile("prefill"), SplitPrefill: ByPrice()}
	for _, f := range options {
		f(&o)
	}
	h, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	c := cycle.New(cycle.Options{Pool: m.pool, Match: m.Match, Now: t0, Seed: 1}, r)
	defer c.Free()
	plan := &cycle.Plan{}
	if err := h.Handle(c, plan); err != nil {
		return err.Error(), plan
	}
	out := fmt.Sprint(plan.Order[0])
	for i := range plan.Also {
		out += fmt.Sprint(" fed by ", plan.Also[i].Index)
	}
	return out, plan
}

func prompt(tokens int) *request.Request {
	return &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: tokens}
}

// TestPrices checks the plans with the lowest cost. A token takes 1 ms and a step 10 ms. A KV
// transfer within a zone takes 20 ms plus 13 µs per token.
func TestPrices(t *testing.T) {
	busy := func(decoding int64) endpoint.Load { return endpoint.Load{Requests: decoding} }
	queue := func(tokens int64) endpoint.Load { return endpoint.Load{Requests: 1, Waiting: 1, Prefill: tokens} }
	f := func(name string, tokens int, want string, list ...candidate) {
		t.Helper()
		if got, plan := newMarket(list...).place(t, prompt(tokens)); got != want {
			t.Errorf("%s: %s, want %s (%+v)", name, got, want, plan.Stages)
		}
	}
	f("nobody is disturbed: no transfer", 1000, "0", candidate{role: "decode"}, candidate{role: "prefill"})
	f("a prefill would stall many", 4000, "0 fed by 1", candidate{role: "decode", load: busy(20)}, candidate{role: "prefill"})
	f("what is held need not be computed", 4000, "0", candidate{role: "decode", held: 3990, load: busy(20)}, candidate{role: "prefill"})
	f("the prefill endpoint has a queue", 2000, "0", candidate{role: "decode", load: busy(5)}, candidate{role: "prefill", load: queue(5000)})
	f("the shorter queue", 4000, "0 fed by 2", candidate{role: "decode", load: busy(20)},
		candidate{role: "prefill", load: queue(3000)}, candidate{role: "prefill", load: queue(1000)})
	f("what the prefill endpoint holds counts", 4000, "0 fed by 1", candidate{role: "decode", load: busy(20)},
		candidate{role: "prefill", held: 3500, load: queue(1000)}, candidate{role: "prefill"})
	f("the slower engine", 4000, "0 fed by 2", candidate{role: "decode", load: busy(20)},
		candidate{role: "prefill", slow: 2}, candidate{role: "prefill"})
	f("a cache that serves takes it whole, far from the pool's queue", 4000, "1",
		candidate{role: "decode", load: queue(9000)}, candidate{role: "decode", held: 3900}, candidate{role: "prefill"})
	f("nobody to prefill", 4000, "0", candidate{role: "decode", load: busy(20)})
	f("an endpoint is not its own helper", 4000, "0", candidate{role: "both", load: busy(20)})
}

// TestMemoryAndArrivals: a prefill at a decode endpoint makes all its requests keep their memory
// for longer, and delays requests that arrive in that time. If memory is full, or many requests
// arrive, a separate prefill endpoint is used although decode would be as fast.
func TestMemoryAndArrivals(t *testing.T) {
	place := func(use, rate float64) string {
		m := newMarket(candidate{role: "decode", load: endpoint.Load{Requests: 8, Tokens: 40_000, Context: 40_000, Rate: rate}},
			candidate{role: "prefill", load: endpoint.Load{Requests: 1, Waiting: 1, Prefill: 1400}})
		m.pool.Snapshot().Endpoints[0].SetGauges(endpoint.Gauges{At: t0, Values: gauge.Values{Running: 8, KVUse: use}, BlockSize: 16, Blocks: 3000})
		got, _ := m.place(t, prompt(1500))
		return got
	}
	for _, c := range []struct {
		use, rate float64
		want      string
	}{{.3, .1, "0"}, {.99, .1, "0"}, {.3, 1, "0"}, {.99, 1, "0 fed by 1"}, {.3, 4, "0 fed by 1"}} {
		if got := place(c.use, c.rate); got != c.want {
			t.Errorf("%.0f%% of memory in use, %v requests a second: %s, want %s", 100*c.use, c.rate, got, c.want)
		}
	}
}

// TestRoom: prompts being computed at other endpoints are in no queue of the decode engine, but
// take its memory before a new request. Requests are sent where memory is free, split or not.
func TestRoom(t *testing.T) {
	gauges := func(m *market, at int, waiting int, use float64) {
		m.pool.Snapshot().Endpoints[at].SetGauges(endpoint.Gauges{At: t0, Values: gauge.Values{Running: 4, Waiting: waiting, KVUse: use}, BlockSize: 16, Blocks: 3000})
	}
	place := func(coming int64, held int32) string {
		m := newMarket(candidate{role: "decode", held: held, load: endpoint.Load{Requests: 6, Tokens: 20_000 + coming, Context: 20_000, Rate: 1}},
			candidate{role: "decode", load: endpoint.Load{Requests: 7, Tokens: 20_000, Context: 20_000, Rate: 1}},
			candidate{role: "prefill", load: endpoint.Load{Requests: 1, Waiting: 1, Prefill: 4000}})
		gauges(m, 0, 0, .4)
		gauges(m, 1, 0, .4)
		got, _ := m.place(t, prompt(2000))
		return got
	}
	for _, c := range []struct {
		coming int64
		held   int32
		want   string
	}{{0, 1900, "0"}, {20_000, 1900, "0"}, {200_000, 1900, "1"}, {200_000, 0, "1"}} {
		if got := place(c.coming, c.held); got != c.want {
			t.Errorf("%d tokens are to come, %d are held: %s, want %s", c.coming, c.held, got, c.want)
		}
	}
}

// TestLinks: an engine sends its blocks one prompt after the other, so an engine with much to send
// is no faster than one with a queue.
func TestLinks(t *testing.T) {
	place := func(moving int64) string {
		m := newMarket(candidate{role: "decode", load: endpoint.Load{Requests: 20}},
			candidate{role: "prefill", load: endpoint.Load{Moving: moving}},
			candidate{role: "prefill", load: endpoint.Load{Requests: 1, Waiting: 1, Prefill: 500}})
		got, _ := m.place(t, prompt(4000))
		return got
	}
	for moving, want := range map[int64]string{0: "0 fed by 1", 100_000_000: "0 fed by 2"} {
		if got := place(moving); got != want {
			t.Errorf("%d tokens are to be sent: %s, want %s", moving, got, want)
		}
	}
}

// TestPairIsJudgedTogether: the decode profile prefers the idle endpoint, but both prefill
// endpoints are in the rack of the other one, and transfers between racks are expensive.
func TestPairIsJudgedTogether(t *testing.T) {
	m := newMarket(
		candidate{role: "decode", load: endpoint.Load{Requests: 20}, rack: "a"}, candidate{role: "decode", load: endpoint.Load{Requests: 21}, rack: "b"},
		candidate{role: "prefill", rack: "b"}, candidate{role: "prefill", rack: "b"})
	dear := predictedDefaults()
	dear.GigabytesPerSecond.Elsewhere = .01
	model, err := dear.Model()
	if err != nil {
		t.Fatal(err)
	}
	got, plan := m.place(t, prompt(4000), func(o *Options) { o.SplitPrefill = (&prices{dear, model}).decider() })
	if got != "1 fed by 2" || fmt.Sprint(plan.Order) != "[1 0]" || plan.Headers[0].Value != "10.0.0.2:8000,10.0.0.3:8000" {
		t.Errorf("%s, order %v, %v", got, plan.Order, plan.Headers)
	}
}

// TestWarmFirstTouchStaysLocal: if most of the prompt is cached everywhere and the rest is cheap,
// the request is not split under usual loads.
func TestWarmFirstTouchStaysLocal(t *testing.T) {
	for decoding := int64(0); decoding <= 8; decoding++ {
		m := newMarket(candidate{role: "decode", held: 300, load: endpoint.Load{Requests: decoding}}, candidate{role: "prefill", held: 300})
		for i, ep := range m.pool.Snapshot().Endpoints {
			ep.SetPriorCost(endpoint.PriorCost)
			_ = i
		}
		if got, plan := m.place(t, prompt(400)); got != "0" {
			t.Errorf("%d decode there: %s, %+v", decoding, got, plan.Stages)
		}
	}
}

// TestLearnedTransfers: observed transfer times count, for each pair.
func TestLearnedTransfers(t *testing.T) {
	m := newMarket(candidate{role: "decode", load: endpoint.Load{Requests: 20}}, candidate{role: "prefill"}, candidate{role: "prefill"})
	eps := m.pool.Snapshot().Endpoints
	if got, _ := m.place(t, prompt(4000)); got != "0 fed by 1" {
		t.Fatalf("at first: %s", got)
	}
	for range 20 {
		m.pool.Transfers().Learn(eps[1], eps[0], 4000, 3, 1)
		m.pool.Transfers().Learn(eps[2], eps[0], 4000, .1, 1)
	}
	if got, _ := m.place(t, prompt(4000)); got != "0 fed by 2" {
		t.Errorf("with a slow pair: %s", got)
	}
	for range 40 {
		m.pool.Transfers().Learn(eps[1], eps[0], 4000, 60, 1)
		m.pool.Transfers().Learn(eps[2], eps[0], 4000, 60, 1)
	}
	if got, _ := m.place(t, prompt(4000)); got != "0" {
		t.Errorf("where transfers are dear: %s", got)
	}
}

// TestRefusals: which requests may be refused.
func TestRefusals(t *testing.T) {
	need := func(o *Options) { o.NeedPrefill = true }
	alone := newMarket(candidate{role: "decode"})
	if got, _ := alone.place(t, prompt(4000), need); got != "no prefill endpoint is left for this request" {
		t.Error(got)
	}
	if got, _ := alone.place(t, prompt(4000)); got != "0" {
		t.Error(got)
	}
	both := newMarket(candidate{role: "decode", load: endpoint.Load{Requests: 20}}, candidate{role: "prefill"})
	asks := prompt(4000)
	asks.IfAvailable = true
	if got, _ := both.place(t, asks); got != "no endpoint holds enough of the prompt" {
		t.Error(got)
	}
	held := newMarket(candidate{role: "decode", held: 3999}, candidate{role: "prefill"})
	if got, _ := held.place(t, asks); got != "0" {
		t.Error(got)
	}
	whole := prompt(4000)
	whole.Whole = true
	if got, _ := both.place(t, whole, need); got != "0" {
		t.Error(got)
	}
}

// TestWaitingOfGauges: requests wait at an endpoint if the load reports or a recent gauge say so, whichever has more.
func TestWaitingOfGauges(t *testing.T) {
	for _, x := range []struct {
		reported int64
		gauge    int
		age      time.Duration
		want     float64
	}{{2, 5, 0, 5}, {5, 2, 0, 5}, {2, 5, time.Minute, 2}, {-1, 0, 0, 0}} {
		v := cycle.View{Load: endpoint.Load{Waiting: x.reported}}
		v.Sampled, v.Age, v.Waiting = true, x.age, x.gauge
		if got := waiting(&v); got != x.want {
			t.Errorf("waiting() = %v with %d reported and %d in a gauge %s old, want %v", got, x.reported, x.gauge, x.age, x.want)
		}
	}
}
