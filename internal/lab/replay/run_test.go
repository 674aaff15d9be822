package replay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// small returns a generated load that keeps a small fleet busy for some
// minutes.
func small(t testing.TB, name string, rate float64, seed uint64) *trace.Trace {
	t.Helper()
	w, err := trace.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return w.Generate(trace.GenerateOptions{Rate: rate, Length: 4 * time.Minute, Seed: seed})
}

func read(t testing.TB, lines string, o trace.ReadOptions) *trace.Trace {
	t.Helper()
	tr, err := trace.Read(strings.NewReader(lines), o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func policy(t testing.TB, name string) Policy {
	t.Helper()
	p, err := PolicyByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// played returns the simulation of a case at its end.
func played(t testing.TB, c Case) *simulation {
	t.Helper()
	c, err := c.check()
	if err != nil {
		t.Fatal(err)
	}
	s, err := prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.play(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t testing.TB, c Case) *Result {
	t.Helper()
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func encoded(t testing.TB, c Case) string {
	t.Helper()
	raw, err := json.Marshal(run(t, c).Outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestDeterminism(t *testing.T) {
	for _, p := range Policies() {
		c := Case{Trace: small(t, "chat", 4, 3), Policy: p, Endpoints: 4, Replicas: 3, Share: 50 * time.Millisecond, Seed: 9}
		first := encoded(t, c)
		c.Trace = small(t, "chat", 4, 3)
		if encoded(t, c) != first {
			t.Errorf("%s: two runs differ", p.Name)
		}
		c.Trace = small(t, "chat", 4, 4)
		if encoded(t, c) == first {
			t.Errorf("%s: the seed changes nothing", p.Name)
		}
	}
}

// TestConservation checks that every request is answered exactly once, completely, and not before
// it is possible.
func TestConservation(t *testing.T) {
	parts.Full(t)
	for _, w := range trace.Workloads {
		for _, share := range []time.Duration{0, Cut} {
			c := Case{Trace: small(t, w.Name, 5, 1), Policy: policy(t, Default), Endpoints: 3, Replicas: 2, Share: share, Engine: engine.Config{Blocks: 600}}
			r := run(t, c)
			if r.Errors != 0 || r.Requests != len(c.Trace.Requests) {
				t.Fatalf("%s: %d requests, %d errors", w.Name, r.Requests, r.Errors)
			}
			for i, o := range r.Outcomes {
				q := &c.Trace.Requests[i]
				if o.First <= q.At || o.End < o.First || o.Cached < 0 || o.Cached >= q.Input || o.Endpoint < 0 || o.Endpoint >= 3 {
					t.Fatalf("%s: request %d at %v: %+v", w.Name, i, q.At, o)
				}
				if o.Cached%c.Trace.BlockSize != 0 {
					t.Fatalf("%s: %d cached tokens are no whole blocks", w.Name, o.Cached)
				}
			}
		}
	}
}

// TestBookIsEmptyAtTheEnd checks that every decision was released.
func TestBookIsEmptyAtTheEnd(t *testing.T) {
	c, err := Case{Trace: small(t, "agentic", 3, 1), Policy: policy(t, "unified"), Endpoints: 2, Replicas: 2}.check()
	if err != nil {
		t.Fatal(err)
	}
	s, err := prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.play(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.replicas {
		r.catchUp(never - time.Hour)
		for _, ep := range r.endpoints {
			if l := r.pool.LoadTracker().Load(ep, s.clock()); l.Requests != 0 || l.Waiting != 0 || l.Tokens != 0 || l.Prefill != 0 || l.Context != 0 {
				t.Errorf("replica %d, %s: %+v", r.number, ep.Address, l)
			}
		}
	}
}

// TestByHand plays a scenario that is worked out by hand: an engine whose step
// takes 10 ms and 1 ms for every prompt token, blocks of ten tokens.
func TestByHand(t *testing.T) {
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	trace, err := trace.Read(strings.NewReader(`
{"timestamp": 0,   "input_length": 25, "output_length": 3, "hash_ids": [1, 2, 3], "session_id": "a"}
{"timestamp": 5,   "input_length": 10, "output_length": 1, "hash_ids": [9], "session_id": "b"}
{"timestamp": 500, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 4, 5], "session_id": "a"}
`), trace.ReadOptions{BlockSize: 10, Spread: -1})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, Case{
		Trace: trace, Policy: policy(t, "load_only"), Endpoints: 1,
		Engine: engine.Config{Blocks: 100, Model: engine.Model{A: 10, B: 1000}},
	})
	want := []Outcome{
		// Alone: 10 + 25 ms. Then a step with the second prompt, 10 + 10 ms, and one without.
		{First: ms(35), End: ms(65)},
		{First: ms(55), End: ms(55)},
		// Blocks 1 and 2 are cached, 20 tokens are left: 10 + 20 ms.
		{First: ms(530), End: ms(530), Cached: 20},
	}
	if !slices.Equal(r.Outcomes, want) {
		t.Errorf("got  %+v\nwant %+v", r.Outcomes, want)
	}
	if r.HitRatio != 20./75 || r.Imbalance != 1 {
		t.Errorf("hit ratio %v, imbalance %v", r.HitRatio, r.Imbalance)
	}
	if d := r.TTFT.Mean - (.035+.050+.030)/3; d > 1e-9 || d < -1e-9 {
		t.Errorf("mean TTFT %v", r.TTFT.Mean)
	}
}

// TestOneReplicaIsSharingAtOnce: replicas that exchange everything without delay decide like a
// single replica. They exchange learned engine costs only once a second, so the load lasts long
// enough for that delay not to matter.
func TestOneReplicaIsSharingAtOnce(t *testing.T) {
	for _, name := range []string{"lmetric", "load_only", "sticky", "unified"} {
		c := Case{Trace: small(t, "chat", 6, 2), Policy: policy(t, name), Endpoints: 4, Speculate: time.Hour}
		one := encoded(t, c)
		c.Replicas, c.Share = 3, 0
		three := encoded(t, c)
		if name != "unified" && one != three { // unified takes turns by a counter of each replica
			t.Errorf("%s: three replicas decide otherwise than one", name)
		}
		c.Share = Cut
		if encoded(t, c) == three {
			t.Errorf("%s: cutting the sharing changes nothing", name)
		}
	}
}

// TestPoliciesAgainstReference checks that the built-in policies choose, request by request, like
// their simple reimplementations.
func TestPoliciesAgainstReference(t *testing.T) {
	for _, want := range []Policy{refLMetric, refLoadOnly, refSticky, refUnified} {
		for _, w := range []string{"chat", "agentic", "mixed"} {
			c := Case{Trace: small(t, w, 7, 5), Policy: want, Endpoints: 5, Seed: 4}
			a := encoded(t, c)
			c.Policy = policy(t, want.Name)
			if encoded(t, c) != a {
				t.Errorf("%s on %s: decisions differ", want.Name, w)
			}
		}
	}
}

// TestSlowEngineGetsLess checks that the default policy detects an engine that is four times slower
// than the others.
func TestSlowEngineGetsLess(t *testing.T) {
	share := func(name string) float64 {
		c := Case{Trace: small(t, "mixed", 5, 1), Policy: policy(t, name), Endpoints: 4, Slow: []float64{4}}
		input, slow := 0, 0
		for i, o := range run(t, c).Outcomes {
			input += c.Trace.Requests[i].Input - o.Cached
			if o.Endpoint == 0 {
				slow += c.Trace.Requests[i].Input - o.Cached
			}
		}
		return float64(slow) / float64(input)
	}
	if got, even := share(Default), share("sticky"); got > .75*even || got > .15 {
		t.Errorf("the slow engine does %.3f of the prefill, under sticky %.3f", got, even)
	}
}

func TestApproximateIndexFindsPrefixes(t *testing.T) {
	c := Case{Trace: small(t, "agentic", 2, 1), Policy: policy(t, Default), Endpoints: 3, Index: Approximate}
	if r := run(t, c); r.HitRatio < .8 {
		t.Errorf("hit ratio %v", r.HitRatio)
	}
}

func TestCaseErrors(t *testing.T) {
	tr := small(t, "chat", 1, 1)
	for _, c := range []Case{
		{Policy: policy(t, Default)}, {Trace: tr}, {Trace: tr, Policy: policy(t, Default), Endpoints: -1},
		{Trace: tr, Policy: policy(t, Default), Replicas: -1},
	} {
		if _, err := Run(context.Background(), c); !errors.Is(err, ErrCase) {
			t.Errorf("%v", err)
		}
	}
	refuse := Policy{Name: "refuse", Rules: func() (*picker.Rules, error) {
		rules, err := policy(t, Default).Rules()
		rules.Admit = func(*cycle.Cycle) error { return request.Errorf(request.ReasonSaturated, "no") }
		return rules, err
	}}
	r := run(t, Case{Trace: tr, Policy: refuse})
	if r.Errors != len(tr.Requests) || r.Outcomes[0].Error == "" {
		t.Errorf("%d errors", r.Errors)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Run(ctx, Case{Trace: tr, Policy: policy(t, Default)}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestSummary(t *testing.T) {
	v := make([]float64, 100)
	for i := range v {
		v[99-i] = float64(i + 1)
	}
	if got := summarise(v); got != (Summary{50.5, 51, 91, 100}) {
		t.Errorf("%+v", got)
	}
	if got := summarise(nil); got != (Summary{}) {
		t.Errorf("%+v", got)
	}
}

func TestPolicyNames(t *testing.T) {
	for _, name := range []string{"nobody", "sticky:x=1", "default:nothing=1", "default:ownWeight=x", "default:ownWeight=-1"} {
		if _, err := PolicyByName(name); err == nil {
			t.Errorf("%q is a policy", name)
		}
	}
	if _, err := PolicyByName("default:ownWeight=1;stallWeight=0"); err != nil {
		t.Error(err)
	}
}
