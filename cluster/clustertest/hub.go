package clustertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/grapevine-epp/grapevine/cluster"
)

// Hub connects Buses.
type Hub struct {
	mu    sync.Mutex
	buses []*Bus
	cut   map[[2]string]bool
}

// NewHub returns a Hub without members.
func NewHub() *Hub { return &Hub{cut: map[[2]string]bool{}} }

// Bus returns a Bus for a member, which joins when it is opened.
func (h *Hub) Bus(self cluster.Member) *Bus {
	return &Bus{hub: h, self: self, queue: make(chan func(), 4096)}
}

// Cut breaks or restores the connection between two members, by name.
func (h *Hub) Cut(a, b string, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut[[2]string{a, b}], h.cut[[2]string{b, a}] = cut, cut
	for _, x := range h.buses {
		for _, y := range h.buses {
			if (x.self.Name == a && y.self.Name == b) || (x.self.Name == b && y.self.Name == a) {
				x.link(y.self.ID, !cut)
			}
		}
	}
}

// Bus is the bus of one member.
type Bus struct {
	hub     *Hub
	self    cluster.Member
	queue   chan func()
	handler cluster.Handler
	cancel  context.CancelFunc
	done    chan struct{}
	dropped uint64
}

// Open joins.
func (b *Bus) Open(ctx context.Context, h cluster.Handler) error {
	if b.done != nil {
		return errors.New("clustertest: opened twice")
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.handler, b.cancel, b.done = h, cancel, make(chan struct{})
	go b.run(run)
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	b.hub.buses = append(b.hub.buses, b)
	b.hub.announce()
	return nil
}

func (b *Bus) run(ctx context.Context) {
	defer close(b.done)
	for {
		select {
		case <-ctx.Done():
			return
		case fn := <-b.queue:
			if ctx.Err() == nil {
				fn()
			}
		}
	}
}

// post queues an event for the member. It is dropped if the queue is full. The caller holds the
// hub's lock.
func (b *Bus) post(fn func()) {
	select {
	case b.queue <- fn:
	default:
		b.dropped++
	}
}

func (b *Bus) link(id string, up bool) { b.post(func() { b.handler.Link(id, up) }) }

// announce sends the list of members to every member.
func (h *Hub) announce() {
	var members []cluster.Member
	for _, b := range h.buses {
		members = append(members, b.self)
	}
	for _, b := range h.buses {
		b.post(func() { b.handler.Members(members) })
		for _, o := range h.buses {
			if o != b && !h.cut[[2]string{b.self.Name, o.self.Name}] {
				b.link(o.self.ID, true)
			}
		}
	}
}

// Send delivers e.
func (b *Bus) Send(e cluster.Envelope) {
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	for _, o := range b.hub.buses {
		if o == b || (e.To != nil && !slices.Contains(e.To, o.self.ID)) || b.hub.cut[[2]string{b.self.Name, o.self.Name}] {
			continue
		}
		o.post(func() { o.handler.Receive(b.self.ID, e.Frame) })
	}
}

// Leave announces the departure to the other members.
func (b *Bus) Leave(context.Context) error {
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	b.hub.buses = slices.DeleteFunc(b.hub.buses, func(o *Bus) bool { return o == b })
	b.hub.announce()
	return nil
}

// Close leaves, and waits for the last delivery.
func (b *Bus) Close() error {
	if b.done == nil {
		return nil
	}
	_ = b.Leave(context.Background())
	b.cancel()
	<-b.done
	return nil
}

// Status returns the kind.
func (b *Bus) Status() cluster.BusStatus {
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	s := cluster.BusStatus{Kind: "hub", Advertised: "in-process"}
	for _, o := range b.hub.buses {
		if o != b {
			s.Queues = append(s.Queues, cluster.Queue{Peer: o.self.ID, Frames: len(o.queue), Dropped: o.dropped})
		}
	}
	return s
}
