package endpoint

import (
	"net/netip"
	"slices"
	"time"
)

// kept is an endpoint that recently left the list.
type kept struct {
	ep    *Endpoint
	until time.Time
}

// Known returns the endpoint at an ip:port, listed or kept after leaving, or nil.
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

// Expire drops kept endpoints whose time has expired. The user of PoolOptions.Keep must call it
// periodically.
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

// keep stores removed endpoints so that they can be reinstated in time, except those whose address
// now belongs to another endpoint. It returns the endpoints that are dropped.
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

// another reports whether spec describes another incarnation at the same address.
func (e *Endpoint) another(spec Spec) bool {
	return e.Instance != "" && spec.Instance != "" && e.Instance != spec.Instance
}

// expired removes the kept endpoints whose time has expired, and frees their ids.
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

// back removes and returns the kept endpoint that spec describes. An endpoint with another name is
// another incarnation: the kept one is dropped at once.
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
