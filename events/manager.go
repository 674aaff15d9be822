package events

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// Manager reads the event streams of many endpoints. All methods are safe for
// concurrent use.
type Manager struct {
	opt     Options
	metrics *metrics
	ctx     context.Context
	cancel  context.CancelFunc
	slots   chan struct{} // replays under way
	scratch sync.Pool     // of *work

	mu      sync.Mutex // of Set and Close
	closed  bool
	streams map[block.Source]*subscriber
	inbound *inbound                        // publishers that dial in
	glances glances                         // at publishers of which nothing comes
	view    atomic.Pointer[[][]*subscriber] // by endpoint
}

// work is the memory in which one batch is decoded and translated. Streams
// share a few, so that idle ones hold none.
type work struct {
	batch decode.Batch
	delta block.Delta
}

// Open returns a manager without streams.
func Open(opt Options) *Manager {
	opt = opt.withDefaults()
	m := &Manager{opt: opt, slots: make(chan struct{}, opt.Replays), streams: map[block.Source]*subscriber{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.scratch.New = func() any { return new(work) }
	m.glances.by = map[Stream]*glance{}
	m.view.Store(new([][]*subscriber))
	m.metrics = newMetrics(m, opt.Registry)
	m.inbound = &inbound{m: m, subs: map[block.Source]*subscriber{}, by: map[block.Source]*guest{}}
	return m
}

// keepItems is how many items of each kind the memory of a delta keeps room for.
const keepItems = 1 << 14

func (m *Manager) work() *work {
	w := m.scratch.Get().(*work)
	w.delta.Reset()
	return w
}

func (m *Manager) done(w *work) {
	if cap(w.delta.Blocks) > keepItems || cap(w.delta.Hashes) > keepItems || cap(w.delta.Ops) > keepItems {
		w.delta = block.Delta{}
	}
	m.scratch.Put(w)
}

// Set makes the streams fit endpoints: new ones are started, those that left
// or changed are stopped first. After Set returns nothing is applied any more
// for sources that left; what the index knows of them stays until its owner
// removes it. A stream that changed starts from scratch.
func (m *Manager) Set(endpoints []EndpointSource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	wanted := map[block.Source]*EndpointSource{}
	at := map[block.Source]Stream{}
	for i := range endpoints {
		for _, s := range endpoints[i].Streams {
			src := block.Source{Endpoint: endpoints[i].ID, Rank: s.Rank}
			wanted[src], at[src] = &endpoints[i], s
		}
	}
	var leaving []*subscriber
	for src, s := range m.streams {
		if e := wanted[src]; e == nil || e.Model != s.model || e.Name != s.name || e.Pod != s.pod || at[src] != s.at {
			leaving = append(leaving, s)
			delete(m.streams, src)
		}
	}
	stopAll(leaving)
	for src, e := range wanted {
		if m.streams[src] == nil {
			s := newSubscriber(m, e, at[src])
			m.streams[src] = s
			s.start()
			if _, ok := s.at.dialsIn(); ok {
				m.inbound.expect(s)
			}
		}
	}
	m.inbound.seat()
	m.index()
}

// index rebuilds the view by endpoint.
func (m *Manager) index() {
	var view [][]*subscriber
	for src, s := range m.streams {
		if n := int(src.Endpoint) + 1; n > len(view) {
			view = append(view, make([][]*subscriber, n-len(view))...)
		}
		view[src.Endpoint] = append(view[src.Endpoint], s)
	}
	for _, ranks := range view {
		slices.SortFunc(ranks, func(a, b *subscriber) int { return int(a.src.Rank) - int(b.src.Rank) })
	}
	m.view.Store(&view)
}

// stopAll stops streams at once rather than one after the other.
func stopAll(streams []*subscriber) {
	for _, s := range streams {
		s.cancel()
	}
	for _, s := range streams {
		s.stop()
	}
}

// Close stops every stream and waits for it.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.cancel()
	m.inbound.close()
	var all []*subscriber
	for _, s := range m.streams {
		all = append(all, s)
	}
	stopAll(all)
	m.glances.close()
	clear(m.streams)
	m.index()
	m.metrics.unregister()
	return nil
}

// of returns the streams of an endpoint.
func (m *Manager) of(id block.EndpointID) []*subscriber {
	view := *m.view.Load()
	if int(id) >= len(view) {
		return nil
	}
	return view[id]
}

// Knowledge returns how far the index can be trusted about an endpoint. An
// endpoint without streams is Approximate. It takes no lock.
func (m *Manager) Knowledge(id block.EndpointID) Knowledge {
	ranks := m.of(id)
	if len(ranks) == 0 {
		return Knowledge{State: knowledge.Approximate}
	}
	now := m.opt.Now().UnixNano()
	k := ranks[0].knowledge(now)
	for _, s := range ranks[1:] {
		k = k.worse(s.knowledge(now))
	}
	return k
}

// LastEvent is when something last came of an endpoint's streams, in Unix nanoseconds, of the
// one that has been silent for longest; 0: never. It takes no lock.
func (m *Manager) LastEvent(id block.EndpointID) (at int64) {
	for i, s := range m.of(id) {
		if v := s.view.heardAt.Load(); i == 0 || v < at {
			at = v
		}
	}
	return at
}

// State is the State of Knowledge, at a fraction of its cost: every decision
// asks for that of each endpoint. It takes no lock.
func (m *Manager) State(id block.EndpointID) knowledge.State {
	ranks := m.of(id)
	if len(ranks) == 0 {
		return knowledge.Approximate
	}
	worst := knowledge.Exact
	for _, s := range ranks {
		worst = min(worst, s.state(m.opt.Now))
	}
	return worst
}

// Position returns how far a source has been followed.
func (m *Manager) Position(src block.Source) (Position, bool) {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			return s.position(), true
		}
	}
	return Position{}, false
}

// SetIncarnation names the present life of a source's engine. It is part of
// the positions reported from then on; the caller sets it from what every
// replica sees alike.
func (m *Manager) SetIncarnation(src block.Source, incarnation uint64) {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			s.mu.Lock()
			s.incarnation = incarnation
			s.mu.Unlock()
		}
	}
}

// Confirm ends the doubt about an endpoint's entries: others have found that
// what the index says of it is right, such as an audit of cached tokens.
func (m *Manager) Confirm(id block.EndpointID) {
	for _, s := range m.of(id) {
		s.mu.Lock()
		s.order.Confirm()
		s.show()
		s.mu.Unlock()
	}
}

// LastMessage returns when the last message of a source's stream came, in Unix
// nanoseconds; 0: none yet. It takes no lock.
func (m *Manager) LastMessage(src block.Source) uint64 {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			return uint64(s.view.heardAt.Load())
		}
	}
	return 0
}

// Renew makes the connection to a source's stream anew: one that was cut without a
// word looks alive. What was applied stays, and what was missed is replayed. Somebody
// looks at what else the publisher sends, too.
func (m *Manager) Renew(src block.Source) {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			s.mu.Lock()
			conn := s.conn
			s.mu.Unlock()
			if conn != nil {
				_ = conn.Close() // the session ends, and the next one begins
				m.ProbeTopics([]Stream{s.at})
			}
		}
	}
}

// Narrow reports whether the events of an endpoint tell of cache groups, and of none with
// full attention: the index holds them as if all blocks from the start of a prompt on were
// needed, and prompts may find more there than it says. It takes no lock.
func (m *Manager) Narrow(id block.EndpointID) bool {
	return slices.ContainsFunc(m.of(id), func(s *subscriber) bool { return s.view.narrow.Load() })
}

// Sparse reports whether the events of an endpoint tell of cache groups of a kind or block
// size that the index does not hold: prompts may find less there than it says. It takes no
// lock.
func (m *Manager) Sparse(id block.EndpointID) bool {
	return slices.ContainsFunc(m.of(id), func(s *subscriber) bool { return s.view.sparse.Load() })
}

// Expect tells that a request was sent to an endpoint whose engine will announce the
// blocks that it reuses of the prompt q: they are no further copies. It reports whether
// the endpoint's streams are read here, so that somebody knows.
func (m *Manager) Expect(id block.EndpointID, q block.Query) bool {
	ranks := m.of(id)
	for _, s := range ranks {
		s.mu.Lock()
		s.tr.Expect(q, !s.order.Complete())
		s.mu.Unlock()
	}
	return len(ranks) > 0
}

// Answered is how many requests for a full report, told by Expect, the engine of an
// endpoint has answered. It takes no lock.
func (m *Manager) Answered(id block.EndpointID) (n uint64) {
	for _, s := range m.of(id) {
		n += s.view.answered.Load()
	}
	return n
}

// Invalidate says that the index was found wrong about an endpoint: it becomes
// approximate, and is rebuilt where a replay can be had.
func (m *Manager) Invalidate(id block.EndpointID) {
	for _, s := range m.of(id) {
		s.mu.Lock()
		s.order.MarkUnreadable(s.order.Next())
		s.do(nil)
		s.mu.Unlock()
	}
}
