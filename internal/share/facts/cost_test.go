package facts

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestTold holds which changes of learned constants the others are told of.
func TestTold(t *testing.T) {
	was := endpoint.PriorCost
	was.PrefillSeen, was.DecodeSeen = 20, 20
	f := func(want bool, change func(*endpoint.Cost)) {
		t.Helper()
		is := was
		if change(&is); told(was, is) != want {
			t.Errorf("told = %v of %+v", !want, is)
		}
	}
	f(true, func(*endpoint.Cost) {})
	f(true, func(c *endpoint.Cost) { c.PerToken *= 1.01 })
	f(false, func(c *endpoint.Cost) { c.PerToken *= 1.05 })
	f(false, func(c *endpoint.Cost) { c.Step *= .9 })
	f(true, func(c *endpoint.Cost) { c.PrefillSeen = 23 })
	f(false, func(c *endpoint.Cost) { c.DecodeSeen = 10 })
	if told(endpoint.Cost{}, was) {
		t.Error("the first constants are not told")
	}
}
