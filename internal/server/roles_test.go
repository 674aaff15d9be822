package server

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestRolesAreNamed: a pool in which no endpoint decodes is not ready, and misspelt or empty roles are
// named.
func TestRolesAreNamed(t *testing.T) {
	const none = "-" // no label
	for _, c := range []struct {
		roles           []string
		ready           bool
		unknown, others string
	}{
		{[]string{none, none}, true, "", ""},
		{[]string{"prefill", "decode"}, true, "", ""},
		{[]string{"prefill", "both"}, true, "", ""},
		{[]string{"encode-prefill-decode"}, true, "", ""},
		{[]string{"prefill", "encode"}, false, "", ""},
		{[]string{"prefill", none}, true, "", ""},
		{[]string{"decode", "prefil"}, true, `"prefil"`, ""},
		{[]string{"decode", "", "Prefill"}, true, `""`, "1 other"},
	} {
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		replica := &condition{stage: &stage{}, Pool: pool, Pace: &ownPace{}}
		var specs []endpoint.Spec
		for i, role := range c.roles {
			spec := endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000)}
			if role != none {
				spec.Labels = map[string]string{endpoint.LabelRole: role}
			}
			specs = append(specs, spec)
		}
		pool.Set(specs)
		replica.settled.Store(true)
		if got := replica.ready(); got != c.ready || (replica.undecodable() == "") != c.ready {
			t.Errorf("roles %q: ready %v (%s), want %v", c.roles, got, replica.undecodable(), c.ready)
		}
		got := unknownRole(pool.Snapshot().Endpoints)
		if (got == "") != (c.unknown == "") || !strings.Contains(got, c.unknown) || !strings.Contains(got, c.others) {
			t.Errorf("roles %q: %q, want the name of %s", c.roles, got, c.unknown)
		}
	}
}
