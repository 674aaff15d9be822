package endpoint

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// defaultGrace is how long the id of a removed endpoint stays unused, so that
// whoever still holds it (a request in flight, an index being cleared) does
// not meet another endpoint under it.
const defaultGrace = time.Minute

// PoolOptions build a Pool. The zero value is usable.
type PoolOptions struct {
	Grace time.Duration // before an id is used again; 0 means one minute
	// Keep is for how long an endpoint that leaves the list comes back as it was, with
	// its id and counters; 0: it is forgotten at once. See Pool.Expire.
	Keep  time.Duration
	Now   func() time.Time // nil means steady.Now
	Prior Cost             // assumed of the pool's engines at first; zero means PriorCost
	Zone  string           // where this replica is; "" when nobody says, and then nothing is away
}

// Pool is the set of endpoints. Snapshot never blocks; Set and Subscribe
// exclude each other.
type Pool struct {
	opts    PoolOptions
	zone    uint64 // as Endpoint.levels; 0: nobody says
	current atomic.Pointer[Snapshot]
	book    LoadTracker
	fleets  fleets
	answers fit.Answers
	loads   fit.Saved // by loading from the host's memory
	moves   Transfers // to endpoints that another one computed a prompt for
	fetches Transfers // by endpoints that lacked what another one held
	health  atomic.Pointer[health.Snapshot]

	mu        sync.Mutex
	next      block.EndpointID
	kept      []kept   // oldest first
	free      []freeID // oldest first
	listeners []func(Change)
}

type freeID struct {
	id block.EndpointID
	at time.Time
}

// Change is what one Set or Expire did. Changed endpoints kept their id and counters, and
// so did those among Added that were kept since they left. Removed endpoints are listed
// no more; what is known of them goes when they are Dropped, at once or later.
type Change struct {
	Snapshot *Snapshot
	Added    []*Endpoint
	Changed  []*Endpoint
	Removed  []*Endpoint

	Dropped []*Endpoint

	// Restarted are those among Changed whose engine has started again.
	Restarted []*Endpoint
}

// NewPool returns an empty pool.
func NewPool(o PoolOptions) *Pool {
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	if o.Prior == (Cost{}) {
		o.Prior = PriorCost
	}
	p := &Pool{opts: o, zone: zoneOf(o.Zone)}
	p.current.Store(newSnapshot(nil, 0))
	return p
}

// Snapshot returns the pool as it is at this moment.
func (p *Pool) Snapshot() *Snapshot { return p.current.Load() }

// Answers returns what is learned of the lengths of answers.
func (p *Pool) Answers() *fit.Answers { return &p.answers }

// Loads returns what is learned of loading blocks from engines' host memory.
func (p *Pool) Loads() *fit.Saved { return &p.loads }

// Transfers returns what is learned of handing prompts' KV blocks from the endpoint
// that computed them to the one that answers.
func (p *Pool) Transfers() *Transfers { return &p.moves }

// Fetches returns what is learned of fetching KV blocks that another endpoint holds.
func (p *Pool) Fetches() *Transfers { return &p.fetches }

// LoadTracker returns the in-flight book of the pool's endpoints.
func (p *Pool) LoadTracker() *LoadTracker { return &p.book }

// Subscribe calls f for every later change, in order, on the goroutine that
// calls Set, after the new snapshot is in place. It calls f at once with the
// present endpoints as added. f must not call Set or Subscribe.
func (p *Pool) Subscribe(f func(Change)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, f)
	if s := p.current.Load(); len(s.Endpoints) > 0 {
		f(Change{Snapshot: s, Added: s.Endpoints})
	}
}

// Set makes specs the pool's endpoints. Of several specs with one address the
// first counts. Endpoints that stay keep their id, gauges and book.
func (p *Pool) Set(specs []Spec) Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.current.Load()
	specs = slices.Clone(specs)
	slices.SortStableFunc(specs, func(a, b Spec) int { return a.Addr.Compare(b.Addr) })
	specs = slices.CompactFunc(specs, func(a, b Spec) bool { return canonical(a.Addr) == canonical(b.Addr) })

	var c Change
	stays := make([]bool, len(old.Endpoints))
	list := make([]*Endpoint, 0, len(specs))
	for _, spec := range specs {
		i, known := old.byAddr[canonical(spec.Addr)]
		switch {
		case !known || old.Endpoints[i].another(spec):
			ep, gone := p.back(spec)
			c.Dropped = append(c.Dropped, gone...)
			if ep == nil {
				ep = p.makeEndpoint(spec, p.takeID(), new(counters), new(life))
			}
			c.Added, list = append(c.Added, ep), append(list, ep)
		case old.Endpoints[i].Equal(spec):
			stays[i], list = true, append(list, old.Endpoints[i])
		default:
			ep := p.makeEndpoint(spec, old.Endpoints[i].ID, old.Endpoints[i].counters, old.Endpoints[i].life)
			stays[i], list = true, append(list, ep)
			c.Changed = append(c.Changed, ep)
		}
	}
	for i, ep := range old.Endpoints {
		if !stays[i] {
			c.Removed = append(c.Removed, ep)
		}
	}
	c.Dropped = append(c.Dropped, p.keep(c.Removed, c.Added)...)
	c.Snapshot = old
	if len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Dropped) > 0 {
		c.Snapshot = newSnapshot(list, old.Version+1)
		c.Snapshot.Absent = p.stillKept()
		p.publish(c)
		p.prune()
	}
	return c
}

// renewAfter is how long a life of an engine lasts at least: several witnesses tell of the
// same restart.
const renewAfter = 2 * time.Second

// Renew says that the engine of ep has started again: what it held, what was in flight there
// and how far it was trusted is of its former life. Requests of that life, which may end
// late or never, count no more. It does nothing where ep has left, or began a moment ago.
func (p *Pool) Renew(ep *Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew(ep)
}

// renew is Renew for who holds mu.
func (p *Pool) renew(ep *Endpoint) {
	old, now := p.current.Load(), p.opts.Now()
	ep, was := old.ByID(int(ep.ID)), ep
	if ep == nil || ep.counters != was.counters || now.Sub(ep.began) < renewAfter {
		return
	}
	next := p.makeEndpoint(ep.Spec, ep.ID, ep.counters, &life{began: now})
	list := slices.Clone(old.Endpoints)
	list[old.byID[ep.ID]-1] = next
	c := Change{Snapshot: newSnapshot(list, old.Version+1), Changed: []*Endpoint{next}}
	c.Restarted, c.Snapshot.Absent = c.Changed, old.Absent
	p.publish(c)
}

// Began is when the present life of its engine was noticed; zero: before e was listed.
func (e *Endpoint) Began() time.Time { return e.began }

func (p *Pool) publish(c Change) {
	p.current.Store(c.Snapshot)
	for _, f := range p.listeners {
		f(c)
	}
}

// takeID returns the least id whose grace has passed, or a new one: tables by id grow with
// the greatest.
func (p *Pool) takeID() block.EndpointID {
	least := -1
	for i, f := range p.free {
		if p.opts.Now().Sub(f.at) < p.opts.Grace {
			break
		}
		if least < 0 || f.id < p.free[least].id {
			least = i
		}
	}
	if least >= 0 {
		id := p.free[least].id
		p.free = slices.Delete(p.free, least, least+1)
		return id
	}
	p.next++
	return p.next - 1
}
