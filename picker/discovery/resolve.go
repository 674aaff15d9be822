package discovery

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// names caches the addresses of host names. A name that fails to resolve keeps its addresses. Owned
// by the Source's goroutine.
type names struct {
	resolver Resolver
	known    map[string][]netip.Addr
	failed   map[string]string // name -> error of the last lookup
}

func newNames(r Resolver) *names {
	return &names{resolver: r, known: map[string][]netip.Addr{}, failed: map[string]string{}}
}

// hostsOf returns the distinct host names in list.
func hostsOf(list []Endpoint) []string {
	var hosts []string
	for i := range list {
		if _, ok := list[i].Addr(); !ok {
			hosts = append(hosts, list[i].Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

type lookup struct {
	addrs []netip.Addr
	err   error
}

// resolve resolves hosts concurrently and drops all others.
func (n *names) resolve(ctx context.Context, hosts []string) {
	found := make([]lookup, len(hosts))
	slots := make(chan struct{}, maxLookups)
	var wg sync.WaitGroup
	for i, host := range hosts {
		slots <- struct{}{}
		wg.Go(func() {
			addrs, err := n.resolver.LookupNetIP(ctx, "ip", host)
			found[i] = lookup{usable(addrs), err}
			<-slots
		})
	}
	wg.Wait()
	known, failed := map[string][]netip.Addr{}, map[string]string{}
	for i, host := range hosts {
		switch l := found[i]; {
		case l.err == nil && len(l.addrs) > 0:
			known[host] = l.addrs
			continue
		case l.err != nil:
			failed[host] = l.err.Error()
		default:
			failed[host] = "no usable address"
		}
		if old, ok := n.known[host]; ok {
			known[host] = old
		}
	}
	n.known, n.failed = known, failed
}

// missing reports whether a host was never resolved.
func (n *names) missing(hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		_, known := n.known[h]
		_, failed := n.failed[h]
		return !known && !failed
	})
}

// usable returns the distinct usable addresses, sorted.
func usable(addrs []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if a = a.Unmap(); a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// specs converts entries to endpoints. Of several with one address the first is used; doubled is
// the number of omitted ones.
func (n *names) specs(list []Endpoint) (specs []endpoint.Spec, doubled int) {
	seen := make(map[netip.AddrPort]bool, len(list))
	for i := range list {
		e := &list[i]
		addrs := n.known[e.Host]
		if a, ok := e.Addr(); ok {
			addrs = []netip.Addr{a}
		}
		for _, a := range addrs {
			spec := e.Spec(a)
			if seen[spec.Addr] {
				doubled++
				continue
			}
			seen[spec.Addr] = true
			specs = append(specs, spec)
		}
	}
	return specs, doubled
}
