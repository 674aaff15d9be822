package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

var errAdvertise = errors.New("listen: an advertised address must be ip:port, and not of all interfaces")

// Advertised returns the ip:port at which other hosts reach a listener: the given one, or the
// listener's own. If that is a wildcard, it uses an address of this host.
func Advertised(given string, listener net.Addr) (string, error) {
	if given == "" {
		given = listener.String()
	}
	at, err := netip.ParseAddrPort(given)
	if err != nil {
		return "", fmt.Errorf("%w: %q", errAdvertise, given)
	}
	if !at.Addr().IsUnspecified() {
		return at.String(), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("listen: addresses of this host: %w", err)
	}
	if ip, ok := reachable(addrs); ok {
		return netip.AddrPortFrom(ip, at.Port()).String(), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()).String(), nil
}

// reachable returns the address at which other hosts reach this one: the first IPv4 address, or the
// first IPv6 address if there is none.
func reachable(addrs []net.Addr) (at netip.Addr, ok bool) {
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if p.Addr().Is4() {
			return p.Addr(), true
		}
		if !ok {
			at, ok = p.Addr(), true
		}
	}
	return at, ok
}
