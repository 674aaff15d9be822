package kube

import (
	"net/netip"
	"net/url"
	"slices"
)

// Values of Options.IPFamily.
const (
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
)

// addressRules choose a pod's address and refuse addresses that cannot be an engine's.
type addressRules struct {
	family   string // preferred family; "": status.podIP
	loopback bool   // loopback addresses are accepted
}

// rulesFor returns the rules for an API server. Loopback addresses are accepted if the API server's
// address is loopback too: such pods may run on this machine without a pod network.
func rulesFor(family, server string) addressRules {
	u, err := url.Parse(server)
	if err != nil {
		return addressRules{family: family}
	}
	a, _ := netip.ParseAddr(u.Hostname()) // a name leaves the address invalid
	return addressRules{family: family, loopback: u.Hostname() == "localhost" || a.Unmap().IsLoopback()}
}

// choose returns the pod's address: the first of the preferred family, or status.podIP if there is
// none. It is invalid if the pod has none, or if refused is the reason that it cannot be used.
func (r addressRules) choose(podIP string, podIPs []string) (addr netip.Addr, refused string) {
	for _, s := range slices.Concat(podIPs, []string{podIP}) {
		a, err := netip.ParseAddr(s)
		if a = a.Unmap(); err == nil && (r.family == FamilyIPv4 && a.Is4() || r.family == FamilyIPv6 && a.Is6()) {
			return r.check(a)
		}
	}
	a, _ := netip.ParseAddr(podIP) // invalid without an address
	return r.check(a.Unmap())
}

// check refuses loopback, link-local, multicast, broadcast and unspecified addresses. A hostile node
// could otherwise direct requests to this machine or to a metadata service.
func (r addressRules) check(a netip.Addr) (addr netip.Addr, refused string) {
	var kind string
	switch {
	case a.IsUnspecified():
		kind = "unspecified"
	case a.IsMulticast():
		kind = "multicast"
	case a.IsLinkLocalUnicast():
		kind = "link-local"
	case a.IsLoopback() && !r.loopback:
		kind = "loopback"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		kind = "broadcast"
	default:
		return a, ""
	}
	return netip.Addr{}, "address " + a.String() + " of the pod's status is refused: " + kind
}
