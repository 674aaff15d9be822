package plugins

import (
	"errors"
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestTransferCost: 1,000 tokens of 100,000 bytes are 0.1 GB.
func TestTransferCost(t *testing.T) {
	at := func(labels ...string) one {
		names := []string{"kubernetes.io/hostname", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"}
		e := one{labels: map[string]string{}}
		for i, v := range labels {
			if v != "" {
				e.labels[names[i]] = v
			}
		}
		return e
	}
	f := newFleet(at("h1", "r1", "z1", "g1"), at("h1", "r1", "z1", "g1"), at("h2", "r1", "z1", "g1"), at("h3", "r2", "z1", "g1"),
		at("h4", "r3", "z2", "g1"), at("h5", "r4", "z3", "g2"), at(), at("h2"), at("", "", "", "g1"))
	c := f.cycle(ask(1000))
	defer c.Free()
	s := build(t, "transfer-cost-scorer", `{"kvBytesPerToken":100000,"gigabytesPerSecond":{"elsewhere":0.5}}`).Scorer
	got := make([]float64, c.Len())
	s.Score(c, got)
	if !near(got, make([]float64, 9)) {
		t.Errorf("without a peer: %v", got)
	}
	c.Peer = f.pool.Snapshot().Endpoints[0]
	s.Score(c, got)
	if want := []float64{0, -.021, -.024, -.03, -.12, -.22, -.03, -.22, -.12}; !near(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, params := range []string{`{"kvBytesPerToken":0}`, `{"gigabytesPerSecond":{"rack":0}}`} {
		if _, err := try("transfer-cost-scorer", params); err == nil {
			t.Errorf("%s is accepted", params)
		}
	}
}

// TestWholeRequests: endpoints for other phases get no whole request, unless
// the profile chooses by role itself.
func TestWholeRequests(t *testing.T) {
	mixed := newFleet(labelled(endpoint.LabelRole, "prefill"), labelled(endpoint.LabelRole, "both"), one{}, labelled(endpoint.LabelRole, "encode"))
	apart := newFleet(labelled(endpoint.LabelRole, "prefill"), labelled(endpoint.LabelRole, "encode"))
	with := func(typ, params string) *cycle.Profile {
		p := profile(t, "load_only")
		if typ != "" {
			p.Filters = []cycle.ProfileFilter{{Name: typ, Filter: build(t, typ, params).Filter}}
		}
		return p
	}
	f := func(fl *fleet, p *cycle.Profile, want string) {
		t.Helper()
		order, _, err := handle(t, fl, build(t, "single-profile-handler", "").Handler, ask(10), p)
		var refused *request.Error
		if errors.As(err, &refused) {
			order = nil
		}
		if got := fmt.Sprint(order); got != want {
			t.Errorf("%v (%v), want %s", got, err, want)
		}
	}
	f(mixed, with("", ""), "[1 2]")
	f(apart, with("", ""), "[]")
	f(mixed, with("prefill-filter", ""), "[0 1]")
	f(mixed, with("by-label", `{"label":"llm-d.ai/role","validValues":["encode"]}`), "[3]")
	f(mixed, with("label-selector-filter", `{"matchLabels":{"llm-d.ai/role":"prefill"}}`), "[0]")
	f(mixed, with("label-selector-filter", `{"matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]}`), "[1 2]")
}
