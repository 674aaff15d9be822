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

// defaultGrace is how long a removed endpoint's id stays unused, so that in-flight requests and
// index cleanups that still hold it do not affect another endpoint.
const defaultGrace = time.Minute

// PoolOptions configures a Pool. The zero value is usable.
type PoolOptions struct {
	Grace time.Duration // before an id is reused; 0 means one minute
	// Keep is how long an endpoint that left the list can be reinstated with its id and counters;
	// 0: it is dropped at once. See Pool.Expire.
	Keep  time.Duration
	Now   func() time.Time // nil means the monotonic clock
	Prior Cost             // initial cost of the pool's engines; zero means PriorCost
	Zone  string           // this replica's zone; "": unknown, and no endpoint counts as remote
	// RevisionLabels name the revision of an endpoint; the first one that it has counts. nil means
	// LabelRevision.
	RevisionLabels []string
}

// Pool is the set of endpoints. Snapshot never blocks. Set and Subscribe exclude each other.
type Pool struct {
	opts    PoolOptions
	zone    uint64 // as in Endpoint.levels; 0: unknown
	current atomic.Pointer[Snapshot]
	book    LoadTracker
	fleets  fleets
	answers fit.Answers
	needs   NeedTimes
	loads   fit.Saved // of loads from host memory
	moves   Transfers // from prefill to decode endpoints
	fetches Transfers // fetches from another holder of blocks
	splits  Splits    // outcomes of split requests
	health  atomic.Pointer[health.Snapshot]
	memory  sync.Pool

	mu        sync.Mutex
	next      block.EndpointID
	marks     []*Mark  // by id
	kept      []kept   // oldest first
	free      []freeID // oldest first
	listeners []func(Change)
}

type freeID struct {
	id block.EndpointID
	at time.Time
}

// Change is the effect of one Set or Expire. Changed endpoints kept their id and counters, and so
// did reinstated ones among Added. Removed endpoints are no longer listed. Their state is discarded
// when they are Dropped, at once or later.
type Change struct {
	Snapshot *Snapshot
	Added    []*Endpoint
	Changed  []*Endpoint
	Removed  []*Endpoint

	Dropped []*Endpoint

	// Restarted are the Changed endpoints whose engine has restarted.
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
	if o.RevisionLabels == nil {
		o.RevisionLabels = []string{LabelRevision}
	}
	p := &Pool{opts: o, zone: zoneOf(o.Zone)}
	p.current.Store(newSnapshot(nil, 0))
	p.book.now = o.Now
	return p
}

// Snapshot returns the current state of the pool.
func (p *Pool) Snapshot() *Snapshot { return p.current.Load() }

// Answers returns the learned answer lengths.
func (p *Pool) Answers() *fit.Answers { return &p.answers }

// NeedTimes returns the learned times to load what requests need.
func (p *Pool) NeedTimes() *NeedTimes { return &p.needs }

// Loads returns the learned saving of loading blocks from host memory.
func (p *Pool) Loads() *fit.Saved { return &p.loads }

// Transfers returns the learned costs of KV transfers from prefill to decode endpoints.
func (p *Pool) Transfers() *Transfers { return &p.moves }

// Splits returns the outcomes of split requests by pair.
func (p *Pool) Splits() *Splits { return &p.splits }

// Fetches returns the learned costs of fetching KV blocks from another holder.
func (p *Pool) Fetches() *Transfers { return &p.fetches }

// Memory returns the working memory of decisions about this pool. Its content belongs to package
// cycle.
func (p *Pool) Memory() *sync.Pool { return &p.memory }

// LoadTracker returns the in-flight tracker of the pool's endpoints.
func (p *Pool) LoadTracker() *LoadTracker { return &p.book }

// Subscribe calls f for every later change, in order, on the goroutine that calls Set, after the
// new snapshot is in place. It immediately calls f with the current endpoints as added. f must not
// call Set or Subscribe.
func (p *Pool) Subscribe(f func(Change)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, f)
	if s := p.current.Load(); len(s.Endpoints) > 0 {
		f(Change{Snapshot: s, Added: s.Endpoints})
	}
}

// Set replaces the pool's endpoints. Of several specs with one address the first counts. Endpoints
// that stay keep their id, gauges and load.
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
		if len(c.Removed) > 0 {
			p.splits.Keep(func(id block.EndpointID) bool { return c.Snapshot.ByID(int(id)) != nil })
		}
	}
	return c
}

// renewAfter is the minimum duration of an engine incarnation. Several sources report the same
// restart.
const renewAfter = 2 * time.Second

// Renew records that the engine of ep has restarted. Its cache, in-flight requests and health state
// belonged to the previous incarnation, whose requests no longer count. It does nothing if ep has
// left or restarted just before.
func (p *Pool) Renew(ep *Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew(ep)
}

// renew is Renew with mu held.
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

// Began returns when the current engine incarnation was detected; zero: before e was listed.
func (e *Endpoint) Began() time.Time { return e.began }

func (p *Pool) publish(c Change) {
	p.current.Store(c.Snapshot)
	for _, f := range p.listeners {
		f(c)
	}
}

// takeID returns the lowest id whose grace time has passed, or a new one. Tables by id grow with
// the largest id.
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
