package federation

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/internal/varint"
)

// TestUsable: a pool is usable only within its lease and in state live.
func TestUsable(t *testing.T) {
	now := time.Unix(100, 0)
	for state := range numStates {
		r := Remote{State: state, Until: now.Add(1)}
		if got, want := r.Usable(now), state == Live; got != want {
			t.Errorf("%s within its lease: %t, want %t", state, got, want)
		}
		if r.Usable(now.Add(1)) {
			t.Errorf("%s is usable after its lease", state)
		}
	}
}

// TestEmptyView: without a federation the view is empty, not nil.
func TestEmptyView(t *testing.T) {
	var c Current
	if v := c.Load(); v == nil || len(v.Clusters) != 0 || len(v.Pool(PoolKey{"a", "b"}, nil)) != 0 {
		t.Errorf("view %+v", v)
	}
	var f *filter.Filter
	if f.Has(1) || f.Run(nil) != 0 || f.Blocks() != 0 || f.Bytes() != 0 {
		t.Error("nil filter contains a block")
	}
}

// TestEndpoints counts by model. Groups without a model serve every model.
func TestEndpoints(t *testing.T) {
	e := Export{Ready: []Ready{{Model: "m", Count: 2}, {Model: "n", Count: 3}, {Count: 1}}}
	for model, want := range map[string]int{"": 6, "m": 3, "n": 4, "x": 1} {
		if got := e.Endpoints(model); got != want {
			t.Errorf("%q: %d, want %d", model, got, want)
		}
	}
}

// TestEndpointsAnswer: prefill-only endpoints do not count, and an endpoint with several models
// counts once.
func TestEndpointsAnswer(t *testing.T) {
	const decode, prefill = 1, 2
	e := Export{Ready: []Ready{{Model: "m", Role: decode | prefill, Count: 2}, {Model: "adapter", Role: decode | prefill, Count: 2}, {Model: "m", Role: prefill, Count: 5}}}
	if all, one := e.Endpoints(""), e.Endpoints("m"); all != 4 || one != 2 {
		t.Errorf("%d, and %d for one model, from an older release", all, one)
	}
	e.Engines = 2
	if all, one := e.Endpoints(""), e.Endpoints("adapter"); all != 2 || one != 2 {
		t.Errorf("%d, and %d for one model", all, one)
	}
	if e.Ready = e.Ready[2:]; e.Endpoints("") != 0 || e.Endpoints("m") != 0 {
		t.Error("prefill-only endpoints count as answering")
	}
}

// TestOlderReleasesDecode: messages of older releases, without a count of endpoints, can be decoded.
func TestOlderReleasesDecode(t *testing.T) {
	now := ack{Export: somePool}
	now.Engines = 7
	b := now.append(nil)
	for want, b := range map[int][]byte{7: b, 0: b[:len(b)-1]} {
		r := varint.Reader{B: b}
		if got := readAck(&r); r.Err != nil || got.Engines != want || got.Pool != now.Pool {
			t.Errorf("%d engines, want %d: %v", got.Engines, want, r.Err)
		}
	}
}
