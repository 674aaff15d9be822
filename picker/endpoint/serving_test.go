package endpoint

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestIndexFollows checks that an incrementally updated index equals a new one.
func TestIndexFollows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	p := newPool(7)
	for step := range 500 {
		ep := p.Snapshot().Endpoints[rng.IntN(7)]
		list := ModelList{Rejects: rng.IntN(2) == 0}
		for range rng.IntN(5) {
			m := Model{Name: fmt.Sprint("m", rng.IntN(6))}
			if rng.IntN(3) == 0 {
				m.Parent = fmt.Sprint("m", rng.IntN(2))
			}
			list.Models = append(list.Models, m)
		}
		before := p.Snapshot()
		kept := fmt.Sprint(*before.models)
		p.SetModels(ep.ID, list, t0)
		if fmt.Sprint(*before.models) != kept {
			t.Fatalf("step %d: an index that is in use has changed", step)
		}
		got, want := *p.Snapshot().models, *newModelIndex(p.Snapshot().Endpoints)
		if !reflect.DeepEqual(got.byName, want.byName) || !reflect.DeepEqual(got.bases, want.bases) || fmt.Sprint(got.open) != fmt.Sprint(want.open) {
			t.Fatalf("step %d: %+v, want %+v", step, got, want)
		}
		if len(got.names) != len(want.names) {
			t.Fatalf("step %d: %v, want %v", step, got.names, want.names)
		}
		for i := range got.names { // of several parents, one
			if got.names[i].Name != want.names[i].Name {
				t.Fatalf("step %d: %v, want %v", step, got.names, want.names)
			}
		}
	}
}

// TestModelsLearnApart checks that two models of very different speed in one pool learn separate
// constants, also at endpoints without samples.
func TestModelsLearnApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	p := newPool(8)
	speed := map[string]trueCost{"small": {.004, 12e-6, .2e-9, .1}, "large": {.06, 300e-6, 4e-9, .1}}
	step := map[string]float64{"small": .006, "large": .06}
	name := func(i int) string { return [...]string{"small", "large"}[i%2] }
	for i, ep := range p.Snapshot().Endpoints {
		p.SetModels(ep.ID, ModelList{Models: []Model{{Name: name(i)}, {Name: fmt.Sprint("adapter-", i%2), Parent: name(i)}}}, t0)
	}
	for n := range 400 {
		i := n % 6 // the last two get no samples
		ep, w := p.Snapshot().Endpoints[i], drawWork(rng)
		p.LearnPrefill(ep, &Queued{Own: w, At: t0}, speed[name(i)].ttft(rng, w))
		p.LearnStep(ep, 8, 8000, step[name(i)], t0)
	}
	for i, ep := range p.Snapshot().Endpoints {
		c := ep.Cost()
		if off := worst(c, speed[name(i)]); off > 1.3 {
			t.Errorf("endpoint %d of %s: predictions are off by a factor of %.2f: %+v", i, name(i), off, *c)
		}
		if got, want := c.StepOf(8, 8000), step[name(i)]; got < want/1.2 || got > want*1.2 {
			t.Errorf("endpoint %d of %s: a step takes %.4f s, want %.4f", i, name(i), got, want)
		}
	}
	// The unobstructed prefill time is separate for each model as well.
	if a, b := p.Snapshot().Endpoints[6].Cost().Idle, p.Snapshot().Endpoints[7].Cost().Idle; b < 5*a {
		t.Errorf("idle factors %.2f and %.2f", a, b)
	}
}

// TestAnotherModel checks that an engine with another base model counts as another engine, and that
// adapters and aliases may change.
func TestAnotherModel(t *testing.T) {
	p := newPool(1)
	ep := func() *Endpoint { return p.Snapshot().Endpoints[0] }
	reborn := 0
	p.Subscribe(func(c Change) { reborn += len(c.Restarted) })
	serve := func(models ...Model) { p.SetModels(ep().ID, ModelList{Models: models}, t0) }
	llama, qwen, poet := Model{Name: "llama"}, Model{Name: "qwen"}, Model{Name: "poet", Parent: "llama"}
	serve(llama)
	for range 20 {
		p.LearnPrefill(ep(), &Queued{Own: Work{1000, 1000}, At: t0}, 3*time.Second)
	}
	ep().SetRemoteCost(Cost{Base: 1, PerToken: 1, PerPair: 1, PrefillSeen: 10})
	slow := ep().Cost().PerToken
	serve(llama, poet)
	serve(Model{Name: "alias"}, llama)
	serve(llama)
	if reborn != 0 || ep().Cost().PerToken != slow {
		t.Fatalf("names came and went: %d new lives, %+v", reborn, *ep().Cost())
	}
	serve(qwen)
	if c := ep().Cost(); reborn != 1 || c.PerToken > 2*PriorCost.PerToken || c.PrefillSeen != 0 || len(p.Snapshot().ByBaseModel("llama")) != 0 {
		t.Errorf("another model: %d new lives, %+v", reborn, *c)
	}
	if n := len(p.fleets.all); n != 0 {
		t.Errorf("%d models without an endpoint are stored", n)
	}
}

// TestBase checks that discovery's name counts until the engine's list contradicts it.
func TestBase(t *testing.T) {
	list := specs(1)
	list[0].Models = []string{"llama", "old"}
	p := NewPool(PoolOptions{})
	p.Set(list)
	ep := p.Snapshot().Endpoints[0]
	for _, c := range []struct {
		models []Model
		want   string
	}{
		{nil, "llama"},
		{[]Model{{Name: "a", Parent: "llama"}, {Name: "b"}, {Name: "llama"}}, "llama"},
		{[]Model{{Name: "old"}}, "old"},
		{[]Model{{Name: "a", Parent: "qwen"}, {Name: "qwen"}}, "qwen"},
	} {
		if c.models != nil {
			p.SetModels(ep.ID, ModelList{Models: c.models}, t0)
		}
		if got := ep.Base(); got != c.want || len(p.Snapshot().ByBaseModel(c.want)) != 1 {
			t.Errorf("%v: base %q, want %q", c.models, got, c.want)
		}
	}
}

// BenchmarkSetModels sets the lists of a pool of 100 models, one by one.
func BenchmarkSetModels(b *testing.B) {
	p := newPool(6400)
	lists := make([]ModelList, len(p.Snapshot().Endpoints))
	for i := range lists {
		base := fmt.Sprint("model-", i%100)
		lists[i].Models = []Model{{Name: base}}
		for a := range 8 {
			lists[i].Models = append(lists[i].Models, Model{Name: fmt.Sprint(base, "-", a), Parent: base})
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l := &lists[i%len(lists)]
		l.Rejects = i/len(lists)%2 == 0
		p.SetModels(p.Snapshot().Endpoints[i%len(lists)].ID, *l, t0)
	}
}
