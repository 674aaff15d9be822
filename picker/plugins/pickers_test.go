package plugins

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func (f *fleet) order(p cycle.Picker, totals ...float64) []int32 {
	c := f.cycle(ask(1))
	defer c.Free()
	return p.Pick(c, totals, nil)
}

func fleetOf(n int) *fleet { return newFleet(make([]one, n)...) }

func TestMaxScore(t *testing.T) {
	f := fleetOf(5)
	p := build(t, "max-score-picker", `{"maxNumOfEndpoints":4}`).Picker
	if diff := cmp.Diff([]int32{3, 0, 4, 1}, f.order(p, 2, -1, -3, 5, 0)); diff != "" {
		t.Error(diff)
	}
	firsts := map[int32]int{}
	for range 3000 {
		order := f.order(p, 1, 0, 1, 0, 1)
		firsts[order[0]]++
		if order[3] != 1 && order[3] != 3 {
			t.Fatalf("%v", order)
		}
	}
	for _, k := range []int32{0, 2, 4} {
		if n := firsts[k]; n < 900 || n > 1100 {
			t.Errorf("ties are not even: %v", firsts)
		}
	}
	if got := f.order(build(t, "max-score-picker", "").Picker, 1, 2, 3, 4, 5); len(got) != 3 {
		t.Errorf("by default %v", got)
	}
	if got := f.order(p, math.Inf(-1), math.Inf(-1)); len(got) != 2 {
		t.Errorf("worthless candidates are candidates: %v", got)
	}
}

func TestRandomPickers(t *testing.T) {
	f := fleetOf(4)
	share := func(typ string, totals ...float64) [4]float64 {
		p := build(t, typ, "").Picker
		var out [4]float64
		for range 8000 {
			order := f.order(p, totals...)
			slices.Sort(slices.Clone(order))
			if len(order) != 3 || len(slices.Compact(slices.Sorted(slices.Values(order)))) != 3 {
				t.Fatalf("%s: %v", typ, order)
			}
			out[order[0]] += 1. / 8000
		}
		return out
	}
	check := func(got [4]float64, want ...float64) {
		t.Helper()
		for i := range got {
			if math.Abs(got[i]-want[i]) > .02 {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
	check(share("random-picker", 0, 1, 2, 3), .25, .25, .25, .25)
	check(share("weighted-random-picker", 1, 2, 5, 0), .125, .25, .625, 0)
	check(share("weighted-random-picker", 0, -1, 0, 0), .25, .25, .25, .25)
}

func handle(t *testing.T, f *fleet, h plugin.HandlerFunc, r *request.Request, profiles ...*cycle.Profile) ([]int32, *cycle.Plan, error) {
	t.Helper()
	handler, err := h(profiles, nil)
	if err != nil {
		return nil, nil, err
	}
	c := f.cycle(r)
	defer c.Free()
	plan := &cycle.Plan{New: -1}
	err = handler.Handle(c, plan)
	return plan.Order, plan, err
}

func TestHandlers(t *testing.T) {
	f := newFleet(one{load: load(1, 0)}, one{}, labelled(endpoint.LabelRole, "prefill"))
	decode, prefill := profile(t, "load_only"), profile(t, "load_only")
	decode.Name, prefill.Name = "decode", "prefill"
	prefill.Filters = []cycle.ProfileFilter{{Name: "prefill-filter", Filter: build(t, "prefill-filter", "").Filter}}

	one := build(t, "single-profile-handler", "").Handler
	if order, _, err := handle(t, f, one, ask(1), decode); err != nil || order[0] != 1 || len(order) != 2 {
		t.Errorf("single: %v %v", order, err)
	}
	if _, _, err := handle(t, f, one, ask(1), decode, prefill); err == nil {
		t.Error("single with two profiles must be an error")
	}

	ranks := build(t, "data-parallel-profile-handler", `{"primaryPort":9000}`).Handler
	order, plan, err := handle(t, f, ranks, ask(1), decode)
	want := []request.HeaderSet{{Name: "x-data-parallel-host-port", Value: "10.0.0.1:8000"}}
	if err != nil || len(order) != 1 || plan.Port != 9000 || !slices.Equal(plan.Headers, want) {
		t.Errorf("data parallel: %v %+v %v", order, plan, err)
	}

	byHeader := build(t, "header-profile-handler", "").Handler
	named := func(name string) *request.Request {
		r := ask(1)
		r.Headers = headerMap{"epp-profile": name}
		return r
	}
	for name, first := range map[string]int32{"": 1, " ": 1, "decode": 1, "prefill": 2} {
		if order, _, err := handle(t, f, byHeader, named(name), prefill, decode); err != nil || order[0] != first {
			t.Errorf("header %q: %v %v", name, order, err)
		}
	}
	var refused *request.Error
	if _, _, err := handle(t, f, byHeader, named("other"), prefill, decode); !errors.As(err, &refused) {
		t.Errorf("unknown profile: %v", err)
	}
	if order, _, err := handle(t, f, byHeader, named("other"), prefill); err != nil || order[0] != 2 {
		t.Errorf("a single profile always runs: %v %v", order, err)
	}
	if _, _, err := handle(t, f, byHeader, named(""), prefill, prefill); err == nil {
		t.Error("no default profile must be an error")
	}
}
