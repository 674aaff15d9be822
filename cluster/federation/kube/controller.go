package kube

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// Controller maintains the federation objects of one cluster.
type Controller struct {
	o       Options
	client  *kubeapi.Client
	wake    chan struct{}
	cancel  context.CancelFunc
	done    chan struct{}
	pools   *kubeapi.Follower[pool]
	imports *kubeapi.Follower[import_]
	writer  writer
	last    atomic.Bool   // see Withdraw
	settled chan struct{} // closed once the objects show that

	// Owned by the goroutine.
	memory    *memory
	paces     map[object]*pace
	failed    map[Name]string // problems reported to other clusters
	published *Local
	withdrawn bool      // settled is closed
	over      int       // exports beyond the limit, as last logged
	check     time.Time // when a missing permission counts; zero: none is missing

	mu    sync.Mutex
	state state // shown by Status
}

// object identifies the target of a pace.
type object struct {
	Name
	uid      string // of a pool: another pool of that name begins anew
	imported bool
}

func (o object) String() string {
	if o.imported {
		return kindImport + " " + o.Name.String()
	}
	return "InferencePool " + o.Name.String()
}

// Open maintains objects until Close. It does not block: failed reads and writes are retried, and
// Status has the reasons.
func Open(o Options) (*Controller, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	client, err := kubeapi.NewClient(o.Config, o.Agent)
	if err != nil {
		return nil, err
	}
	c := &Controller{o: o, client: client, wake: make(chan struct{}, 1), done: make(chan struct{}), settled: make(chan struct{}),
		memory: newMemory(), paces: map[object]*pace{}, failed: map[Name]string{}}
	c.writer = writer{client: client, reader: reader{o.Controller}, counts: newCounts(), group: o.group()}
	if err := c.register(o.Registerer); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	view := kubeapi.View{Namespace: o.Namespace}
	c.pools = kubeapi.Follow(client, kubeapi.Kind[pool]{Resource: pools, Read: c.writer.pool, Key: (*pool).key,
		Same: func(a, b *pool) bool { return a.version == b.version }}, view, o.Log, c.Wake)
	c.imports = kubeapi.Follow(client, kubeapi.Kind[import_]{Resource: imports, Read: c.writer.reader.imported, Key: (*import_).key,
		Same: func(a, b *import_) bool { return a.version == b.version }}, view, o.Log, c.Wake)
	c.Wake()
	go c.run(ctx)
	return c, nil
}

// Close stops the controller. Entries stay as they are: other replicas continue.
func (c *Controller) Close() {
	c.cancel()
	<-c.done
	c.pools.Close()
	c.imports.Close()
	c.client.Close()
}

// Withdraw marks this cluster's exports as draining, because its last replica leaves. The next process
// exports them again. It returns once the objects show that, or after withdrawWait. Call it at most
// once. Without Withdraw, Close withdraws nothing.
func (c *Controller) Withdraw() {
	c.last.Store(true)
	c.Wake()
	select {
	case <-c.settled:
	case <-c.done:
	case <-time.After(withdrawWait):
	}
}

const withdrawWait = 2 * time.Second

// Wake schedules a check of all objects: the federation's view or the served pools have changed.
func (c *Controller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Controller) run(ctx context.Context) {
	defer close(c.done)
	for {
		later := c.round(ctx)
		var timer <-chan time.Time
		if !later.IsZero() {
			timer = time.After(max(time.Until(later), c.o.Settle))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.o.Settle):
		}
	}
}

// round checks all objects, publishes the local state and writes changes. It returns when to run
// again if nothing changes; zero means never.
func (c *Controller) round(ctx context.Context) time.Time {
	f := c.facts(time.Now())
	if f == nil {
		return c.check
	}
	p := desired(f)
	if c.published == nil || !c.published.Equal(p.local) {
		c.published = &p.local
		c.o.Publish(p.local)
	}
	due := rounds{c: c, ctx: ctx, f: f, later: p.later, turn: c.o.Rank()}
	if !c.check.IsZero() {
		due.soon(c.check)
	}
	for n, want := range p.parents {
		due.parent(f.pools[n], want)
	}
	if f.blind == "" {
		for n, want := range p.imports {
			if !f.outside(n) {
				due.imported(n, f.imports[n], want)
			}
		}
	}
	c.forget(f, &p)
	c.show(f, &p, due)
	if f.last && due.waiting == 0 && !c.withdrawn {
		c.withdrawn = true
		close(c.settled)
	}
	return due.later
}

// facts collects the input of a plan. It returns nil until enough was read.
func (c *Controller) facts(now time.Time) *facts {
	v := c.o.View()
	poolState, importState := c.pools.State(), c.imports.State()
	if v.Cluster == "" || !poolState.Listed {
		c.show(&facts{View: v}, &plan{}, rounds{})
		return nil
	}
	f := &facts{View: v, controller: c.o.Controller, now: now, drain: c.o.Drain, forget: c.o.DropAfter, lease: c.o.Lease, limit: c.o.MaxExports, serves: c.o.Serves(),
		pools: map[Name]*pool{}, imports: map[Name]*import_{}, memory: c.memory, failed: c.failed, last: c.last.Load(),
		outside: func(n Name) bool { return c.o.Namespace != "" && n.Namespace != c.o.Namespace }}
	for _, p := range c.pools.Items() {
		f.pools[p.Name] = p
	}
	c.check = time.Time{}
	if kubeapi.IsForbidden(importState.Err) {
		if at := importState.Since.Add(c.o.Grace); at.After(now) {
			c.check = at
		}
	}
	switch {
	case importState.Absent():
		f.blind = problemAbsent
	case kubeapi.IsForbidden(importState.Err) && c.check.IsZero():
		f.blind = problemForbidden
	case !importState.Listed:
		return nil
	}
	if f.blind == "" {
		for _, i := range c.imports.Items() {
			f.imports[i.Name] = i
		}
	}
	f.Members, f.over = f.sane(f.limit)
	c.logOver(f)
	f.memory.observe(f)
	return f
}

// logOver logs when a member's exports begin to exceed the limit.
func (c *Controller) logOver(f *facts) {
	if n := len(f.over); n != c.over {
		if c.over = n; n > 0 {
			c.o.Log.Warn("other clusters export more pools than are imported", "limit", f.limit, "over", n, "cluster", f.over[0].cluster, "first", f.over[0].String())
		}
	}
}

// forget drops the state of objects that are gone and no longer wanted.
func (c *Controller) forget(f *facts, p *plan) {
	for o := range c.paces {
		_, wanted := p.imports[o.Name]
		if o.imported && !wanted || !o.imported && !f.pools[o.Name].is(o.uid) {
			delete(c.paces, o)
		}
	}
	for n := range c.failed {
		if _, wanted := p.imports[n]; !wanted {
			delete(c.failed, n)
		}
	}
}

// rounds performs the writes that are due in one round.
type rounds struct {
	c       *Controller
	ctx     context.Context
	f       *facts
	turn    int
	later   time.Time // when the next write is due or the plan changes
	away    bool      // the server is unreachable: no more attempts
	waiting int       // objects that still differ from the plan
}

// try writes one object if it is due.
func (r *rounds) try(o object, what string, write func() (bool, error)) {
	r.waiting++
	c, now := r.c, time.Now()
	p := c.paces[o]
	if p == nil {
		p = &pace{}
		c.paces[o] = p
	}
	at := p.due(what, r.turn, now, &c.o)
	if at.After(now) || r.away {
		r.soon(at)
		return
	}
	wrote, err := write()
	if r.ctx.Err() != nil {
		return
	}
	if p.done(what, err, wrote, now) {
		c.writer.counts.reasserted.Inc()
		c.o.Log.Warn("entry was overwritten by another writer, writing it again", "object", o.String(), "times", p.again)
	}
	if o.imported {
		if c.failed[o.Name] = p.problem(err, now, &c.o); c.failed[o.Name] == "" {
			delete(c.failed, o.Name)
		}
	}
	if err == nil {
		r.waiting--
		return
	}
	r.soon(p.retry)
	if errors.Is(err, errMoved) {
		return
	}
	r.away = r.away || kubeapi.CodeOf(err) == 0 && !errors.Is(err, errFull)
	c.writer.counts.failures.Inc()
	if p.failed == 1 {
		c.o.Log.Warn("writing an object failed", "object", o.String(), "error", err)
	}
}

// soon makes the next round start no later than at.
func (r *rounds) soon(at time.Time) {
	if r.later.IsZero() || at.Before(r.later) {
		r.later = at
	}
}

func (r *rounds) parent(have *pool, want *parent) {
	o := object{Name: have.Name, uid: have.uid}
	if have.entry.equals(want) && have.entries <= 1 {
		r.settled(o)
		return
	}
	r.try(o, want.text(), func() (bool, error) { return r.c.writer.parent(r.ctx, have, want) })
}

func (r *rounds) imported(n Name, have *import_, want *control) {
	o := object{Name: n, imported: true}
	if want == nil && (have == nil || have.entry == nil && !have.removable()) || want != nil && have != nil && have.entry.equals(want) {
		delete(r.c.failed, n)
		r.settled(o)
		r.own(have, want)
		return
	}
	r.try(o, want.text(), func() (bool, error) {
		err := r.c.writer.imported(r.ctx, n, have, want)
		return err == nil, err
	})
}

// own makes this group an owner of an import. The first replica writes.
func (r *rounds) own(have *import_, want *control) {
	if want == nil || r.turn != 0 || r.away {
		return
	}
	if err := r.c.writer.own(r.ctx, have); err != nil && r.ctx.Err() == nil {
		r.soon(time.Now().Add(maxRetry))
	}
}

func (r *rounds) settled(o object) {
	if p := r.c.paces[o]; p != nil {
		p.settled(time.Now(), &r.c.o)
	}
}
