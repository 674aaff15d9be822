package monitor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// adapterWorld is four engines, one of which answers with errors, or not at all, what is asked
// of one adapter; 100 requests per second are one in twenty for that adapter.
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
	*picker.Decision
	ends   time.Time
	status int // 0: none comes, and the client leaves
}

func newAdapterWorld(t *testing.T) *adapterWorld {
	w := &adapterWorld{rig: newRig(t, 1, 4), rng: rand.New(rand.NewPCG(1, 2))}
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

// anyOf takes any candidate.
type anyOf struct{ w *adapterWorld }

func (a anyOf) Handle(c *picker.Cycle, plan *picker.Plan) error {
	plan.Order = append(plan.Order, int32(a.w.rng.IntN(c.Len())))
	return nil
}

// play sends ten requests each tick, for so long.
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
			q.Observe(picker.Event{Kind: picker.EventHeaders, At: w.now, Status: q.status, Served: q.Endpoints[0]})
		}
		q.Done(picker.Outcome{At: w.now, Status: q.status, Complete: q.status != 0, Served: q.Endpoints[0]})
	}
	w.flying = kept
}

// TestAdapterFails: one adapter that fails at one engine, with one of twenty of its
// requests, is placed elsewhere, while that engine goes on to serve all others; when it is well
// again, it is asked again.
func TestAdapterFails(t *testing.T) {
	for _, kind := range []string{"fails", "hangs"} {
		t.Run(kind, func(t *testing.T) {
			w := newAdapterWorld(t)
			w.play(10 * time.Second)
			w.kind, w.there = kind, 0
			w.play(20 * time.Second)
			found := w.failed
			w.failed = 0
			w.play(100 * time.Second)
			t.Logf("%d requests for the adapter failed until it was passed over, then %d of 500; %d of 11,400 for the base went there", found, w.failed, w.there)
			ep := w.p.pool.Snapshot().Endpoints[1]
			if v := w.p.pool.Health().View(int(ep.ID)); v.State != health.Healthy || len(ep.Shunned(nil, w.now)) != 1 {
				t.Errorf("the engine is %s (%s) and shuns %v", v.State, v.Cause, ep.Shunned(nil, w.now))
			}
			if found > 60 || w.failed > 10 || w.there < 2000 {
				t.Error("more is lost than may be")
			}
			w.kind = ""
			w.play(3 * time.Minute)
			if n := ep.Tracker().Shunned(); n != 0 {
				t.Errorf("it is well, and %d models are passed over", n)
			}
		})
	}
}
