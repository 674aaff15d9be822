package picker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// stuckPrompts render until their context ends.
type stuckPrompts struct{ asked time.Time }

func (p *stuckPrompts) Fill(ctx context.Context, _ *request.Request) {
	p.asked = time.Now()
	<-ctx.Done()
}

func (*stuckPrompts) Release(*request.Request) {}

// slowGate admits requests a minute later.
type slowGate struct{}

func (g slowGate) Enter(context.Context, *request.Request) (Permit, QueueEntry, error) {
	return Permit{}, g, nil
}

func (slowGate) Expected() float64 { return 60 }

func (slowGate) Wait(context.Context, time.Duration) (bool, error) {
	time.Sleep(time.Minute)
	return false, nil
}

func (slowGate) Withdraw() {}

func (slowGate) Leave(Permit, float64) {}

// TestWorkTimeout: after the time limit for a decision, load alone decides. Waiting for capacity
// does not count.
func TestWorkTimeout(t *testing.T) {
	f := func(name string, gate Gate, waits time.Duration) {
		const works = 300 * time.Millisecond
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				prompts := &stuckPrompts{}
				s := newScheduler(t, Options{
					Pool: newPool(3), Matcher: &fakeMatcher{tokens: []int32{0, 0, 0}}, Prompts: prompts, Gate: gate, WorkTimeout: works,
				})
				began := time.Now()
				d, err := s.Choose(t.Context(), chatRequest("r", 1000))
				if err != nil || len(d.Endpoints) != 3 {
					t.Fatalf("%+v, %v", d, err)
				}
				if waited, worked := prompts.asked.Sub(began), time.Since(prompts.asked); waited != waits || worked != works {
					t.Errorf("waited for %v and worked for %v, want %v and %v", waited, worked, waits, works)
				}
				d.Done(request.Outcome{At: t0})
			})
		})
	}
	f("work", nil, 0)
	f("work after a wait", slowGate{}, time.Minute)
}

func TestChoose(t *testing.T) {
	pool, m := newPool(3), &fakeMatcher{tokens: []int32{0, 960, 480}}
	reg := prometheus.NewRegistry()
	s := newScheduler(t, Options{Pool: pool, Matcher: m, Registerer: reg})
	r := chatRequest("r1", 1000)
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.0:8000"}, d.Endpoints); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	ep := pool.Snapshot().Lookup(d.Endpoints[0])
	if l := pool.LoadTracker().Local(ep, t0); l.Requests != 1 || l.Prefill != 40 || l.Tokens != 1000 {
		t.Errorf("booked %+v", l)
	}
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0.Add(time.Millisecond), Status: 200, Served: d.Endpoints[0]})
	d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(100 * time.Millisecond)})
	d.Observe(request.Event{Kind: request.EventTokens, At: t0.Add(200 * time.Millisecond), Tokens: 9})
	if l := pool.LoadTracker().Local(ep, t0); l.Prefill != 0 || l.Context != 1009 {
		t.Errorf("after tokens %+v", l)
	}
	o := request.Outcome{At: t0.Add(time.Second), Status: 200, Complete: true, Usage: request.Usage{Seen: true, CachedSeen: true, PromptTokens: 1000, CachedTokens: 900}}
	d.Done(o)
	d.Done(o)
	if l := pool.LoadTracker().Local(ep, t0); l.Requests != 0 || l.Tokens != 0 {
		t.Errorf("after done %+v", l)
	}
	if diff := cmp.Diff([]string{"10.0.0.1:8000"}, m.chosen); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"10.0.0.1:8000 960 200"}, m.finished); diff != "" {
		t.Error(diff)
	}
	if seen := ep.Cost().PrefillSeen; seen != 1 {
		t.Errorf("%v samples learned", seen)
	}
	families, err := reg.Gather()
	if err != nil || len(families) < 14 {
		t.Errorf("%d metrics, %v", len(families), err)
	}
	for _, family := range families {
		if n := family.GetMetric()[0].GetCounter().GetValue(); family.GetName() == "grapevine_picker_reported_cached_tokens_total" && n != 900 {
			t.Errorf("%v cached tokens counted", n)
		}
	}
}

func TestChooseSubset(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(3)})
	f := func(subset []string, want string, reason request.Reason) {
		t.Helper()
		r := chatRequest("r", 10)
		r.Subset, r.HasSubset = subset, true
		d, err := s.Choose(context.Background(), r)
		var refused *request.Error
		if errors.As(err, &refused) {
			if want != "" || refused.Reason != reason {
				t.Errorf("%v: %v", subset, err)
			}
			return
		}
		if got := strings.Join(d.Endpoints, " "); err != nil || got != want {
			t.Errorf("%v: %q (%v), want %q", subset, got, err, want)
		}
		d.Done(request.Outcome{})
	}
	f([]string{"10.0.0.2:8000"}, "10.0.0.2:8000", 0)
	f([]string{"10.0.0.2:8000", "10.9.9.9:1", "10.0.0.2:8000", "x"}, "10.0.0.2:8000", 0)
	f([]string{"10.9.9.9:1"}, "", request.ReasonNoEndpoints)
	f([]string{"10.0.0.2"}, "10.0.0.2:8000", 0)
	f([]string{"::ffff:10.0.0.2", "10.0.0"}, "10.0.0.2:8000", 0)
	f(nil, "", request.ReasonNoEndpoints)
}

func TestChooseRefuses(t *testing.T) {
	f := func(o Options, ctx context.Context, want request.Reason) {
		t.Helper()
		_, err := newScheduler(t, o).Choose(ctx, chatRequest("r", 1))
		var refused *request.Error
		if !errors.As(err, &refused) || refused.Reason != want {
			t.Errorf("%v, want reason %d", err, want)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	f(Options{Pool: newPool(0)}, context.Background(), request.ReasonNoEndpoints)
	f(Options{Pool: newPool(1)}, gone, request.ReasonCancelled)
	admit := func(*cycle.Cycle) error { return request.Errorf(request.ReasonSaturated, "busy") }
	f(Options{Pool: newPool(1), Rules: &Rules{Handler: single{testProfile()}, Admit: admit}}, context.Background(), request.ReasonSaturated)
	prefillOnly := specs(1)
	prefillOnly[0].Labels = map[string]string{endpoint.LabelRole: "prefill"}
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(prefillOnly)
	f(Options{Pool: pool}, context.Background(), request.ReasonNoEndpoints)
	if _, err := New(Options{}); err == nil {
		t.Error("no pool must be an error")
	}
	if _, err := New(Options{Pool: pool}); err == nil {
		t.Error("no rules must be an error")
	}
}

// TestChooseDown skips endpoints that do not answer, unless there are no others.
func TestChooseDown(t *testing.T) {
	pool := newPool(2)
	s := newScheduler(t, Options{Pool: pool})
	eps := pool.Snapshot().Endpoints
	f := func(want int) {
		t.Helper()
		d, err := s.Choose(context.Background(), chatRequest("r", 10))
		if err != nil || len(d.Endpoints) != want {
			t.Fatalf("%v %v, want %d endpoints", d, err, want)
		}
		d.Done(request.Outcome{})
	}
	f(2)
	eps[0].SetDown(true)
	f(1)
	eps[1].SetDown(true)
	f(2)
}

func TestRewriteAndObjectives(t *testing.T) {
	rules := &Rules{
		Handler: single{testProfile()}, Names: request.Names{
			Objectives: map[string]int{"gold": 5},
			Rewrites:   map[string]request.Rewrite{"m": {{Model: "a", Weight: 3}, {Model: "b", Weight: 1}, {Model: "never"}}},
		},
	}
	s := newScheduler(t, Options{Pool: newPool(1), Rules: rules})
	count := map[string]int{}
	for range 400 {
		r := chatRequest("r", 10)
		r.ModelSpan, r.Objective = [2]int{1, 4}, "gold"
		d, err := s.Choose(context.Background(), r)
		if err != nil || r.Priority != 5 {
			t.Fatal(err, r.Priority)
		}
		count[d.ModelTarget]++
		d.Done(request.Outcome{})
	}
	if count["a"] < 260 || count["b"] < 60 || count["a"]+count["b"] != 400 {
		t.Errorf("targets %v", count)
	}
	r := chatRequest("r", 10)
	r.ModelSpan, r.Target = [2]int{1, 4}, "header"
	d, _ := s.Choose(context.Background(), r)
	if d.ModelTarget != "header" {
		t.Errorf("target %q, the header's word must stand", d.ModelTarget)
	}
}

// TestMoved follows a request that the proxy sent to the second choice. The response headers do not
// name the first one.
func TestMoved(t *testing.T) {
	pool, m := newPool(2), &fakeMatcher{tokens: []int32{100, 0}}
	token := func(c *cycle.Cycle, chosen int32) []request.HeaderSet {
		return []request.HeaderSet{{Name: "x-token", Value: c.All(chosen).Address}}
	}
	s := newScheduler(t, Options{Pool: pool, Matcher: m, Rules: &Rules{Handler: single{testProfile()}, Answer: token}})
	r := chatRequest("r", 200)
	r.Session = "s"
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if want := []request.HeaderSet{{Name: "x-token", Value: d.Endpoints[0]}}; !cmp.Equal(d.AnswerHeaders, want) {
		t.Errorf("answer headers %v, want %v", d.AnswerHeaders, want)
	}
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0, Status: 200, Served: d.Endpoints[1]})
	if len(d.AnswerHeaders) > 0 {
		t.Errorf("answer headers %v of another endpoint", d.AnswerHeaders)
	}
	a, b := pool.Snapshot().Endpoints[0], pool.Snapshot().Endpoints[1]
	if x, y := pool.LoadTracker().Local(a, t0), pool.LoadTracker().Local(b, t0); x.Requests != 0 || y.Requests != 1 {
		t.Errorf("book %+v %+v", x, y)
	}
	if at, ok := s.opts.Sessions.Lookup(sessions.KeyOf("s")); !ok || at != b.ID {
		t.Errorf("the session is at %v, want %v, which served it", at, b.ID)
	}
	d.Done(request.Outcome{Status: 200, Complete: true})
	if y := pool.LoadTracker().Local(b, t0); y.Requests != 0 || b.Cost().PrefillSeen != 0 {
		t.Errorf("after done %+v", y)
	}
	if diff := cmp.Diff([]string{"10.0.0.0:8000", "10.0.0.1:8000"}, m.chosen); diff != "" {
		t.Error(diff)
	}
}

// withPrefill is a handler that adds a remote prefill at endpoint 1.
type withPrefill struct{ p *cycle.Profile }

func (h withPrefill) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	h.p.Run(c)
	plan.Order = append(plan.Order, 0)
	plan.New = 0
	plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderPrefiller, Value: c.All(1).Address})
	plan.Also = append(plan.Also, cycle.Part{Index: 1, Work: endpoint.Work{Input: 1000, New: 600}})
	return nil
}

func TestPlanParts(t *testing.T) {
	pool := newPool(2)
	s := newScheduler(t, Options{Pool: pool, Rules: &Rules{Handler: withPrefill{testProfile()}}})
	d, err := s.Choose(context.Background(), chatRequest("r", 1000))
	if err != nil {
		t.Fatal(err)
	}
	a, b := pool.Snapshot().Endpoints[0], pool.Snapshot().Endpoints[1]
	x, y := pool.LoadTracker().Local(a, t0), pool.LoadTracker().Local(b, t0)
	if x.Prefill != 0 || y.Prefill != 600 || d.SetHeaders[0].Value != b.Address {
		t.Errorf("booked %+v %+v, headers %v", x, y, d.SetHeaders)
	}
	d.Observe(request.Event{Kind: request.EventFirstToken, At: t0})
	if y := pool.LoadTracker().Local(b, t0); y.Requests != 0 {
		t.Errorf("the prefill part stays after the first token: %+v", y)
	}
	d.Done(request.Outcome{})
}

// TestUnseenFirstTokens checks that requests with an unobserved first token leave the queue at its expected
// time.
func TestUnseenFirstTokens(t *testing.T) {
	now := t0
	pool := newPool(1)
	s := newScheduler(t, Options{Pool: pool, Now: func() time.Time { return now }})
	ep := pool.Snapshot().Endpoints[0]
	choose := func(stream bool) *request.Decision {
		r := chatRequest("r", 1000)
		r.Stream = stream
		d, err := s.Choose(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	plain := choose(false)
	streamed := choose(true)
	now = now.Add(10 * time.Second)
	choose(true).Done(request.Outcome{Status: 200, Complete: true})
	if l := pool.LoadTracker().Local(ep, now); l.Waiting != 1 || l.Requests != 2 {
		t.Errorf("the streamed one waits: %+v", l)
	}
	plain.Done(request.Outcome{})
	streamed.Done(request.Outcome{})
	for range unseenFrom {
		choose(true).Done(request.Outcome{Status: 200, Complete: true})
	}
	unseen := choose(true)
	now = now.Add(10 * time.Second)
	s.unseen.Expire(now)
	if l := pool.LoadTracker().Local(ep, now); l.Waiting != 0 || l.Requests != 1 {
		t.Errorf("the unseen one waits for ever: %+v", l)
	}
	unseen.Done(request.Outcome{})
}

// unseenFrom is the score from which first tokens of streams count as unseen.
const unseenFrom = 8

// TestUnseenFirstTokensOfMovedRequests checks the same for a request that the proxy sent to another endpoint.
func TestUnseenFirstTokensOfMovedRequests(t *testing.T) {
	pool := newPool(2)
	s := newScheduler(t, Options{Pool: pool})
	for range unseenFrom {
		s.unseen.Ended(true, false)
	}
	r := chatRequest("r", 1000)
	r.Stream = true
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	first, second := pool.Snapshot().Endpoints[0], pool.Snapshot().Endpoints[1]
	if d.Endpoints[0] == second.Address {
		first, second = second, first
	}
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0, Status: 200, Served: second.Address})
	s.unseen.Expire(t0.Add(time.Minute))
	if a, b := pool.LoadTracker().Local(first, t0), pool.LoadTracker().Local(second, t0); a.Requests != 0 || b.Requests != 1 || b.Waiting != 0 {
		t.Errorf("%+v where it was meant to go, %+v where it went", a, b)
	}
	d.Done(request.Outcome{})
}

func TestExplain(t *testing.T) {
	pool, m := newPool(3), &fakeMatcher{tokens: []int32{0, 960, 480}}
	list := specs(4)
	list[3].Labels = map[string]string{endpoint.LabelRole: "prefill"}
	pool.Set(list)
	pool.Snapshot().Endpoints[0].SetGauges(endpoint.Gauges{At: t0.Add(-time.Second), Ranks: 4, Values: gauge.Values{Waiting: 2, Running: 3, KVUse: .5}})
	s := newScheduler(t, Options{Pool: pool, Matcher: m})
	d, err := s.Choose(context.Background(), chatRequest("r1", 1000))
	if err != nil {
		t.Fatal(err)
	}
	d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(50 * time.Millisecond)})
	d.Done(request.Outcome{At: t0.Add(time.Second), Status: 200, Complete: true})
	e, ok := s.Records().Explain("r1")
	if !ok {
		t.Fatal("not recorded")
	}
	got := []string{
		e.Choice, e.RunnerUp, fmt.Sprint(e.Margin), fmt.Sprint(e.Candidates[1].Matched["gpu"], e.Candidates[1].Blocks),
		e.Profiles[0].Rows[3].Dropped, fmt.Sprint(e.Profiles[0].Rows[2].Scores), fmt.Sprint(e.Profiles[0].Rows[2].Total),
		fmt.Sprint(e.Candidates[0].Load.Values.Waiting, e.Candidates[0].Load.GaugeAge), fmt.Sprint(e.Outcome.TTFT, e.Outcome.Took),
		fmt.Sprint(e.Candidates[1].Load.GaugeAge), fmt.Sprint(e.Candidates[0].Load.Ranks, e.Candidates[1].Load.Ranks),
	}
	want := []string{
		"10.0.0.1:8000", "10.0.0.2:8000", "480", "960 60", "decode", "[{new -520 1} {requests 0 1000}]", "-520", "2 1000", "50 1000", "-1", "4 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := json.Marshal(e); err != nil {
		t.Error(err)
	}
	dry, err := s.Explain(t.Context(), chatRequest("dry", 1000))
	if err != nil || dry.Choice != e.Choice || len(s.Records().Last(10)) != 1 {
		t.Errorf("dry run: %v %s, %d records", err, dry.Choice, len(s.Records().Last(10)))
	}
	if l := pool.LoadTracker().Local(pool.Snapshot().Endpoints[1], t0); l.Requests != 0 {
		t.Errorf("a dry run was booked: %+v", l)
	}
}

// TestRecordsWrap checks that old decisions are dropped, that late outcomes do not change another
// decision's record, and that records of large pools are truncated.
func TestRecordsWrap(t *testing.T) {
	pool := newPool(300)
	s := newScheduler(t, Options{Pool: pool, Records: Retention{Most: 2, Bytes: 1 << 20}})
	var all []*request.Decision
	for i := range 3 {
		r := chatRequest(fmt.Sprint("r", i), 10)
		r.Subset, r.HasSubset = []string{pool.Snapshot().Endpoints[i].Address}, i == 0
		d, err := s.Choose(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	all[0].Done(request.Outcome{Status: 500})
	if _, ok := s.Records().Explain("r0"); ok {
		t.Error("r0 is still there")
	}
	last := s.Records().Last(9)
	if len(last) != 2 || last[0].RequestID != "r2" || last[0].Outcome != nil || last[0].Omitted != 300-maxRecorded {
		t.Errorf("%d records, first %s, omitted %d", len(last), last[0].RequestID, last[0].Omitted)
	}
	for _, d := range all {
		d.Done(request.Outcome{})
	}
}

func TestChooseConcurrent(t *testing.T) {
	pool := newPool(16)
	s := newScheduler(t, Options{Pool: pool, Now: time.Now})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				r := chatRequest(fmt.Sprint(g, i), i*10)
				r.Session = fmt.Sprint("s", i%7)
				d, err := s.Choose(context.Background(), r)
				if err != nil {
					t.Error(err)
					return
				}
				d.Observe(request.Event{Kind: request.EventFirstToken, At: time.Now()})
				d.Observe(request.Event{Kind: request.EventTokens, At: time.Now(), Tokens: 20})
				d.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true})
				s.Records().Explain(r.ID)
			}
		})
	}
	wg.Go(func() {
		for i := range 50 {
			pool.Set(specs(8 + i%9))
		}
	})
	wg.Wait()
	for _, ep := range pool.Snapshot().Endpoints {
		if n := pool.LoadTracker().Local(ep, t0).Requests; n != 0 {
			t.Errorf("%s: %d requests left", ep.Address, n)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pool := newPool(n)
			s := newScheduler(b, Options{Pool: pool, Now: time.Now})
			r := chatRequest("r", 1000)
			b.ReportAllocs()
			for b.Loop() {
				d, err := s.Choose(context.Background(), r)
				if err != nil {
					b.Fatal(err)
				}
				d.Done(request.Outcome{})
			}
		})
	}
}

// TestPriorityOfUntrustedClients checks that an objective raises the priority of a trusted client.
// For an untrusted client it raises the priority only up to the operator's limit for untrusted
// clients. The request waits for capacity with this priority.
func TestPriorityOfUntrustedClients(t *testing.T) {
	for name, c := range map[string]struct {
		capped bool
		limit  int
		want   int
	}{
		"trusted":                              {capped: false, limit: 0, want: 100},
		"untrusted, limit 0":                   {capped: true, limit: 0, want: 0},
		"untrusted, limit 7":                   {capped: true, limit: 7, want: 7},
		"untrusted, limit above the objective": {capped: true, limit: 200, want: 100},
	} {
		t.Run(name, func(t *testing.T) {
			var waited []int
			s := newScheduler(t, Options{
				Pool: newPool(1), Gate: gateFunc(func(_ context.Context, r *request.Request) error {
					waited = append(waited, r.Priority)
					return nil
				}),
				Rules: &Rules{Handler: single{testProfile()}, Names: request.Names{Objectives: map[string]int{"vip": 100}}},
			})
			r := chatRequest("r", 10)
			r.Objective, r.Capped, r.MaxPriority = "vip", c.capped, c.limit
			d, err := s.Choose(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Done(request.Outcome{})
			if want := []int{c.want}; !slices.Equal(waited, want) {
				t.Errorf("request waited with priorities %v, want %v", waited, want)
			}
		})
	}
}
