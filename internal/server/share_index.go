package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	stateIndex   = "index"
	indexVersion = 2 // since which payloads may be short
)

// indexShare shares the precise index. Each event stream is a source of a log
// whose positions are (incarnation of the engine, batch). What this replica reads
// goes through the log, which decides whether it is new; what peers read comes
// from the log. A source whose incarnation is not known is not shared: this replica
// reads it directly. It is safe for concurrent use.
//
// Locks are taken in this order: mu (the plan), the event manager's, a stream's,
// the group's, a source's, the index's. So the hooks of streams and of the log
// only note what happened and wake the plan.
type indexShare struct {
	s       *Server
	log     *cluster.Log // nil when this replica shares nothing
	wake    chan struct{}
	waiting sync.WaitGroup // for answers about incarnations
	scratch indexer.Delta  // of indexStore.Apply, under the group's lock
	byName  atomic.Pointer[map[string]*sharedSource]
	bySrc   atomic.Pointer[map[indexer.Source]*sharedSource]

	byEndpoint atomic.Pointer[map[indexer.EndpointID][]*sharedSource]

	mu      sync.Mutex
	ctx     context.Context
	pool    *endpoint.Snapshot
	names   []string                // given to the log
	past    map[string]pastLife     // latest incarnation seen, by source
	reading map[indexer.Source]bool // as the streams were set last
	losses  prometheus.Counter
}

// pastLife is the latest incarnation of a source that was shared.
type pastLife struct {
	inc uint64
	at  time.Time
}

// pastMemory is how long a smaller incarnation is not believed.
const pastMemory = 10 * time.Minute

func newIndexShare(s *Server) *indexShare {
	x := &indexShare{s: s, wake: make(chan struct{}, 1), past: map[string]pastLife{}, pool: &endpoint.Snapshot{}}
	x.byName.Store(&map[string]*sharedSource{})
	x.bySrc.Store(&map[indexer.Source]*sharedSource{})
	x.byEndpoint.Store(&map[indexer.EndpointID][]*sharedSource{})
	x.losses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_share_index_lost_total", Help: "Times that batches of a shared stream were missing and nobody was asked before going on.",
	})
	s.registry.MustRegister(x.losses)
	for m, name := range modeNames {
		s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "grapevine_share_index_sources", Help: "Event streams by who writes what is known of them.", ConstLabels: prometheus.Labels{"mode": name},
		}, func() float64 { return x.count(sourceMode(m)) }))
	}
	return x
}

// join registers the log; before the node is opened.
func (x *indexShare) join(ctx context.Context) {
	x.ctx = ctx
	if x.s.o.Cluster.enabled() {
		// Block keys of another secret mean nothing here: such replicas do not share the index.
		name := fmt.Sprintf("%s-%016x", stateIndex, uint64(x.s.hasher.Root(indexer.Scope{})))
		x.log = x.s.node.Log(name, indexVersion, indexStore{x}, cluster.LogOptions{Owned: true, Needs: payloadNeeds})
	}
}

// eventOptions are the hooks of the event streams.
func (x *indexShare) eventOptions(o events.Options) events.Options {
	o.Index, o.OnDelta, o.OnRestart, o.OnLink, o.Resume = sharedIndex{x}, x.onDelta, x.onRestart, x.onLink, x.resume
	return o
}

func (x *indexShare) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *indexShare) find(src indexer.Source) *sharedSource { return (*x.bySrc.Load())[src] }

// sharedIndex is the index as the streams see it: what belongs to the log is
// not applied by them.
type sharedIndex struct{ x *indexShare }

// Parents implements events.Index.
func (i sharedIndex) Parents(src indexer.Source, parents, blocks []indexer.EngineHash, keys []indexer.BlockKey) {
	i.x.s.index.Parents(src, parents, blocks, keys)
}

// Lookup implements events.Index.
func (i sharedIndex) Lookup(src indexer.Source, h indexer.EngineHash) (indexer.BlockKey, bool) {
	return i.x.s.index.Lookup(src, h)
}

// Digest implements events.Index.
func (i sharedIndex) Digest(src indexer.Source) (count, xor uint64) { return i.x.s.index.Digest(src) }

// Apply implements events.Index.
func (i sharedIndex) Apply(src indexer.Source, d *indexer.Delta) indexer.ApplyStats {
	s := i.x.find(src)
	if s == nil {
		return i.x.s.index.Apply(src, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != modeDirect {
		return indexer.ApplyStats{}
	}
	return i.x.s.index.Apply(src, d)
}

// onDelta hands a batch that was read here to the log.
func (x *indexShare) onDelta(u events.Update) {
	s := x.find(u.Source)
	if s == nil || x.log == nil {
		return
	}
	mode, inc := s.isMode()
	if mode != modeShared {
		return
	}
	if u.Reset {
		// Everything is read again because it was in doubt. Positions never move
		// back, so the log cannot follow.
		x.s.o.Log.Warn("event stream is read anew, and not shared until its engine starts again", "source", s.name)
		s.become(modeDirect, inc)
		x.poke()
		return
	}
	payload := s.encode(&u, x.log.Common())
	d := cluster.Delta{Source: s.name, Inc: inc, First: u.First, Last: u.Last, Payload: payload}
	s.local.Store(&localDelta{&payload[0], u.Delta})
	v := x.log.Append(d)
	if v == cluster.Gap {
		x.lose(s, inc, u.First)
		v = x.log.Append(d) // kept aside, or too large for that
	}
	s.local.Store(nil)
	if v == cluster.Stale {
		s.newer.Store(x.log.Position(s.name).Inc)
		s.become(modeAsking, 0)
		x.poke()
	}
}

// lose goes on behind batches that the stream does not have. At the beginning
// that leaves blocks out; later it may leave blocks in that are gone.
func (x *indexShare) lose(s *sharedSource, inc, next uint64) {
	before := x.log.Position(s.name)
	if x.log.Lose(s.name, inc, next) != cluster.Applied || before.Inc != inc || before.Next == 0 {
		return
	}
	x.losses.Inc()
	s.mu.Lock()
	s.head.doubt = true
	s.mu.Unlock()
}

// onRestart is told that an engine is another one, or has lost its history.
func (x *indexShare) onRestart(src indexer.Source) {
	s := x.find(src)
	if s == nil || x.log == nil {
		return
	}
	if mode, _ := s.isMode(); mode == modeShared {
		s.become(modeAsking, 0)
	} else {
		s.verify.Store(true)
	}
	x.log.Reading(s.name, false)
	x.poke()
}

// onLink is told when a stream is connected or lost.
func (x *indexShare) onLink(src indexer.Source, up bool) {
	s := x.find(src)
	if s == nil || x.log == nil {
		return
	}
	s.up.Store(up)
	if mode, inc := s.isMode(); mode == modeShared {
		if up {
			x.log.Lose(s.name, inc, 0) // an empty cache is known exactly
		}
		x.log.Reading(s.name, up)
	} else {
		x.log.Reading(s.name, false)
	}
	if up {
		s.verify.Store(true)
	}
	x.poke()
}

// resume tells a stream from where to go on: from the last batch in the content.
func (x *indexShare) resume(src indexer.Source) (events.Position, bool) {
	s := x.find(src)
	if s == nil {
		return events.Position{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != modeShared || !s.head.have || s.cold.Load() {
		return events.Position{}, false
	}
	return events.Position{Incarnation: s.inc, Seq: s.head.last + 1, Sum: s.head.sum}, true
}

// knowledge returns how far the index can be trusted about an endpoint, from
// what is read here and what the log says. It takes no lock.
func (x *indexShare) knowledge(id indexer.EndpointID) events.Knowledge {
	k := x.read(id)
	if x.s.index.Overflowed(id) {
		k.State, k.Complete = events.Approximate, false
	}
	return k
}

// reason says why an endpoint is not known better, if that lasts; "" if not.
func (x *indexShare) reason(id indexer.EndpointID) string {
	if x.s.index.Overflowed(id) {
		return fmt.Sprintf("it holds more blocks than are kept of one (%d), or all endpoints do", x.s.index.MaxSourceBlocks())
	}
	for _, s := range (*x.byEndpoint.Load())[id] {
		if r := s.reason.Load(); r != nil && *r != "" && sourceMode(s.seen.Load()) == modeShared {
			return *r
		}
	}
	return x.s.events.Trouble(id)
}

// read is what was read of an endpoint, here and by others.
func (x *indexShare) read(id indexer.EndpointID) events.Knowledge {
	k := x.s.events.Knowledge(id)
	if x.log == nil {
		return k
	}
	read, shared := false, false
	log := events.Knowledge{Complete: true}
	for _, s := range (*x.byEndpoint.Load())[id] {
		read = read || s.plan.read.Load()
		if sourceMode(s.seen.Load()) == modeDirect {
			continue
		}
		shared = true
		log.State = max(log.State, events.State(s.state.Load()))
		log.Behind += s.behind.Load()
		log.Complete = log.Complete && s.full.Load()
	}
	switch {
	case !shared:
		return k
	case !read:
		return log
	}
	k.State, k.Behind, k.Complete = max(k.State, log.State), max(k.Behind, log.Behind), log.Complete
	return k
}

// count returns how many sources are in a mode.
func (x *indexShare) count(m sourceMode) (n float64) {
	for _, s := range *x.byName.Load() {
		if sourceMode(s.seen.Load()) == m {
			n++
		}
	}
	return n
}

// readers names who reads the streams of an endpoint for this replica: members,
// or the replica itself where it shares nothing.
func (x *indexShare) readers(id indexer.EndpointID) (names []string) {
	for _, s := range (*x.byEndpoint.Load())[id] {
		name := ""
		switch r := s.reader.Load(); {
		case sourceMode(s.seen.Load()) != modeShared:
			name = "this replica, not shared"
		case s.plan.read.Load():
			name = x.s.node.Self().ID
		case r != nil:
			name = *r
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// distrust says that the index was found wrong about an endpoint. What others
// read of it is not believed any more either: it is read here.
func (x *indexShare) distrust(id indexer.EndpointID) {
	for _, s := range (*x.byEndpoint.Load())[id] {
		if mode, inc := s.isMode(); mode == modeShared && !s.plan.read.Load() {
			s.become(modeDirect, inc)
			x.poke()
		}
	}
	x.s.events.Distrust(id)
}

func sourceName(address string, rank uint16) string { return fmt.Sprintf("%s/%d", address, rank) }
