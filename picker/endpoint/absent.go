package endpoint

import (
	"net/netip"
	"slices"
	"time"
)

// kept is an endpoint that left the list a moment ago.
type kept struct {
	ep    *Endpoint
	until time.Time
}

// Known returns the endpoint at an ip:port, whether it is listed or has left and is
// kept; nil when there is none.
func (s *Snapshot) Known(address string) *Endpoint {
	if ep := s.Lookup(address); ep != nil {
		return ep
	}
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	for _, ep := range s.Absent {
		if canonical(ep.Addr) == canonical(addr) {
			return ep
		}
	}
	return nil
}

// Expire forgets the endpoints whose time to come back is over. Whoever sets
// PoolOptions.Keep calls it now and then.
func (p *Pool) Expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) == 0 || p.opts.Now().Before(p.kept[0].until) {
		return
	}
	old := p.current.Load()
	c := Change{Dropped: p.expired()}
	c.Snapshot = newSnapshot(old.Endpoints, old.Version+1)
	c.Snapshot.Absent = p.stillKept()
	p.publish(c)
}

// keep has endpoints that left the list come back as they were, if they do so in time;
// but for those whose address another one has. It returns those that are forgotten now.
func (p *Pool) keep(left, added []*Endpoint) (forgotten []*Endpoint) {
	until := p.opts.Now().Add(p.opts.Keep)
	for _, ep := range left {
		k := kept{ep, until}
		if slices.ContainsFunc(added, func(o *Endpoint) bool { return canonical(o.Addr) == canonical(ep.Addr) }) {
			k.until = time.Time{}
		}
		p.kept = append(p.kept, k)
	}
	return p.expired()
}

// another reports whether spec describes another life than ep's at the same address.
func (e *Endpoint) another(spec Spec) bool {
	return e.Instance != "" && spec.Instance != "" && e.Instance != spec.Instance
}

// expired takes out those whose time is over, and sets their ids free.
func (p *Pool) expired() (gone []*Endpoint) {
	now := p.opts.Now()
	p.kept = slices.DeleteFunc(p.kept, func(k kept) bool {
		if now.Before(k.until) {
			return false
		}
		gone = append(gone, k.ep)
		p.free = append(p.free, freeID{k.ep.ID, now})
		return true
	})
	return gone
}

// back returns the kept endpoint that spec describes, and takes it out. An endpoint of
// another name has another life: what was kept of its address is forgotten at once.
func (p *Pool) back(spec Spec) (ep *Endpoint, forgotten []*Endpoint) {
	i := slices.IndexFunc(p.kept, func(k kept) bool { return canonical(k.ep.Addr) == canonical(spec.Addr) })
	if i < 0 {
		return nil, nil
	}
	ep = p.kept[i].ep
	if ep.Name != spec.Name || ep.another(spec) {
		p.kept[i].until = time.Time{}
		return nil, p.expired()
	}
	p.kept = slices.Delete(p.kept, i, i+1)
	if !ep.Equal(spec) {
		ep = p.makeEndpoint(spec, ep.ID, ep.counters, ep.life)
	}
	return ep, nil
}

func (p *Pool) stillKept() (eps []*Endpoint) {
	for _, k := range p.kept {
		eps = append(eps, k.ep)
	}
	return eps
}
