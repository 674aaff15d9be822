package plugins

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// inZone returns the fleet as seen by a replica in that zone.
func (f *fleet) inZone(zone string) *fleet {
	specs := []endpoint.Spec{}
	for _, ep := range f.pool.Snapshot().Endpoints {
		specs = append(specs, ep.Spec)
	}
	f.pool = endpoint.NewPool(endpoint.PoolOptions{Zone: zone})
	f.pool.Set(specs)
	for i, ep := range f.pool.Snapshot().Endpoints {
		f.pool.LoadTracker().SetRemote(ep, f.list[i].load)
	}
	return f
}

// The replica's zone is preferred unless the gain exceeds the uncertainty of the predictions. A
// cached prefix or a queue counts for more, a single request does not. An endpoint without a zone
// has no disadvantage.
func TestZoneCost(t *testing.T) {
	at := func(zone string, e one) one {
		if e.labels = map[string]string{}; zone != "" {
			e.labels["topology.kubernetes.io/zone"] = zone
		}
		return e
	}
	const prompt = 40000
	busy := endpoint.Load{Requests: 1}
	worked := endpoint.Load{Busy: .5}
	queue := endpoint.Load{Requests: 3, Waiting: 3, Prefill: 60000, Tokens: 60000}
	cases := []struct {
		what, here string
		params     string
		list       []one
		want       int // any of
	}{
		{"all idle", "a", "", []one{at("b", one{}), at("a", one{}), at("c", one{})}, 1},
		{"a request more here than there", "a", "", []one{at("b", one{}), at("a", one{load: busy})}, 1},
		{"a request more here, zones without effect", "a", `{"zoneCost":0}`, []one{at("b", one{}), at("a", one{load: busy})}, 0},
		{"the zone worked more in recent minutes", "a", "", []one{at("b", one{}), at("a", one{load: worked}), at("a", one{load: worked})}, 1},
		{"one endpoint of the zone worked more", "a", "", []one{at("a", one{load: worked}), at("a", one{})}, 1},
		{"the prompt is held there", "a", "", []one{at("b", one{held: prompt}), at("a", one{})}, 0},
		{"a queue here", "a", "", []one{at("b", one{}), at("a", one{load: queue})}, 0},
		{"nobody here", "a", "", []one{at("b", one{load: queue}), at("b", one{})}, 1},
		{"no zone of ours", "", "", []one{at("b", one{load: busy}), at("a", one{})}, 1},
		{"no zone of theirs", "a", "", []one{at("", one{load: busy}), at("", one{})}, 1},
		{"an empty label", "a", "", []one{at("a", one{load: busy}), {labels: map[string]string{"topology.kubernetes.io/zone": ""}}}, 1},
		{"a price beyond a step", "a", `{"zoneCost":1}`, []one{at("b", one{}), at("a", one{load: busy})}, 1},
	}
	for _, c := range cases {
		f := newFleet(c.list...).inZone(c.here)
		scores := f.scores(t, ask(prompt), "predicted-ttft-scorer", c.params)
		best := 0
		for k := range scores {
			if scores[k] > scores[best] {
				best = k
			}
		}
		if best != c.want {
			t.Errorf("%s: endpoint %d is chosen, want %d: %v", c.what, best, c.want, scores)
		}
	}
	even := newFleet(at("b", one{}), at("a", one{})).inZone("a").scores(t, ask(prompt), "predicted-ttft-scorer", `{"zoneCost":0}`)
	if even[0] != even[1] {
		t.Errorf("zones count at a price of zero: %v", even)
	}
	for _, bad := range []string{`{"zoneCost":-1}`, `{"zoneCost":1.5}`} {
		if _, err := try("predicted-ttft-scorer", bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// A zone never justifies a later first token than in a fleet without caches.
func TestZoneCostWithinLimit(t *testing.T) {
	zone := func(z string) map[string]string { return map[string]string{"topology.kubernetes.io/zone": z} }
	late := endpoint.Load{Requests: 1, Waiting: 1, Prefill: 200000, Tokens: 200000}
	f := newFleet(one{labels: zone("b")}, one{labels: zone("a"), load: late}).inZone("a")
	scores := f.scores(t, ask(200), "predicted-ttft-scorer", `{"zoneCost":1}`)
	if scores[1] >= scores[0] {
		t.Errorf("the endpoint of the zone is chosen, however late: %v", scores)
	}
}
