package core

import (
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// TestGaugeAbsent: a gauge is absent in the group if every reachable peer has listed its states
// without it. Peers that are silent, or have not sent a heartbeat, prove nothing.
func TestGaugeAbsent(t *testing.T) {
	c := New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	c.NewGauge("seed", 1, nil)
	c.SetMembers([]group.Member{{ID: "b", Boot: 1}, {ID: "c", Boot: 1}})
	b, d := c.byID["b"], c.byID["c"]
	want := func(what string, want bool) {
		t.Helper()
		if got := c.GaugeAbsent("seed"); got != want {
			t.Errorf("%s: GaugeAbsent() = %t, want %t", what, got, want)
		}
	}
	want("no peer is reachable", false)
	b.Up = true
	want("no heartbeat", false)
	c.compareStates(b, nil)
	want("an older peer", true)
	d.Up = true
	want("another peer without a heartbeat", false)
	c.compareStates(d, []group.StateInfo{{Kind: group.StateGauge, Name: []byte("seed"), Version: 1}})
	want("a newer peer", false)
	d.Up = false
	want("the newer peer is away", true)
	if c.GaugeAbsent("unknown") {
		t.Error("GaugeAbsent() = true for a gauge that is not registered here")
	}
}
