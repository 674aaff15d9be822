//go:build !race

package remotecluster

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// TestAllocations: remote clusters that are not candidates cause no allocations.
func TestAllocations(t *testing.T) {
	for name, w := range map[string]*world{
		"nobody":    newWorld(t, func(o *Options) { o.Stays = nil }),
		"not named": newWorld(t, func(o *Options) { o.Use, o.Stays = UseNamed, nil }, other("b", nil), other("c", nil)),
		"dearer":    newWorld(t, func(o *Options) { o.Stays = nil }, other("b", nil)),
	} {
		r := prompt(500, "alloc")
		with := func() {
			c := cycle.New(cycle.Options{Pool: w.pool, Now: t0, Seed: 1}, r)
			c.Prefer(0, false)
			_ = w.fleet.Offer(c, nil)
			c.Free()
		}
		with()
		if n := testing.AllocsPerRun(100, with); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
