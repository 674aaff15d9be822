//go:build linux

package clustertest_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// everywhere applies f to every packet.
func everywhere(f fault) rule { return func(flow) fault { return f } }

// TestWeather: on a bad network within the documented limits members join, are equal soon after
// engines have written, and share their load.
func TestWeather(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault fault
		tcp   bool
		far   bool // only between the third member and the others
	}{
		{"5% loss", fault{loss: .05}, false, false},
		{"5% loss without UDP", fault{loss: .05}, true, false},
		{"20% loss", fault{loss: .2}, false, false},
		{"100 ms each way", fault{delay: 100 * time.Millisecond}, false, false},
		{"200 ms each way", fault{delay: 200 * time.Millisecond}, false, false},
		{"300 ms each way", fault{delay: 300 * time.Millisecond}, false, false},
		{"300 ms each way without UDP", fault{delay: 300 * time.Millisecond}, true, false},
		{"500 ms each way", fault{delay: 500 * time.Millisecond}, false, false},
		{"300 ms each way to the third", fault{delay: 300 * time.Millisecond}, false, true},
		{"5% loss and 100 ms each way", fault{loss: .05, delay: 100 * time.Millisecond}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.tcpOnly = tc.tcp
			r.obey(everywhere(tc.fault))
			if tc.far {
				r.obey(around(addrOf(3), tc.fault))
			}
			took := r.form(3)
			t.Logf("joined and equal after %v", took)
			lost := r.givenUp()
			apart, looks := r.churnWatched(6 * time.Second)
			t.Logf("%d of %d states during the writes are not joined; %d members lost", len(apart), looks, r.givenUp()-lost)
			if tc.fault.loss == 0 && (len(apart) > 0 || r.givenUp() > lost) {
				t.Errorf("%d of %d states during the writes are not joined: %q; %d members lost, want none", len(apart), looks, apart, r.givenUp()-lost)
			}
			t.Logf("all exact %v after the last batch", testkit.Eventually(r.t, func() string { return r.knows(r.members...) }))
			r.members[0].tell(t, order{Do: "load", Value: "7"})
			t.Logf("load known after %v", testkit.Eventually(r.t, func() string { return r.load(r.members[0], "7") }))
			t.Logf("all joined %v after that", testkit.Eventually(r.t, func() string { return r.agree(r.members...) }))
			passed, dropped := r.counts()
			t.Logf("%d packets carried, %d lost; members lost: %d", passed, dropped, r.givenUp())
			if tc.fault.loss > 0 && dropped == 0 || passed == 0 {
				t.Error("the network produced no faults")
			}
		})
	}
}

// around applies f to the packets of one member.
func around(member netip.Addr, f fault) rule {
	return func(way flow) fault {
		if way.from == member || way.to == member {
			return f
		}
		return fault{}
	}
}

// givenUp returns how often members lost another.
func (r *rig) givenUp() (n int) {
	for _, h := range r.members {
		n += int(h.state(r.t).GivenUp)
	}
	return n
}

// churnWatched is churn. It returns the states of members that were not joined meanwhile.
func (r *rig) churnWatched(lasts time.Duration) (apart []string, looks int) {
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		r.churn(100 * time.Millisecond)
		for _, h := range r.members {
			looks++
			if s := h.state(r.t); s.Health.State != "joined" {
				apart = append(apart, h.name+": "+s.Health.Line)
			}
		}
	}
	return apart, looks
}

// TestNoUDP allows only TCP. Members join, stay equal, and report the problem and its remedy.
func TestNoUDP(t *testing.T) {
	r := group(t, 3)
	r.obey(func(way flow) fault {
		if way.udp {
			return severed
		}
		return fault{}
	})
	t.Logf("all say so after %v", testkit.Eventually(r.t, func() string {
		for _, h := range r.members {
			if s := h.state(t); s.Health.State != "misconfigured" || !strings.Contains(s.Health.Line, "UDP") {
				return fmt.Sprintf("%s reports %q", h.name, s.Health.Line)
			}
		}
		return ""
	}))
	r.churn(time.Second)
	testkit.Eventually(r.t, func() string { return r.knows(r.members...) })
	r.obey(healthy)
	t.Logf("well again after %v", testkit.Eventually(r.t, func() string { return r.agree(r.members...) }))
}

// TestBeyondLimits: at a round trip of two seconds the group does not hold. Each member reports that
// it does not reach the others, and no fault of the configuration. It reads all sources itself, and the
// group is whole again after the fault.
func TestBeyondLimits(t *testing.T) {
	r := group(t, 3)
	r.obey(everywhere(fault{delay: time.Second}))
	r.churn(2 * time.Second)
	alone := func() (out string) {
		for i, h := range r.members {
			if s := h.state(t); s.Health.State == "misconfigured" {
				t.Errorf("%s reports %q", h.name, s.Health.Line)
			}
			others := slices.Delete(slices.Clone(r.members), i, i+1)
			out += r.cutOff(r.members[i:i+1], others)
		}
		return out
	}
	t.Logf("all say so after %v", testkit.Eventually(r.t, alone))
	t.Logf("all exact after %v", testkit.Eventually(r.t, func() string { return r.knows(r.members...) }))
	r.obey(healthy)
	t.Logf("joined and equal %v after that", testkit.Eventually(r.t, func() string { return r.agree(r.members...) }))
}
