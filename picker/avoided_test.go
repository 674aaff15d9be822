package picker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestExplainAvoided: an explanation contains every endpoint of the pool, either as a candidate or
// with the reason for its exclusion.
func TestExplainAvoided(t *testing.T) {
	list := specs(8)
	list[7].Labels = map[string]string{endpoint.LabelRole: "prefill"}
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return t0 }})
	pool.Set(list)
	eps := pool.Snapshot().Endpoints
	for i, ep := range eps {
		name := "m"
		if i == 5 {
			name = "other"
		}
		pool.SetModels(ep.ID, endpoint.ModelList{Rejects: true, Models: []endpoint.Model{{Name: name}}}, t0)
	}
	eps[0].Tracker().SetFull(t0, 3*time.Second)
	for range 4 { // it fails only this model
		for _, c := range []health.Cause{health.Failed, health.None} {
			w := health.Watch{Traits: health.Traits{endpoint.ModelKey("m")}}
			if c == health.None {
				w.Traits[health.TraitModel] = endpoint.ModelKey("another")
			}
			eps[1].Tracker().Begin(&w, t0, t0.Add(time.Second))
			w.End(t0, c)
		}
	}
	set := health.NewSet(health.Options{})
	for _, ep := range eps {
		set.Join(int(ep.ID), "m", t0)
		seen := health.Evidence{Good: 200, Answered: health.Never, Moved: health.Never}
		if ep == eps[2] {
			seen.Good, seen.Bad[health.Failed] = 0, 8
		}
		set.Receive("", int(ep.ID), seen, t0)
	}
	set.Step(t0)
	pool.SetHealth(set.Snapshot())
	eps[3].SetPermits(1)
	var ticket endpoint.Ticket
	pool.LoadTracker().Open(&ticket, eps[3], endpoint.Work{}, t0)
	s := newScheduler(t, Options{Pool: pool})

	f := func(r *request.Request, candidates string, want map[int]explanation.Avoided) {
		t.Helper()
		if d, err := s.Choose(context.Background(), r); err == nil {
			defer d.Done(request.Outcome{At: t0})
		}
		e, _ := s.Records().Explain(r.ID)
		got, are := map[int]explanation.Avoided{}, ""
		for _, c := range e.Candidates {
			are += fmt.Sprint(pool.Snapshot().Index(c.Endpoint))
		}
		for _, a := range e.Avoided {
			i := pool.Snapshot().Index(a.Endpoint)
			a.Endpoint = ""
			got[i] = a
		}
		if d := cmp.Diff(want, got); d != "" || are != candidates || len(e.Candidates)+len(e.Avoided) != len(eps) {
			t.Errorf("%s: candidates %s, want %s; avoided: %s", r.ID, are, candidates, d)
		}
	}
	usual := map[int]explanation.Avoided{
		0: {Reason: explanation.AvoidedFull, More: 3}, 1: {Reason: explanation.AvoidedModelFails, More: 20}, 2: {Reason: explanation.AvoidedHealth},
		3: {Reason: explanation.AvoidedPlaces}, 5: {Reason: explanation.AvoidedModel},
	}
	f(chatRequest("chat", 10), "467", usual)
	some := chatRequest("subset", 10)
	some.HasSubset, some.Subset = true, []string{eps[0].Address, eps[4].Address, eps[5].Address}
	f(some, "4", map[int]explanation.Avoided{
		0: usual[0], 1: {Reason: explanation.AvoidedSubset}, 2: {Reason: explanation.AvoidedSubset}, 3: {Reason: explanation.AvoidedSubset}, 5: usual[5],
		6: {Reason: explanation.AvoidedSubset}, 7: {Reason: explanation.AvoidedSubset},
	})
	other := chatRequest("files", 10)
	other.Kind = request.KindOther
	f(other, "46", map[int]explanation.Avoided{0: usual[0], 1: usual[1], 2: usual[2], 3: usual[3], 5: usual[5], 7: {Reason: explanation.AvoidedRole}})
	none := chatRequest("nobody serves it", 10)
	none.Model, none.Target = "nobody", "nobody"
	all := map[int]explanation.Avoided{}
	for i := range eps {
		all[i] = explanation.Avoided{Reason: explanation.AvoidedModel}
	}
	f(none, "", all)

	killer := chatRequest("killer", 10)
	killer.Body = []byte("poison")
	s.prompts.Failed(killer.PromptKey(), 4, t0)
	s.prompts.Failed(killer.PromptKey(), 6, t0)
	pool.LoadTracker().Open(new(endpoint.Ticket), eps[6], endpoint.Work{}, t0)
	usual[6] = explanation.Avoided{Reason: explanation.AvoidedPrompt}
	f(killer, "47", usual)
}

// TestExplainPinned: a follow-up to a stored response has only the engine that stores it as
// candidate.
func TestExplainPinned(t *testing.T) {
	pool := newPool(3)
	s := newScheduler(t, Options{Pool: pool})
	r := chatRequest("first", 10)
	r.Kind = request.KindResponses
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	at := d.Endpoints[0]
	d.Done(request.Outcome{At: t0, Status: 200, Complete: true, Served: at, ResponseID: "resp_1"})
	next := chatRequest("next", 10)
	next.Kind, next.Previous = request.KindResponses, "resp_1"
	if d, err = s.Choose(context.Background(), next); err != nil {
		t.Fatal(err)
	}
	d.Done(request.Outcome{At: t0})
	e, _ := s.Records().Explain("next")
	if e.Choice != at || len(e.Avoided) != 2 || e.Avoided[0].Reason != explanation.AvoidedConversation {
		t.Errorf("chosen %s, kept by %s, avoided %+v", e.Choice, at, e.Avoided)
	}
}

// TestLongModels: models whose names share a beginning longer than the stored part are
// distinguished when one fails. Each stays one model when its request is dropped.
func TestLongModels(t *testing.T) {
	for _, n := range []int{255, 256, 257, 300, 400, 512} {
		begin := strings.Repeat("m", n-1)
		bad, good := begin+"a", begin+"b"
		pool := newPool(1)
		ep := pool.Snapshot().Endpoints[0]
		pool.SetModels(ep.ID, endpoint.ModelList{Models: []endpoint.Model{{Name: bad}, {Name: good}}}, t0)
		s := newScheduler(t, Options{Pool: pool})
		for i := range 8 {
			r, status := chatRequest(fmt.Sprint(i), 10), 200
			if r.Model = good; i%2 == 0 {
				r.Model, status = bad, 500
			}
			r.Target = r.Model
			d, err := s.Choose(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			r.Drop()
			d.Observe(request.Event{Kind: request.EventHeaders, At: t0, Status: status})
			d.Done(request.Outcome{At: t0, Status: status, Complete: true})
		}
		found, _ := ep.Tracker().Found(nil, t0)
		if len(found) != 1 || found[0].Model != endpoint.ModelKey(bad) {
			t.Errorf("%d bytes: %v fail, want one model", n, found)
		}
		if got := ep.AvoidedModels(nil, t0); len(got) != 1 || got[0] != bad {
			t.Errorf("%d bytes: %d names are avoided", n, len(got))
		}
	}
}
