package federation

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// TestUsable: nothing is believed beyond its lease, nor in any state but live.
func TestUsable(t *testing.T) {
	now := time.Unix(100, 0)
	for state := range numStates {
		r := Remote{State: state, Until: now.Add(1)}
		if got, want := r.Usable(now), state == Live; got != want {
			t.Errorf("%s within its lease: %t, want %t", state, got, want)
		}
		if r.Usable(now.Add(1)) {
			t.Errorf("%s is usable when its lease has ended", state)
		}
	}
}

// TestEmptyView: without a federation there is a view, and it is empty.
func TestEmptyView(t *testing.T) {
	var c Current
	if v := c.Load(); v == nil || len(v.Clusters) != 0 || len(v.Pool(PoolKey{"a", "b"}, nil)) != 0 {
		t.Errorf("view %+v", v)
	}
	var f *filter.Filter
	if f.Has(1) || f.Run(nil) != 0 || f.Blocks() != 0 || f.Bytes() != 0 {
		t.Error("no filter knows something")
	}
}

// TestEndpoints counts by model; groups without a model serve all.
func TestEndpoints(t *testing.T) {
	e := Export{Ready: []Ready{{Model: "m", Count: 2}, {Model: "n", Count: 3}, {Count: 1}}}
	for model, want := range map[string]int{"": 6, "m": 3, "n": 4, "x": 1} {
		if got := e.Endpoints(model); got != want {
			t.Errorf("%q: %d, want %d", model, got, want)
		}
	}
}
