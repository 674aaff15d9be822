package kubeapi

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// TestMembersOf checks which EndpointSlice addresses are members.
func TestMembersOf(t *testing.T) {
	const ports = `"ports":[{"name":"gossip-udp","port":7000,"protocol":"UDP"},{"name":"gossip","port":7946,"protocol":"TCP"}]`
	of := func(endpoints string) string {
		return `{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":[` + endpoints + `],` + ports + `}`
	}
	pod := func(name, ip, conditions string) string {
		return fmt.Sprintf(`{"addresses":[%q],"conditions":%s,"targetRef":{"kind":"Pod","name":%q}}`, ip, conditions, name)
	}
	for _, x := range []struct {
		name, like, want string
		slices           []string
	}{
		{"ready, not ready and unknown alike", "", "10.0.0.1:7946 10.0.0.2:7946 10.0.0.3:7946", []string{
			of(pod("a", "10.0.0.1", `{"ready":true}`) + "," + pod("b", "10.0.0.2", `{"ready":false,"serving":false}`) + "," + pod("c", "10.0.0.3", `{}`))}},
		{"own pod", "", "10.0.0.2:7946", []string{of(pod("self", "10.0.0.1", `{}`) + "," + pod("b", "10.0.0.2", `{}`))}},
		{"terminating beside others", "", "10.0.0.2:7946", []string{of(pod("a", "10.0.0.1", `{"terminating":true}`) + "," + pod("b", "10.0.0.2", `{"ready":false}`))}},
		{"terminating alone", "", "10.0.0.1:7946", []string{of(pod("a", "10.0.0.1", `{"terminating":true}`) + "," + pod("self", "10.0.0.2", `{}`))}},
		{"in two slices for a moment", "", "10.0.0.1:7946", []string{of(pod("a", "10.0.0.1", `{"terminating":true}`)), of(pod("a", "10.0.0.1", `{}`))}},
		{"both families, we are IPv4", "10.0.0.9", "10.0.0.1:7946", []string{of(pod("a", "10.0.0.1", `{}`)), of(pod("a", "fd00::1", `{}`))}},
		{"both families, we are IPv6", "fd00::9", "[fd00::1]:7946", []string{of(pod("a", "10.0.0.1", `{}`)), of(pod("a", "fd00::1", `{}`))}},
		{"the other family alone", "10.0.0.9", "[fd00::1]:7946", []string{of(pod("a", "fd00::1", `{}`))}},
		{"another pod at the address", "", "10.0.0.1:7946", []string{of(pod("old", "10.0.0.1", `{"terminating":true}`) + "," + pod("new", "10.0.0.1", `{}`))}},
		{"no pod named", "", "10.0.0.1:7946", []string{of(`{"addresses":["10.0.0.1","10.0.0.2"]}`)}},
		{"names, and nothing", "", "", []string{of(`{"addresses":["host.example"]},{"addresses":null},{},{"addresses":["0.0.0.0"]}`)}},
		{"no port", "", "10.0.0.1:7000", []string{`{"metadata":{"name":"s"},"endpoints":[` + pod("a", "10.0.0.1", `null`) + `],"ports":null}`}},
		{"a port of another name", "", "10.0.0.1:7000", []string{`{"metadata":{"name":"s"},"endpoints":[` + pod("a", "10.0.0.1", `{"terminating":null}`) + `],"ports":[{"name":"x","port":1},{"port":null}]}`}},
		{"no slice", "", "", nil},
	} {
		o := MembersOptions{Self: "self", PortName: "gossip", Port: 7000}
		if x.like != "" {
			o.Like = netip.MustParseAddr(x.like)
		}
		var list []*endpointSlice
		for _, raw := range x.slices {
			s, err := readSlice([]byte(raw))
			if err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			list = append(list, &s)
		}
		if got := strings.Join(membersOf(list, &o), " "); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

// TestServiceName rejects invalid label values.
func TestServiceName(t *testing.T) {
	for _, s := range []string{"", "a,b", "a=b", "-a", "a-", "A", "a.b", strings.Repeat("a", 64)} {
		if _, err := FollowMembers(Config{Server: "http://127.0.0.1:1"}, MembersOptions{Service: s}); err == nil {
			t.Errorf("%q was accepted as a Service name", s)
		}
	}
}

// FuzzSlice decodes arbitrary bytes as an EndpointSlice. Any result consists of valid addresses.
func FuzzSlice(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"s"},"addressType":"IPv6","endpoints":[{"addresses":["::ffff:10.0.0.1"],"conditions":{"terminating":true},"targetRef":{"kind":"Pod","name":"p"}}],"ports":[{"name":"gossip","port":7946}]}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, raw []byte) {
		s, err := readSlice(raw)
		if err != nil {
			return
		}
		for _, a := range membersOf([]*endpointSlice{&s}, &MembersOptions{PortName: "gossip", Port: 7946}) {
			if at, err := netip.ParseAddrPort(a); err != nil || at.Port() == 0 || at.Addr().IsUnspecified() {
				t.Errorf("%q is not a valid address", a)
			}
		}
	})
}
