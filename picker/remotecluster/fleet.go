package remotecluster

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Fleet holds the pools of remote clusters.
type Fleet struct {
	o     Options
	table atomic.Pointer[table]

	mu       sync.Mutex // serializes Update
	pool     *endpoint.Pool
	accounts map[string]*account
	scratch  sync.Pool
	counts   counts
}

// table is the immutable data for decisions.
type table struct {
	view  *federation.View
	sides []*side
}

// scratch is the buffers of one decision.
type scratch struct {
	keys   []block.Key
	also   []block.Key
	quotes []cycle.RemoteTerms
	open   []bool
}

// New returns an empty fleet.
func New(o Options) *Fleet {
	f := &Fleet{o: o.complete(), pool: endpoint.NewPool(endpoint.PoolOptions{}), accounts: map[string]*account{}}
	f.scratch.New = func() any { return new(scratch) }
	f.table.Store(&table{view: &federation.View{}})
	return f
}

// maxAddresses is the maximum number of gateways, and of endpoints, used per cluster.
const maxAddresses = 1024

// Update sets the view of remote clusters. Decisions use it immediately.
func (f *Fleet) Update(v *federation.View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &table{view: v}
	var specs []endpoint.Spec
	for _, c := range v.Clusters {
		for _, r := range c.Pools {
			if r.Pool != f.o.Pool || r.Export == nil || c.Name == f.o.Self {
				continue
			}
			a := f.accounts[c.Name]
			if a == nil {
				a = &account{}
				f.accounts[c.Name] = a
			}
			s := &side{Remote: r, account: a, at: place{c.Name, cmp.Or(f.o.Regions[c.Name], r.Region)}, cost: costOf(&r.Price), egress: f.egress(r.Price.Egress)}
			s.also = r.Secret != nil && r.Secret == v.Also
			t.sides = append(t.sides, s)
			specs = f.addresses(specs, r)
		}
	}
	for name := range f.accounts {
		if v.Cluster(name) == nil {
			delete(f.accounts, name)
		}
	}
	snap := f.pool.Set(specs).Snapshot
	for _, s := range t.sides {
		s.gateways, s.direct = nil, nil
		for _, ep := range snap.Endpoints {
			switch {
			case ep.Cluster != s.Cluster:
			case ep.Name == gatewayName:
				s.gateways = append(s.gateways, ep)
			default:
				s.direct = append(s.direct, ep)
			}
		}
	}
	f.table.Store(t)
}

// View returns the view from the last Update, never nil.
func (f *Fleet) View() *federation.View { return f.table.Load().view }

// gatewayName distinguishes gateways from endpoints.
const gatewayName = "gateway"

// addresses appends the addresses of a pool.
func (f *Fleet) addresses(specs []endpoint.Spec, r *federation.Remote) []endpoint.Spec {
	add := func(name string, addr netip.AddrPort) {
		if addr.IsValid() && addr.Port() != 0 && !addr.Addr().IsUnspecified() && !addr.Addr().IsMulticast() && !addr.Addr().IsLinkLocalUnicast() {
			specs = append(specs, endpoint.Spec{Name: name, Cluster: r.Cluster, Host: addr.Addr().String(), Addr: addr})
		}
	}
	for _, g := range r.Gateways[:min(len(r.Gateways), maxAddresses)] {
		for _, addr := range f.o.Resolve(g.HostPort) {
			add(gatewayName, addr)
		}
	}
	if f.o.Mode == ModeEndpoint {
		for _, d := range r.Direct[:min(len(r.Direct), maxAddresses)] {
			for _, addr := range literal(d) {
				add("", addr)
			}
		}
	}
	return specs
}

// egress returns the price per byte in seconds.
func (f *Fleet) egress(class string) float64 {
	price, ok := f.o.Egress[class]
	if !ok {
		price = f.o.Egress[""]
	}
	return price / 1e9
}

// Sent records that r is sent to ep in a remote cluster: picker.RemoteClusters.Sent.
func (f *Fleet) Sent(r *request.Request, ep *endpoint.Endpoint, w endpoint.Work, now time.Time) {
	t := f.table.Load()
	for _, s := range t.sides {
		if s.Cluster != ep.Cluster {
			continue
		}
		s.book(s.cost.Prefill(w), now)
		s.trial(now)
		f.counts.sent.Add(1)
		if t.view.Secret != nil && r.CacheSalt == "" {
			sc := f.scratch.Get().(*scratch)
			sc.keys = t.view.Secret.Chain(r.Target, r.Chunks.Bytes, sc.keys[:0])
			s.mu.Lock()
			s.held.record(sc.keys, now)
			s.mu.Unlock()
			f.scratch.Put(sc)
		}
		return
	}
}

// Ended records a request's outcome: picker.RemoteClusters.Ended.
func (f *Fleet) Ended(ep *endpoint.Endpoint, e picker.RemoteOutcome) {
	for _, s := range f.table.Load().sides {
		if s.Cluster == ep.Cluster {
			s.ended(&e, s.roundTrip())
			if !e.Complete {
				f.counts.failed.Add(1)
			}
			return
		}
	}
}

// Decide is Offer for callers without a Cycle, such as simulations. here is the local price, nil if
// this cluster cannot serve. It returns the terms to use; ok is false if the request stays.
func (f *Fleet) Decide(a *Ask, here *cycle.RemoteTerms, lot uint64, now time.Time) (terms cycle.RemoteTerms, ok bool) {
	t := f.table.Load()
	sc := f.scratch.Get().(*scratch)
	defer f.scratch.Put(sc)
	sc.quotes, sc.open = sc.quotes[:0], sc.open[:0]
	for _, s := range t.sides {
		sc.quotes = append(sc.quotes, f.quote(s, a, now))
		sc.open = append(sc.open, s.state(now, s.ReceivedAt, f.o.Margin.Hold).open)
	}
	i := f.cheapest(here, sc.quotes, sc.open, lot)
	if i < 0 || !t.sides[i].trial(now) && here != nil {
		return cycle.RemoteTerms{}, false
	}
	return sc.quotes[i], true
}

// Book is Sent for callers without a Request: that many seconds of prefill, for a prompt with these
// keys, go to a cluster.
func (f *Fleet) Book(cluster string, seconds float64, keys []block.Key, now time.Time) {
	for _, s := range f.table.Load().sides {
		if s.Cluster == cluster {
			s.book(seconds, now)
			s.mu.Lock()
			s.held.record(keys, now)
			s.mu.Unlock()
			return
		}
	}
}
