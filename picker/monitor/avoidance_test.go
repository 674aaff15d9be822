package monitor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// adapterWorld has four engines. One of these fails or hangs for requests of one adapter. There are
// 100 requests per second, one in twenty for that adapter.
type adapterWorld struct {
	*rig
	p      *rigReplica
	picker *picker.Scheduler
	rng    *rand.Rand
	kind   string // "": all is well
	flying []adapterRequest
	asked  int
	failed int // for the adapter
	there  int // for the base, at that engine
}

type adapterRequest struct {
	*request.Decision
	ends   time.Time
	status int // 0: no answer, and the client leaves
}

func newAdapterWorld(t *testing.T, replicas int) *adapterWorld {
	w := &adapterWorld{rig: newRig(t, replicas, 4), rng: rand.New(rand.NewPCG(1, 2))}
	w.p = w.replicas[0]
	for _, ep := range w.p.pool.Snapshot().Endpoints {
		w.p.pool.SetModels(ep.ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "base"}, {Name: "adapter", Parent: "base"}}}, w.now)
	}
	var err error
	w.picker, err = picker.New(picker.Options{Pool: w.p.pool, Now: func() time.Time { return w.now }, Rules: &picker.Rules{Handler: anyOf{w}}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// anyOf chooses any candidate.
type anyOf struct{ w *adapterWorld }

func (a anyOf) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	plan.Order = append(plan.Order, int32(a.w.rng.IntN(c.Len())))
	return nil
}

// play sends ten requests each tick, for the given time.
func (w *adapterWorld) play(d time.Duration) {
	w.pass(d, nil, func(_ int, ep *endpoint.Endpoint) {
		if ep.ID != 0 {
			return
		}
		for range 10 {
			w.ask()
		}
		w.end()
	})
}

func (w *adapterWorld) ask() {
	w.asked++
	model := "base"
	if w.asked%20 == 0 {
		model = "adapter"
	}
	d, err := w.picker.Choose(context.Background(), &request.Request{
		ID: fmt.Sprint(w.asked), Path: "/v1/completions", Kind: request.KindCompletions, Model: model, Target: model, InputTokens: 100, MaxTokens: 10, User: fmt.Sprint(w.asked),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	q := adapterRequest{d, w.now.Add(300 * time.Millisecond), 200}
	bad := d.Endpoints[0] == w.p.pool.Snapshot().Endpoints[1].Address
	switch {
	case bad && model == "base":
		w.there++
	case bad && w.kind == "fails":
		q.status, w.failed = 500, w.failed+1
	case bad && w.kind == "hangs":
		q.ends, q.status, w.failed = w.now.Add(30*time.Second), 0, w.failed+1
	}
	w.flying = append(w.flying, q)
}

func (w *adapterWorld) end() {
	kept := w.flying[:0]
	for _, q := range w.flying {
		switch {
		case w.now.Before(q.ends):
			kept = append(kept, q)
			continue
		case q.status != 0:
			q.Observe(request.Event{Kind: request.EventHeaders, At: w.now, Status: q.status, Served: q.Endpoints[0]})
		}
		q.Done(request.Outcome{At: w.now, Status: q.status, Complete: q.status != 0, Served: q.Endpoints[0]})
	}
	w.flying = kept
}

// TestAdapterFails: if one adapter fails at one engine, with one of twenty requests, its requests
// are sent to other engines. The engine still serves all other requests. When the adapter recovers,
// the engine gets its requests again.
func TestAdapterFails(t *testing.T) {
	for _, kind := range []string{"fails", "hangs"} {
		t.Run(kind, func(t *testing.T) {
			w := newAdapterWorld(t, 1)
			w.play(10 * time.Second)
			w.kind, w.there = kind, 0
			w.play(20 * time.Second)
			found := w.failed
			w.failed = 0
			w.play(100 * time.Second)
			t.Logf("%d requests for the adapter failed until it was passed over, then %d of 500; %d of 11,400 for the base went there", found, w.failed, w.there)
			ep := w.p.pool.Snapshot().Endpoints[1]
			if v := w.p.pool.Health().View(int(ep.ID)); v.State != health.Healthy || len(ep.AvoidedModels(nil, w.now)) != 1 {
				t.Errorf("the engine is %s (%s) and avoids %v", v.State, v.Cause, ep.AvoidedModels(nil, w.now))
			}
			if found > 60 || w.failed > 10 || w.there < 2000 {
				t.Error("more is lost than may be")
			}
			w.kind = ""
			w.play(3 * time.Minute)
			if n := ep.Tracker().AvoidedCount(); n != 0 {
				t.Errorf("it is well, and %d models are passed over", n)
			}
		})
	}
}

// TestFailsSharedModels: evidence of one replica against a model at an engine reaches the others,
// and so does its end.
func TestFailsSharedModels(t *testing.T) {
	r := newRig(t, 3, 2)
	r.pass(time.Second, nil, nil)
	const base, adapter = 1, 2
	at := func(replica int) *health.Tracker { return r.replicas[replica].pool.Snapshot().Endpoints[1].Tracker() }
	ask := func(replica int, model uint64, c health.Cause) {
		w := health.Watch{Traits: health.Traits{model}}
		at(replica).Begin(&w, r.now, r.now.Add(time.Second))
		w.End(r.now, c)
	}
	f := func(what string, want ...bool) {
		t.Helper()
		r.pass(500*time.Millisecond, nil, nil)
		for i := range r.replicas {
			if got := at(i).Avoids(adapter, r.now); got != want[i] || at(i).Avoids(base, r.now) {
				t.Errorf("%s: replica %d passes it over: %v", what, i, got)
			}
		}
	}
	fails := func(replica int) {
		for range 3 {
			ask(replica, adapter, health.Failed)
			for range 20 { // the engine itself is healthy
				ask(replica, base, health.None)
			}
			r.pass(time.Second, nil, nil)
		}
		ask(replica, adapter, health.Failed)
	}
	fails(0)
	f("it fails at the first", true, true, true)
	r.pass(20*time.Second, nil, nil)
	f("one may be tried", false, false, false)
	ask(1, adapter, health.Failed) // by the second
	f("which fails", true, true, true)
	r.pass(40*time.Second, nil, nil)
	ask(1, adapter, health.None)
	r.pass(time.Second, nil, nil)
	if n := at(2).AvoidedCount(); n != 0 {
		t.Errorf("it is well, as the second has found: the third passes %d models over", n)
	}
	f("it is well", false, false, false)
	for i := range r.replicas {
		if n := at(i).AvoidedCount(); n != 0 {
			t.Errorf("it is well, and replica %d passes %d models over", i, n)
		}
	}

	r.cut = true
	fails(2)
	f("they cannot hear each other", false, false, true)
}
