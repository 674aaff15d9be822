package poolbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
)

// announceEvery is the interval of announcements without a change. A lost one delays a pool's
// sharing by this much.
const announceEvery = time.Second

// maxAnnounced limits the stored announcements of members that the group does not list.
const maxAnnounced = 1024

// Options configure a Bus. Bus is required.
type Options struct {
	Bus cluster.Bus // of the process
}

// Bus divides a process's bus among pools.
type Bus struct {
	o      Options
	wake   chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup

	parts               atomic.Pointer[map[string]*part] // by pool; replaced, not changed, with mu held
	unserved, malformed atomic.Uint64

	mu        sync.Mutex
	members   []cluster.Member
	linked    map[string]bool
	announced map[string][]string // pools by member ID, sorted
	due       bool                // an announcement is due
}

// New returns a Bus, which is inactive until Open.
func New(o Options) *Bus {
	b := &Bus{o: o, wake: make(chan struct{}, 1), linked: map[string]bool{}, announced: map[string][]string{}}
	b.parts.Store(&map[string]*part{})
	return b
}

// Open joins the group. It returns the error of the process's bus if that fails.
func (b *Bus) Open(ctx context.Context) error {
	loop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel = cancel
	b.wg.Go(func() { b.run(loop) })
	if err := b.o.Bus.Open(ctx, handler{b}); err != nil {
		cancel()
		b.wg.Wait()
		return err
	}
	return nil
}

// Leave announces that this process leaves the group, with all pools.
func (b *Bus) Leave(ctx context.Context) error { return b.o.Bus.Leave(ctx) }

// Close stops the process's bus and waits. Parts must be closed before.
func (b *Bus) Close() error {
	if b.cancel == nil {
		return nil
	}
	err := b.o.Bus.Close()
	b.cancel()
	b.wg.Wait()
	return err
}

// Status returns the state of the process's bus.
func (b *Bus) Status() cluster.BusStatus { return b.o.Bus.Status() }

// SetKeys changes the group's keys, if the process's bus can.
func (b *Bus) SetKeys(keys [][]byte) error {
	bus, ok := b.o.Bus.(interface{ SetKeys([][]byte) error })
	if !ok {
		return errors.New("poolbus: the group's keys cannot be changed while running")
	}
	return bus.SetKeys(keys)
}

// Serving returns the IDs of the other members that announced a pool.
func (b *Bus) Serving(pool string) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.serving(pool) {
		ids = append(ids, m.ID)
	}
	return ids
}

// Part returns the bus of a pool.
func (b *Bus) Part(pool string) cluster.Bus {
	return &part{b: b, pool: pool, idle: make(chan struct{})}
}

// serving lists the members that announced a pool. b is locked.
func (b *Bus) serving(pool string) (out []cluster.Member) {
	for _, m := range b.members {
		if _, has := slices.BinarySearch(b.announced[m.ID], pool); has {
			out = append(out, m)
		}
	}
	return out
}

// soon wakes the loop.
func (b *Bus) soon() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run announces this replica's pools, and reports members and links to the parts. It is the only
// goroutine that does so, so that a part never gets an older list after a newer one.
func (b *Bus) run(ctx context.Context) {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		b.update()
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-tick.C:
			b.mu.Lock()
			b.due = true
			b.mu.Unlock()
		}
	}
}

// news is what a part has not been given yet.
type news struct {
	p       *part
	members []cluster.Member
	links   map[string]bool
}

// update sends an announcement, if one is due, and gives the parts their news.
func (b *Bus) update() {
	b.mu.Lock()
	var message []byte
	parts := *b.parts.Load()
	if b.due {
		b.due = false
		message = appendAnnouncement(nil, slices.Sorted(maps.Keys(parts)))
	}
	var list []news
	for _, p := range parts {
		n := news{p: p, links: map[string]bool{}}
		n.members = b.serving(p.pool)
		for _, m := range n.members {
			if up := b.linked[m.ID]; up != p.links[m.ID] {
				n.links[m.ID] = up
			}
		}
		for id, up := range p.links {
			if up && !b.linked[id] {
				n.links[id] = false
			}
		}
		list = append(list, n)
	}
	b.mu.Unlock()
	if message != nil {
		b.o.Bus.Send(cluster.Envelope{Frame: message})
	}
	for _, n := range list {
		n.p.announce(n)
	}
}

// Describe implements prometheus.Collector.
func (b *Bus) Describe(ch chan<- *prometheus.Desc) {
	cluster.DescribeBus(ch)
	ch <- descDropped
}

var descDropped = prometheus.NewDesc("grapevine_cluster_pool_frames_dropped_total", "Frames from other replicas that belong to no pool of this one, by reason: unserved (this replica does not serve the pool) or malformed.", []string{"reason"}, nil)

// Collect implements prometheus.Collector.
func (b *Bus) Collect(ch chan<- prometheus.Metric) {
	st := b.Status()
	cluster.CollectBus(ch, &st)
	ch <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(b.unserved.Load()), "unserved")
	ch <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(b.malformed.Load()), "malformed")
}

// handler receives from the process's bus.
type handler struct{ b *Bus }

// Members implements cluster.Handler.
func (h handler) Members(members []cluster.Member) {
	b := h.b
	b.mu.Lock()
	for _, m := range members {
		if _, known := b.announced[m.ID]; !known {
			b.due = true
		}
	}
	b.members = slices.Clone(members)
	if len(b.announced) > maxAnnounced {
		maps.DeleteFunc(b.announced, func(id string, _ []string) bool {
			return !slices.ContainsFunc(members, func(m cluster.Member) bool { return m.ID == id })
		})
	}
	b.mu.Unlock()
	b.soon()
}

// Link implements cluster.Handler.
func (h handler) Link(id string, up bool) {
	b := h.b
	b.mu.Lock()
	if up {
		b.linked[id], b.due = true, true
	} else {
		delete(b.linked, id)
	}
	b.mu.Unlock()
	b.soon()
}

// Reaches reports whether the node of any pool reaches the member, now and at any time before.
func (h handler) Reaches(id string) (now, ever bool) {
	for _, p := range *h.b.parts.Load() {
		r, ok := p.h.(interface {
			Reaches(id string) (now, ever bool)
		})
		if !ok || !p.enter() {
			continue
		}
		n, e := r.Reaches(id)
		p.exit()
		now, ever = now || n, ever || e
	}
	return now, ever
}

// Receive implements cluster.Handler.
func (h handler) Receive(from string, message []byte) {
	b := h.b
	pool, frame, err := splitMessage(message)
	if err == nil && len(pool) == 0 {
		err = b.received(from, frame)
	}
	p := (*b.parts.Load())[string(pool)]
	switch {
	case err != nil:
		b.malformed.Add(1)
	case p != nil && p.enter():
		p.h.Receive(from, frame)
		p.exit()
	case len(pool) > 0:
		b.unserved.Add(1)
	}
}

// received stores a member's announcement.
func (b *Bus) received(from string, announcement []byte) error {
	pools, err := readAnnouncement(announcement)
	if err != nil {
		return err
	}
	b.mu.Lock()
	before, known := b.announced[from]
	if known && slices.Equal(before, pools) {
		b.mu.Unlock()
		return nil
	}
	if known || len(b.announced) < 2*maxAnnounced {
		b.announced[from] = pools
	}
	b.due = b.due || !known // it may lack this replica's announcement, too
	b.mu.Unlock()
	b.soon()
	return nil
}

// part is the bus of one pool.
type part struct {
	b    *Bus
	pool string
	h    cluster.Handler

	links map[string]bool // reported ones that are up; owned by the loop, read with b locked

	mu     sync.Mutex
	busy   int
	closed bool
	idle   chan struct{} // closed once closed is set and busy is 0
}

// Open implements cluster.Bus.
func (p *part) Open(_ context.Context, h cluster.Handler) error {
	if p.pool == "" || len(p.pool) > MaxName {
		return fmt.Errorf("poolbus: the pool's name has %d bytes, want 1 to %d", len(p.pool), MaxName)
	}
	p.h = h
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	parts := maps.Clone(*b.parts.Load())
	if parts[p.pool] != nil {
		return fmt.Errorf("poolbus: pool %s is open already", p.pool)
	}
	if len(parts) == MaxPools {
		return fmt.Errorf("poolbus: more than %d pools", MaxPools)
	}
	p.links = map[string]bool{}
	parts[p.pool] = p
	b.parts.Store(&parts)
	b.due = true
	b.soon()
	return nil
}

// Send implements cluster.Bus.
func (p *part) Send(e cluster.Envelope) {
	e.Frame = appendMessage(make([]byte, 0, 1+len(p.pool)+len(e.Frame)), p.pool, e.Frame)
	p.b.o.Bus.Send(e)
}

// Leave announces that this replica no longer serves the pool.
func (p *part) Leave(context.Context) error {
	p.remove()
	return nil
}

// remove takes the pool out of the announcements.
func (p *part) remove() {
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if parts := maps.Clone(*b.parts.Load()); parts[p.pool] == p {
		delete(parts, p.pool)
		b.parts.Store(&parts)
		b.due = true
		b.soon()
	}
}

// Close implements cluster.Bus.
func (p *part) Close() error {
	p.remove()
	p.mu.Lock()
	was := p.closed
	p.closed = true
	if !was && p.busy == 0 {
		close(p.idle)
	}
	p.mu.Unlock()
	<-p.idle
	return nil
}

// Status returns the state of the process's bus without its counters, which do not belong to a pool.
func (p *part) Status() cluster.BusStatus {
	st := p.b.Status()
	st.Queues, st.Refused = nil, nil
	return st
}

// enter reports whether the pool's node may be called. exit follows.
func (p *part) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.busy++
	return true
}

func (p *part) exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy--; p.closed && p.busy == 0 {
		close(p.idle)
	}
}

// announce reports members and links to the pool's node. Only the loop calls it.
func (p *part) announce(n news) {
	if !p.enter() {
		return
	}
	defer p.exit()
	p.h.Members(n.members)
	for id, up := range n.links {
		p.h.Link(id, up)
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for id, up := range n.links {
		if up {
			p.links[id] = true
		} else {
			delete(p.links, id)
		}
	}
}
