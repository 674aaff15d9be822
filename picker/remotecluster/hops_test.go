package remotecluster

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// ring returns clusters a, b and c. All are full, and each considers the others idle.
func ring(t *testing.T, signed bool) map[string]*world {
	worlds := map[string]*world{}
	for _, self := range []string{"a", "b", "c"} {
		var others []*federation.Remote
		for _, name := range []string{"a", "b", "c"} {
			if name != self {
				others = append(others, other(name, nil))
			}
		}
		w := newWorld(t, func(o *Options) {
			o.Self = self
			if o.Hops = nil; signed {
				s, err := filter.NewSecret([]byte("a secret of the federation"))
				if err != nil {
					t.Fatal(err)
				}
				o.Hops = federation.NewHops(s, self)
			}
		}, others...)
		w.busy(20)
		worlds[self] = w
	}
	return worlds
}

// hop returns the token and the destination of a decision for a remote cluster.
func hop(t *testing.T, d *request.Decision) (to, token string) {
	t.Helper()
	for _, h := range d.SetHeaders {
		if h.Name == request.HeaderHop {
			token = h.Value
		}
	}
	host, _, _ := strings.Cut(d.Endpoints[0], ":")
	to = map[string]string{"192.0.2.97": "a", "192.0.2.98": "b", "192.0.2.99": "c"}[host]
	if to == "" || token == "" {
		t.Fatalf("request goes to %v with token %q", d.Endpoints, token)
	}
	return to, token
}

// TestThreeClusters: three clusters that consider each other idle forward a request only once, also
// in a federation without a secret. The token may be replayed, minutes late, at the wrong cluster,
// or read with clocks that differ by ten minutes.
func TestThreeClusters(t *testing.T) {
	for _, signed := range []bool{true, false} {
		worlds := ring(t, signed)
		d, _, err := worlds["a"].place(prompt(500, "round"))
		if err != nil {
			t.Fatal(err)
		}
		to, token := hop(t, d)
		for _, at := range []string{"b", "c", "a", to, to} {
			for _, skew := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, time.Hour} {
				w := worlds[at]
				w.now = t0.Add(skew)
				for _, c := range w.view.Clusters {
					c.Pools[0].ReceivedAt, c.Pools[0].Until = w.now, w.now.Add(time.Second)
				}
				w.busy(20)
				r := prompt(500, "round")
				r.Headers = headers{request.HeaderHop: token}
				d, why, err := w.place(r)
				if err != nil || !strings.HasPrefix(d.Endpoints[0], "10.") {
					t.Errorf("signed %t, at %s, %s later: %+v (%v) %v, want an endpoint there", signed, at, skew, d, err, why)
				}
				for name, result := range why {
					if name != at && result != "came from another cluster" {
						t.Errorf("signed %t, at %s: %s is %q", signed, at, name, result)
					}
				}
			}
		}
		if bad := worlds[to].fleet.counts.badHops.Load(); signed == (bad == 0) {
			t.Errorf("signed %t: %d bad tokens counted", signed, bad)
		}
	}
}

// TestHopWithinClocks: a token is valid between clusters whose clocks differ by ten minutes.
func TestHopWithinClocks(t *testing.T) {
	worlds := ring(t, true)
	d, _, err := worlds["a"].place(prompt(500, "skewed"))
	if err != nil {
		t.Fatal(err)
	}
	to, token := hop(t, d)
	for _, skew := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		r := prompt(500, "skewed")
		r.Headers = headers{request.HeaderHop: token}
		worlds[to].fleet.hopped(r, t0.Add(skew))
	}
	if c := &worlds[to].fleet.counts; c.badHops.Load() != 0 || c.hopped.Load() != 2 {
		t.Errorf("%d good tokens, %d bad", c.hopped.Load(), c.badHops.Load())
	}
}

// TestResidencyOfWhoCame: a forwarded request that may not be served here is refused. It is neither
// forwarded again nor sent to a local endpoint.
func TestResidencyOfWhoCame(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Rules.Objectives = map[string][]string{"private": {"b"}} }, other("b", nil))
	r := prompt(500, "private")
	r.Objective, r.Headers = "private", headers{request.HeaderHop: "anything"}
	if d, why, err := w.place(r); request.ReasonOf(err) != request.ReasonNoEndpoints {
		t.Errorf("placed at %+v (%v) %v, want a refusal", d, err, why)
	}
}
