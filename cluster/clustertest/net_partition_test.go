//go:build linux

package clustertest_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// between applies f to all packets from one side to the other.
func between(from, to []*handle, f fault) rule {
	has := func(side []*handle, a netip.Addr) bool {
		for _, h := range side {
			if h.addr == a {
				return true
			}
		}
		return false
	}
	return func(way flow) fault {
		if has(from, way.from) && has(to, way.to) {
			return f
		}
		return fault{}
	}
}

// both combines rules; the first fault applies.
func both(rules ...rule) rule {
	return func(way flow) fault {
		for _, r := range rules {
			if f := r(way); f != (fault{}) {
				return f
			}
		}
		return fault{}
	}
}

// cutOff returns why members do not report that they are cut off from others, or "".
func (r *rig) cutOff(members, others []*handle) string {
	for _, h := range members {
		s := h.state(r.t)
		if s.Health.State != "partitioned" || s.Health.OK {
			return fmt.Sprintf("%s says %q", h.name, s.Health.Line)
		}
		for _, o := range others {
			if !strings.Contains(s.Health.Line, o.name+" (") {
				return fmt.Sprintf("%s does not name %s: %q", h.name, o.name, s.Health.Line)
			}
		}
	}
	return ""
}

// TestHalves partitions a group of four. Each half continues with its engines' batches and reports
// the partition. After it heals, all are equal.
func TestHalves(t *testing.T) {
	r := group(t, 4)
	left, right := r.members[:2], r.members[2:]
	r.obey(both(between(left, right, severed), between(right, left, severed)))
	r.churn(time.Second)
	t.Logf("both halves say so after %v more", testkit.Eventually(r.t, func() string {
		return r.cutOff(left, right) + r.cutOff(right, left)
	}))
	r.churn(3 * time.Second) // by then memberlist considers the others dead
	t.Logf("both halves exact after %v", testkit.Eventually(r.t, func() string { return r.knows(r.members...) }))
	testkit.Eventually(r.t, func() string { // no member was dropped
		return r.cutOff(left, right) + r.cutOff(right, left)
	})
	for _, half := range [][]*handle{left, right} {
		half[0].tell(t, order{Do: "load", Value: "changed apart"})
	}
	r.obey(healthy)
	r.write(10)
	t.Logf("joined and equal %v after that", testkit.Eventually(r.t, func() string { return r.agree(r.members...) }))
	testkit.Eventually(r.t, func() string { return r.load(left[0], "changed apart") + r.load(right[0], "changed apart") })
}

// load returns why other live members do not have h's load, or "".
func (r *rig) load(h *handle, want string) string {
	for _, o := range r.members {
		if o == h || o.dead {
			continue
		}
		if got := o.state(r.t).Loads[h.name]; got != want {
			return fmt.Sprintf("%s believes %q of %s, not %q", o.name, got, h.name, want)
		}
	}
	return ""
}

// TestOneWayLoss drops all packets in one direction between two members. No connection between them
// can work, and both report it. Their content stays exact by way of the third.
func TestOneWayLoss(t *testing.T) {
	r := group(t, 3)
	a, b, c := r.members[0], r.members[1], r.members[2]
	r.obey(between([]*handle{a}, []*handle{b}, severed))
	r.churn(time.Second)
	t.Logf("both say so after %v more", testkit.Eventually(r.t, func() string {
		return r.cutOff([]*handle{a}, []*handle{b}) + r.cutOff([]*handle{b}, []*handle{a})
	}))
	r.churn(3 * time.Second)
	t.Logf("all exact after %v", testkit.Eventually(r.t, func() string { return r.knows(a, b, c) }))
	r.obey(healthy)
	r.write(10)
	t.Logf("joined and equal %v after that", testkit.Eventually(r.t, func() string { return r.agree(a, b, c) }))
}
