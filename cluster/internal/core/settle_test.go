package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// TestCaughtUp: a member has caught up once it has the state of one settled peer. If no peer has
// settled, it needs the state of all peers. The order of the peers does not matter.
func TestCaughtUp(t *testing.T) {
	caught := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
		for step := range 500 {
			var members []group.Member
			for i := range 1 + rng.IntN(4) {
				members = append(members, group.Member{ID: string(rune('b' + i)), Boot: 1 + uint64(rng.IntN(20)/19)})
			}
			c.SetMembers(members)
			p := c.peers[rng.IntN(len(c.peers))]
			p.Up, p.lastSentAt = rng.IntN(4) > 0, 1 // without a log it has caught up with every peer that is up
			if rng.IntN(3) == 0 {
				p.Phase = group.Settling
			} else if rng.IntN(12) == 0 {
				p.Phase = group.Settled
			}
			p.majorAt = time.Duration(rng.IntN(8) / 7) // foreign
			met, all, one := false, true, false
			what := ""
			for _, p := range c.peers {
				what += fmt.Sprintf(" %s: %v, up %v, foreign %v;", p.ID, p.Phase, p.Up, c.foreign(p))
				if c.foreign(p) {
					continue
				}
				ok, settling := c.caughtUpWith(p), p.Phase == group.Settling
				met, all, one = true, all && ok && settling, one || ok && !settling
			}
			want := one || met && all
			if got := c.caughtUp(); got != want {
				t.Fatalf("seed %d, step %d:%s caught up is %v", seed, step, what, got)
			}
			if want {
				caught++
			}
		}
	}
	t.Logf("caught up %d times of %d", caught, 20*500)
	if caught < 1000 || caught > 9000 {
		t.Errorf("caught up %d times of %d", caught, 20*500)
	}
}

// TestGaugesOfAll: a member that has caught up with one peer settles once it has the gauges of all. A peer
// that it does not reach delays that by a lease.
func TestGaugesOfAll(t *testing.T) {
	c := New(group.Options{Self: group.Member{ID: "a", Boot: 1}}.WithDefaults())
	c.SetMembers([]group.Member{{ID: "b", Boot: 1}, {ID: "d", Boot: 1}})
	c.g.Now = time.Second
	for _, p := range c.peers {
		p.lastSentAt, p.gauges = 1, []gaugeTable{{want: 1}}
	}
	b, d := c.peers[0], c.peers[1]
	b.Up, b.gauges[0].complete = true, true
	settled := func(want bool, when string) {
		t.Helper()
		if got := c.gaugesComplete(); got != want {
			t.Errorf("%s: gauges complete is %v, want %v", when, got, want)
		}
	}
	settled(false, "one of two peers is not up")
	d.Up = true
	settled(false, "one of two peers has sent no gauges")
	d.gauges[0].complete = true
	settled(true, "both peers have sent their gauges")
	d.Up = false
	c.g.Now += c.g.Opt.Lease
	settled(true, "a lease has passed")
}
