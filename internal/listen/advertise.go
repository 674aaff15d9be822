package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

var errAdvertise = errors.New("listen: an advertised address must be ip:port, and not of all interfaces")

// Advertised decides under which ip:port others reach a listener: the given one, else its
// own, on an address of this host when it listens on all.
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

// reachable chooses the address under which others reach this host: the first
// of IPv4, else the first of IPv6.
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
