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
	slots   chan struct{} // concurrent replays
	scratch sync.Pool     // of *work

	mu          sync.Mutex // guards Set and Close
	closed      bool
	streams     map[block.Source]*subscriber
	inbound     *inbound                        // inbound publishers
	topicProbes topicProbes                     // topic probes of silent publishers
	view        atomic.Pointer[[][]*subscriber] // by endpoint
}

// work is the memory for decoding and translating one batch. Streams share a few, so that idle
// streams hold none.
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
	m.topicProbes.by = map[Stream]*topicProbe{}
	m.view.Store(new([][]*subscriber))
	m.metrics = newMetrics(m, opt.Registry)
	m.inbound = &inbound{m: m, subs: map[block.Source]*subscriber{}, by: map[block.Source]*guest{}}
	return m
}

// keepItems is the maximum number of items per kind for which a delta keeps memory.
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

// Set adjusts the streams to endpoints: removed or changed ones are stopped first, then new ones
// are started. After Set returns, nothing more is applied for removed sources; the index keeps
// their data until its owner removes it. A changed stream starts from scratch.
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

// stopAll stops streams in parallel.
func stopAll(streams []*subscriber) {
	for _, s := range streams {
		s.cancel()
	}
	for _, s := range streams {
		s.stop()
	}
}

// Close stops every stream and waits.
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
	m.topicProbes.close()
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

// Knowledge returns the state of an endpoint's index data. An endpoint without streams is
// Approximate. It takes no lock.
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

// LastEvent returns the time of the last message in Unix nanoseconds, of the stream that has been
// silent the longest; 0: never. It takes no lock.
func (m *Manager) LastEvent(id block.EndpointID) (at int64) {
	for i, s := range m.of(id) {
		if v := s.view.lastMessageAt.Load(); i == 0 || v < at {
			at = v
		}
	}
	return at
}

// State returns the State of Knowledge at lower cost, since every decision needs it for each
// endpoint. It takes no lock.
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

// Position returns the position up to which a source has been followed.
func (m *Manager) Position(src block.Source) (Position, bool) {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			return s.position(), true
		}
	}
	return Position{}, false
}

// SetIncarnation sets the current incarnation of a source's engine, which is part of the positions
// reported from then on. It must be derived from data that every replica sees alike.
func (m *Manager) SetIncarnation(src block.Source, incarnation uint64) {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			s.mu.Lock()
			s.incarnation = incarnation
			s.mu.Unlock()
		}
	}
}

// Confirm marks an endpoint's entries as verified by other means, such as an audit of cached
// tokens.
func (m *Manager) Confirm(id block.EndpointID) {
	for _, s := range m.of(id) {
		s.mu.Lock()
		s.order.Confirm()
		s.show()
		s.mu.Unlock()
	}
}

// LastMessage returns the time of the last message of a source's stream in Unix nanoseconds; 0:
// none yet. It takes no lock.
func (m *Manager) LastMessage(src block.Source) uint64 {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			return uint64(s.view.lastMessageAt.Load())
		}
	}
	return 0
}

// Renew reconnects to a source's stream, since a connection that was cut silently looks alive.
// Applied data is kept, and missed batches are replayed. It also starts a topic probe.
func (m *Manager) Renew(src block.Source) {
	for _, s := range m.of(src.Endpoint) {
		if s.src == src {
			s.mu.Lock()
			conn := s.conn
			s.mu.Unlock()
			if conn != nil {
				_ = conn.Close() // the session ends and the next one begins
				m.ProbeTopics([]Stream{s.at})
			}
		}
	}
}

// Narrow reports whether an endpoint's events describe cache groups, none with full attention. The
// index then assumes that all blocks from the start of a prompt are needed, so prompts may hit more
// than it predicts. It takes no lock.
func (m *Manager) Narrow(id block.EndpointID) bool {
	return slices.ContainsFunc(m.of(id), func(s *subscriber) bool { return s.view.narrow.Load() })
}

// Sparse reports whether an endpoint's events describe cache groups of a kind or block size that
// the index does not support, so prompts may hit less than it predicts. It takes no lock.
func (m *Manager) Sparse(id block.EndpointID) bool {
	return slices.ContainsFunc(m.of(id), func(s *subscriber) bool { return s.view.sparse.Load() })
}

// Expect announces that a request was sent to an endpoint whose engine will report the reused
// blocks of prompt q. They are not additional copies. It reports whether the endpoint's streams are
// read by this replica.
func (m *Manager) Expect(id block.EndpointID, q block.Query) bool {
	ranks := m.of(id)
	for _, s := range ranks {
		s.mu.Lock()
		s.tr.Expect(q, !s.order.Complete())
		s.mu.Unlock()
	}
	return len(ranks) > 0
}

// Answered returns the number of requests announced by Expect whose report has arrived. It takes no
// lock.
func (m *Manager) Answered(id block.EndpointID) (n uint64) {
	for _, s := range m.of(id) {
		n += s.view.answered.Load()
	}
	return n
}

// Invalidate marks an endpoint's index data as wrong: it becomes approximate, and is rebuilt if a
// replay is available.
func (m *Manager) Invalidate(id block.EndpointID) {
	for _, s := range m.of(id) {
		s.mu.Lock()
		s.order.MarkUnreadable(s.order.Next())
		s.do(nil)
		s.mu.Unlock()
	}
}
