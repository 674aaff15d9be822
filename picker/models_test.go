package picker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// listing makes n endpoints. Endpoint i serves lists[i]; nil means that its models are unknown.
func listing(n int, rejects bool, lists ...[]string) *endpoint.Pool {
	pool := newPool(n)
	for i, names := range lists {
		if names == nil {
			continue
		}
		list := endpoint.ModelList{Rejects: rejects}
		for _, name := range names {
			list.Models = append(list.Models, endpoint.Model{Name: name})
		}
		pool.SetModels(pool.Snapshot().Endpoints[i].ID, list, t0)
	}
	return pool
}

// fakeLists records the endpoints asked, and may change the pool.
type fakeLists struct {
	confirmed, doubted int
	change             func()
}

func (f *fakeLists) Confirm(context.Context, string) {
	f.confirmed++
	if f.change != nil {
		f.change()
	}
}

func (f *fakeLists) Recheck(block.EndpointID) { f.doubted++ }

func TestPlacedByModel(t *testing.T) {
	llama, qwen := []string{"llama", "poet"}, []string{"qwen"}
	old := func() time.Time { return t0.Add(time.Minute) }
	f := func(name string, o Options, model string, want string) {
		t.Helper()
		s := newScheduler(t, o)
		for i := range 8 {
			r := chatRequest(fmt.Sprint("r", i), 100)
			r.Model, r.Target = model, model
			d, err := s.Choose(context.Background(), r)
			if err != nil {
				if got := request.ReasonOf(err).String(); got != want {
					t.Errorf("%s: %s: %v, want %s", name, model, err, want)
				}
				continue
			}
			for _, at := range d.Endpoints {
				ep := o.Pool.Snapshot().Index(at)
				if want == "" || !containsDigit(want, ep) {
					t.Errorf("%s: %s at endpoint %d, want one of %q", name, model, ep, want)
				}
			}
			d.Done(request.Outcome{Complete: true, Status: 200})
		}
	}
	two := listing(4, true, llama, qwen, llama, qwen)
	f("two models", Options{Pool: two}, "llama", "02")
	f("two models", Options{Pool: two}, "poet", "02")
	f("two models", Options{Pool: two}, "qwen", "13")
	f("nobody serves it", Options{Pool: two}, "gpt", "model_not_found")
	f("nobody serves it, old lists", Options{Pool: two, Now: old}, "gpt", "0123")
	f("nobody serves it, any engine", Options{Pool: two, PlaceUnknown: true}, "gpt", "0123")
	some := listing(4, true, llama, qwen, nil, nil)
	f("some are unknown", Options{Pool: some}, "llama", "0")
	f("some are unknown", Options{Pool: some}, "gpt", "23")
	f("engines that take any name", Options{Pool: listing(2, false, llama, qwen)}, "gpt", "01")
	f("engines that take any name", Options{Pool: listing(2, false, llama, qwen)}, "llama", "0")
	f("nothing is known", Options{Pool: newPool(3)}, "gpt", "012")

	files := specs(3)
	files[0].Models, files[1].Models = []string{"llama"}, []string{"qwen", "qwen2"}
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(files)
	f("models by file", Options{Pool: pool}, "qwen2", "1")
	f("models by file", Options{Pool: pool}, "gpt", "2")
	pool.Set(files[:2])
	f("a file is no proof", Options{Pool: pool}, "gpt", "01")
}

func containsDigit(digits string, n int) bool {
	for _, d := range digits {
		if int(d-'0') == n {
			return true
		}
	}
	return false
}

// Engines accept requests without a model as requests for the only model that they serve.
func TestNoModel(t *testing.T) {
	f := func(name string, pool *endpoint.Pool, r *request.Request, model, refused string) {
		t.Helper()
		_, err := newScheduler(t, Options{Pool: pool}).Choose(context.Background(), r)
		if err != nil || refused != "" {
			if err == nil || !strings.Contains(err.Error(), refused) || request.ReasonOf(err) != request.ReasonBadRequest {
				t.Errorf("%s: %v, want %q", name, err, refused)
			}
			return
		}
		if r.Model != model || r.NoModel && r.Target != model {
			t.Errorf("%s: placed as %q, sent as %q, want %q", name, r.Model, r.Target, model)
		}
	}
	of := func(kind request.Kind, target string) *request.Request {
		r := chatRequest("r", 10)
		r.Kind, r.Model, r.Target, r.NoModel = kind, "", target, true
		return r
	}
	one, two := listing(2, true, []string{"llama", "poet"}, []string{"llama"}), listing(2, true, []string{"llama"}, []string{"qwen"})
	f("one model", one, of(request.KindChat, ""), "llama", "")
	f("one model, one endpoint unknown", listing(3, true, []string{"llama"}, []string{"llama"}), of(request.KindChat, ""), "", "")
	f("nothing known", newPool(2), of(request.KindChat, ""), "", "")
	f("two models", two, of(request.KindChat, ""), "", "the pool serves several")
	f("two models, SGLang's own", two, of(request.KindGenerate, ""), "", "")
	f("two models, something else", two, of(request.KindOther, ""), "", "")
	for _, target := range []string{"", "llama"} { // the proxy withholds bodies, so there may be a model
		unread := of(request.KindChat, target)
		unread.NoModel = false
		f("not read", two, unread, "", "")
	}
	f("to be rewritten", one, of(request.KindChat, "poet"), "", "no model that could be rewritten")
}

// The lists are read again before a name is refused, and when an engine refuses a name that it has
// listed.
func TestListsConfirmed(t *testing.T) {
	pool := listing(2, true, []string{"llama"}, []string{"qwen"})
	lists := &fakeLists{change: func() {
		pool.SetModels(pool.Snapshot().Endpoints[1].ID, endpoint.ModelList{Rejects: true, Models: []endpoint.Model{{Name: "qwen"}, {Name: "new", Parent: "qwen"}}}, t0)
	}}
	s := newScheduler(t, Options{Pool: pool, Lists: lists})
	ask := func(model string) (*request.Decision, error) {
		r := chatRequest("r", 10)
		r.Model, r.Target = model, model
		return s.Choose(context.Background(), r)
	}
	d, err := ask("new")
	if err != nil || d.Endpoints[0] != pool.Snapshot().Endpoints[1].Address || lists.confirmed != 1 {
		t.Fatalf("%v, %v after %d confirmations", d, err, lists.confirmed)
	}
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0, Status: 404})
	d.Done(request.Outcome{At: t0, Status: 404, Complete: true})
	if lists.doubted != 1 {
		t.Errorf("%d doubts after an engine's 404", lists.doubted)
	}
	if d, err = ask("llama"); err != nil || lists.confirmed != 1 {
		t.Errorf("a model that is served was confirmed: %v", err)
	}
	d.Done(request.Outcome{Complete: true})
	if _, err := ask("gpt"); request.ReasonOf(err) != request.ReasonModelNotFound || lists.confirmed != 2 {
		t.Errorf("%v after %d confirmations", err, lists.confirmed)
	}
}

// The Gate is called before the prompt is rendered and before the pool is read.
func TestGate(t *testing.T) {
	pool := newPool(0)
	rendered := false
	gate := gateFunc(func(ctx context.Context, r *request.Request) error {
		if rendered {
			t.Error("the prompt was rendered before the wait")
		}
		if r.Priority < 0 {
			return request.Errorf(request.ReasonTTLExpired, "waited too long")
		}
		pool.Set(specs(1))
		return nil
	})
	s := newScheduler(t, Options{Pool: pool, Gate: gate, Prompts: prompts{&rendered},
		Rules: &Rules{Handler: single{testProfile()}, Names: request.Names{Objectives: map[string]int{"batch": -1}}}})
	r := chatRequest("r", 10)
	r.Objective = "batch"
	if _, err := s.Choose(context.Background(), r); request.ReasonOf(err) != request.ReasonTTLExpired {
		t.Errorf("a request that the gate refuses: %v", err)
	}
	d, err := s.Choose(context.Background(), chatRequest("r", 10))
	if err != nil {
		t.Fatalf("the pool that came while it waited is not seen: %v", err)
	}
	d.Done(request.Outcome{})
}

// A request for an unserved model does not wait, unless unlisted models are allowed or an engine
// accepts names that it does not list.
func TestGateForUnservedModels(t *testing.T) {
	for _, c := range []struct{ rejects, place, waits bool }{{true, false, false}, {true, true, true}, {false, false, true}} {
		waits := false
		gate := gateFunc(func(context.Context, *request.Request) error {
			waits = true
			return nil
		})
		s := newScheduler(t, Options{Pool: listing(2, c.rejects, []string{"llama"}, []string{"llama"}), Gate: gate, PlaceUnknown: c.place})
		r := chatRequest("r", 10)
		r.Model, r.Target = "gpt", "gpt"
		d, err := s.Choose(context.Background(), r)
		if err == nil {
			d.Done(request.Outcome{})
		}
		if waits != c.waits || (err == nil) != c.waits {
			t.Errorf("%+v: waited %v, %v", c, waits, err)
		}
	}
}

// prompts records that a prompt was rendered.
type prompts struct{ rendered *bool }

func (p prompts) Fill(context.Context, *request.Request) { *p.rendered = true }
func (prompts) Release(*request.Request)                 {}

type gateFunc func(context.Context, *request.Request) error

func (f gateFunc) Enter(ctx context.Context, r *request.Request) (Permit, QueueEntry, error) {
	return Permit{}, nil, f(ctx, r)
}

func (gateFunc) Leave(Permit, float64) {}

// BenchmarkModels schedules requests for one model after the other in a pool of 400 endpoints. All
// serve one model, or several models have equal numbers of endpoints. For comparison it uses pools
// with only the endpoints of one model.
func BenchmarkModels(b *testing.B) {
	for _, c := range []struct{ models, each int }{{1, 400}, {2, 200}, {20, 20}, {100, 4}, {1, 200}, {1, 20}, {1, 4}} {
		b.Run(fmt.Sprintf("models=%d/endpoints=%d", c.models, c.models*c.each), func(b *testing.B) {
			lists := make([][]string, c.models*c.each)
			for i := range lists {
				lists[i] = []string{fmt.Sprintf("model-%d", i%c.models)}
			}
			s := newScheduler(b, Options{Pool: listing(len(lists), true, lists...)})
			var asks []*request.Request
			for i := range c.models {
				r := chatRequest(fmt.Sprint("r", i), 1000)
				r.Model, r.Target = lists[i][0], lists[i][0]
				asks = append(asks, r)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d, err := s.Choose(context.Background(), asks[i%len(asks)])
				if err != nil {
					b.Fatal(err)
				}
				d.Done(request.Outcome{At: t0, Complete: true, Status: 200})
			}
		})
	}
}

// TestManyModels: no request and no retry is sent to an engine of another model. The pool has two,
// twenty or a hundred models; some endpoints are unhealthy, including all endpoints of some models.
func TestManyModels(t *testing.T) {
	for _, models := range []int{2, 20, 100} {
		lists := make([][]string, 400)
		for i := range lists {
			lists[i] = []string{fmt.Sprint("model-", i%models), fmt.Sprint("adapter-", i%models)}
		}
		pool := listing(len(lists), true, lists...)
		set := health.NewSet(health.Options{})
		for i, ep := range pool.Snapshot().Endpoints {
			set.Join(int(ep.ID), lists[i][0], t0)
			seen := health.Evidence{Good: 200, Answered: health.Never, Moved: health.Never}
			if i%7 == 0 || i%models == 1 { // including all endpoints of the second model
				seen.Good, seen.Bad[health.Failed] = 0, 8
			}
			set.Receive("", int(ep.ID), seen, t0)
		}
		set.Step(t0)
		pool.SetHealth(set.Snapshot())
		s := newScheduler(t, Options{Pool: pool})
		if !slices.ContainsFunc(pool.Snapshot().Endpoints, (*endpoint.Endpoint).Down) {
			t.Fatal("no endpoint is out")
		}
		placed, out := 0, 0
		for i := range 1000 {
			r := chatRequest(fmt.Sprint("r", i), 100)
			r.Model = lists[i*17%len(lists)][i%2]
			r.Target = r.Model
			d, err := s.Choose(context.Background(), r)
			if err != nil {
				t.Fatalf("%d models: %s: %v", models, r.Model, err)
			}
			for _, at := range d.Endpoints {
				placed++
				ep := pool.Snapshot().Index(at)
				if !slices.Contains(lists[ep], r.Model) {
					t.Fatalf("%d models: a request for %s may go to an engine of %v", models, r.Model, lists[ep])
				}
				if pool.Snapshot().Endpoints[ep].Down() {
					out++
				}
			}
			d.Done(request.Outcome{Complete: true, Status: 200})
		}
		if placed < 1000 || out > 0 {
			t.Errorf("%d models: %d destinations, %d of them are out", models, placed, out)
		}
	}
}
