package plugins

import (
	"context"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// fetching returns a fleet whose first endpoint has the prompt and a queue, and its scheduler with
// parameters of the default policy.
func fetching(t *testing.T, params string, list ...one) (*fleet, *picker.Scheduler) {
	t.Helper()
	f := newFleet(list...)
	profile := &cycle.Profile{
		Name:    "default",
		Scorers: []cycle.ProfileScorer{{Name: "cost", Weight: 1, Scorer: build(t, "predicted-ttft-scorer", params).Scorer}},
		Picker:  build(t, "max-score-picker", "").Picker,
	}
	s, err := picker.New(picker.Options{Pool: f.pool, Matcher: f, Rules: &picker.Rules{Handler: Single(profile)}, Now: func() time.Time { return t0 }, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f, s
}

var (
	busyHolder = one{held: 16_000, load: endpoint.Load{Requests: 12, Waiting: 12, Prefill: 60_000, Pairs: 3e8}}
	idle       = one{}
)

// An idle endpoint fetches a prompt from a busy endpoint that has it, and computes the rest. Until
// the first token, the load tracker counts the blocks to send, but no request, at the busy
// endpoint.
func TestFetch(t *testing.T) {
	f, s := fetching(t, `{"kvSource": "peers"}`, busyHolder, idle)
	r := ask(16_100)
	r.Stream = true
	e, err := s.Explain(context.Background(), ask(16_100))
	if err != nil {
		t.Fatal(err)
	}
	if p := e.Candidates[1].Predicted; p.Fetch <= 0 || p.Own >= 100 || e.Candidates[0].Predicted.Fetch != 0 {
		t.Errorf("explained as %+v and %+v", *e.Candidates[0].Predicted, *p)
	}
	if len(e.Stages) != 1 || e.Stages[0].Stage != "fetch" || e.Stages[0].Endpoint != "10.0.0.0:8000" || e.Stages[0].Missing != 16_100 {
		t.Errorf("stages %+v", e.Stages)
	}
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if d.Endpoints[0] != "10.0.0.1:8000" || len(d.SetHeaders) != 1 || d.SetHeaders[0] != (request.HeaderSet{Name: request.HeaderKVSource, Value: "10.0.0.0:8000"}) {
		t.Fatalf("placed at %v with %v", d.Endpoints, d.SetHeaders)
	}
	eps := f.pool.Snapshot().Endpoints
	load := func(i int) endpoint.Load { return f.pool.LoadTracker().Local(eps[i], t0) }
	if from, to := load(0), load(1); from.Moving != 16_000 || from.Requests != 0 || from.Waiting != 0 || to.Requests != 1 || to.Prefill != 100 || to.Moving != 0 {
		t.Errorf("booked %+v at the source, %+v at the endpoint that serves", from, to)
	}
	before := f.pool.Fetches().Seconds(&endpoint.DefaultTransfer, eps[0], eps[1], 16_000)
	d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(2 * time.Second)})
	if n := load(0); n.Moving != 0 || n.LastFirst != 0 {
		t.Errorf("after the first token the source has %+v", n)
	}
	d.Done(request.Outcome{At: t0.Add(3 * time.Second), Status: 200, Complete: true})
	if l := load(1); l.Requests != 0 || l.Tokens != 0 {
		t.Errorf("at the end %+v", l)
	}
	after := f.pool.Fetches().Seconds(&endpoint.DefaultTransfer, eps[0], eps[1], 16_000)
	if after < 2*before {
		t.Errorf("two seconds taught nothing: %.3f s, then %.3f s", before, after)
	}
	if c := eps[1].LocalCost(); c.PrefillSeen != 0 {
		t.Errorf("%v samples of a prefill that did not take place", c.PrefillSeen)
	}
}

// If fetching takes longer than computing, as when engines do not deliver, it stops. No fetch is
// requested if no other endpoint has a longer prefix, or if fetching is not configured.
func TestFetchPays(t *testing.T) {
	for name, c := range map[string]struct {
		params string
		list   []one
		want   bool
	}{
		"as it is":         {`{"kvSource": "peers"}`, []one{busyHolder, idle}, true},
		"off":              {``, []one{busyHolder, idle}, false},
		"slow network":     {`{"kvSource": "peers", "gigabytesPerSecond": {"zone": 0.01}}`, []one{busyHolder, idle}, false},
		"little held":      {`{"kvSource": "peers", "kvTokens": 20000}`, []one{busyHolder, idle}, false},
		"holder is idle":   {`{"kvSource": "peers"}`, []one{{held: 16_000}, idle}, false},
		"much to be sent":  {`{"kvSource": "peers"}`, []one{{held: 16_000, load: endpoint.Load{Requests: 12, Waiting: 12, Prefill: 60_000, Pairs: 3e8, Moving: 1e8}}, idle}, false},
		"another has less": {`{"kvSource": "peers"}`, []one{{held: 16_000, load: endpoint.Load{Requests: 12, Waiting: 12, Prefill: 60_000, Pairs: 3e8, Moving: 1e8}}, {held: 16_000, load: endpoint.Load{Requests: 12, Waiting: 12, Prefill: 60_000, Pairs: 3e8}}, idle}, true},
	} {
		_, s := fetching(t, c.params, c.list...)
		d, err := s.Choose(context.Background(), ask(16_100))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(d.SetHeaders) > 0; got != c.want {
			t.Errorf("%s: placed at %s with %v", name, d.Endpoints[0], d.SetHeaders)
		}
		if name == "another has less" && d.SetHeaders[0].Value != "10.0.0.1:8000" {
			t.Errorf("asks %s, which has much to send", d.SetHeaders[0].Value)
		}
	}

	f, s := fetching(t, `{"kvSource": "peers"}`, busyHolder, idle)
	for n := range 40 { // engines compute instead of fetching
		r := ask(16_100)
		r.Stream = true
		d, err := s.Choose(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.SetHeaders) == 0 {
			return
		}
		w := endpoint.Work{Input: 16_100, New: 16_100}
		computed := time.Duration((endpoint.PriorCost.Prefill(w) + endpoint.PriorCost.Base) * 1.1 * float64(time.Second))
		d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(computed)})
		d.Done(request.Outcome{At: t0.Add(computed), Status: 200, Complete: true})
		if n == 39 {
			t.Errorf("after 40 fetches that did not deliver it fetches still: %.3f s", f.pool.Fetches().Seconds(&endpoint.DefaultTransfer, f.pool.Snapshot().Endpoints[0], f.pool.Snapshot().Endpoints[1], 16_000))
		}
	}
}

// A fetch from a store names no endpoint, and no endpoint counts blocks to send.
func TestFetchFromStore(t *testing.T) {
	f, s := fetching(t, `{"kvSource": "store"}`, busyHolder, idle)
	d, err := s.Choose(context.Background(), ask(16_100))
	if err != nil {
		t.Fatal(err)
	}
	eps := f.pool.Snapshot().Endpoints
	if d.Endpoints[0] != "10.0.0.1:8000" || len(d.SetHeaders) > 0 {
		t.Errorf("placed at %s with %v", d.Endpoints[0], d.SetHeaders)
	}
	if from, to := f.pool.LoadTracker().Local(eps[0], t0), f.pool.LoadTracker().Local(eps[1], t0); from.Moving != 0 || to.Prefill != 100 {
		t.Errorf("booked %+v at the holder, %+v at the endpoint that serves", from, to)
	}
	if _, err := try("predicted-ttft-scorer", `{"kvSource": "thin air"}`); err == nil {
		t.Error("any source will do")
	}
}
