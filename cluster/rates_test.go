package cluster

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// A member that was briefly gone restarts its counters, which does not count as traffic.
func TestRateOfOneThatWasAway(t *testing.T) {
	var r rates
	sample := func(at time.Duration, bytes uint64) float64 {
		p := core.PeerView{Member: group.Member{ID: "b"}, Traffic: []group.Traffic{{BytesIn: bytes, BytesOut: bytes}}}
		r.sample(at, []core.PeerView{p})
		in, _ := r.of("b", 0)
		return in
	}
	for _, c := range []struct {
		at    time.Duration
		bytes uint64
		want  float64
	}{{time.Second, 1000, 0}, {2 * time.Second, 3000, 2000}, {3 * time.Second, 100, 0}, {4 * time.Second, 600, 500}} {
		if got := sample(c.at, c.bytes); got != c.want {
			t.Errorf("at %v: rate %v B/s, want %v", c.at, got, c.want)
		}
	}
}
