package share

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// indexVersion is the version of the log since which payloads may be short.
const indexVersion = 2

// IndexOptions build an Index. Node and Grouped apart, all fields are required.
type IndexOptions struct {
	Node     *cluster.Node // not open yet
	Grouped  bool          // false: nothing is shared, and every stream is read here
	Hasher   indexer.Hasher
	Index    *indexer.Index
	Pool     *endpoint.Pool
	Source   func(*endpoint.Endpoint) events.EndpointSource // where an endpoint's streams are, and how they are read
	Page     func(context.Context, *endpoint.Endpoint) (scrape.Page, error)
	Conflict func(*endpoint.Endpoint) string // names a member that reads an endpoint in another way; "" for none
	Ready    func() bool                     // models have been read
	Log      *slog.Logger
	Registry *prometheus.Registry
	Events   events.Options // periods and limits of reading; the rest of it is set by OpenIndex
}

// Index shares the precise index. Each event stream is a source of a log
// whose positions are (incarnation of the engine, batch). What this replica reads
// goes through the log, which decides whether it is new; what peers read comes
// from the log. A source whose incarnation is not known is not shared: this replica
// reads it directly. It is safe for concurrent use.
//
// Locks are taken in this order: mu (the plan), the event manager's, a stream's,
// the group's, a source's, the index's. So the hooks of streams and of the log
// only note what happened and wake the plan.
type Index struct {
	o       IndexOptions
	events  *events.Manager
	log     *cluster.Log // nil when this replica shares nothing
	wake    chan struct{}
	waiting sync.WaitGroup // for answers about incarnations
	scratch sync.Pool      // of *indexer.Delta, for store.Apply
	byName  atomic.Pointer[map[string]*source]
	bySrc   atomic.Pointer[map[indexer.Source]*source]

	byEndpoint atomic.Pointer[map[indexer.EndpointID][]*source]

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

// OpenIndex registers the shared log and opens the event streams' manager. Streams
// are read once Set has been called; Run ends with ctx.
func OpenIndex(ctx context.Context, o IndexOptions) *Index {
	x := &Index{o: o, ctx: ctx, wake: make(chan struct{}, 1), past: map[string]pastLife{}, pool: &endpoint.Snapshot{}}
	x.byName.Store(&map[string]*source{})
	x.bySrc.Store(&map[indexer.Source]*source{})
	x.byEndpoint.Store(&map[indexer.EndpointID][]*source{})
	x.losses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_share_index_lost_total", Help: "Times that batches of a shared stream were missing and nobody was asked before going on.",
	})
	o.Registry.MustRegister(x.losses)
	for m, name := range modeNames {
		o.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "grapevine_share_index_sources", Help: "Event streams by who writes what is known of them.", ConstLabels: prometheus.Labels{"mode": name},
		}, func() float64 { return x.count(mode(m)) }))
	}
	if o.Grouped {
		// Block keys of another secret mean nothing here: such replicas do not share the index.
		name := fmt.Sprintf("%s-%016x", stateIndex, uint64(o.Hasher.Root(indexer.Scope{})))
		x.log = o.Node.Log(name, indexVersion, store{x}, cluster.LogOptions{Owned: true, Needs: payloadNeeds})
	}
	e := o.Events
	e.Index, e.Hasher, e.Log, e.Registry = streamIndex{x}, o.Hasher, o.Log, o.Registry
	e.OnDelta, e.OnRestart, e.OnLink, e.Resume = x.onDelta, x.onRestart, x.onLink, x.resume
	x.events = events.Open(e)
	return x
}

// Close ends all streams and waits for them.
func (x *Index) Close() error { return x.events.Close() }

func (x *Index) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *Index) find(src indexer.Source) *source { return (*x.bySrc.Load())[src] }

// streamIndex is the index as the streams see it: what belongs to the log is
// not applied by them.
type streamIndex struct{ x *Index }

// Parents implements events.Index.
func (i streamIndex) Parents(src indexer.Source, parents, blocks []indexer.EngineHash, keys []indexer.BlockKey) {
	i.x.o.Index.Parents(src, parents, blocks, keys)
}

// Lookup implements events.Index.
func (i streamIndex) Lookup(src indexer.Source, h indexer.EngineHash) (indexer.BlockKey, bool) {
	return i.x.o.Index.Lookup(src, h)
}

// Digest implements events.Index.
func (i streamIndex) Digest(src indexer.Source) (count, xor uint64) { return i.x.o.Index.Digest(src) }

// Apply implements events.Index.
func (i streamIndex) Apply(src indexer.Source, d *indexer.Delta) indexer.ApplyStats {
	s := i.x.find(src)
	if s == nil {
		return i.x.o.Index.Apply(src, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != modeDirect {
		return indexer.ApplyStats{}
	}
	return i.x.o.Index.Apply(src, d)
}

// onDelta hands a batch that was read here to the log.
func (x *Index) onDelta(u events.Update) {
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
		x.o.Log.Warn("event stream is read anew, and not shared until its engine starts again", "source", s.name)
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
func (x *Index) lose(s *source, inc, next uint64) {
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
func (x *Index) onRestart(src indexer.Source) {
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
func (x *Index) onLink(src indexer.Source, up bool) {
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
func (x *Index) resume(src indexer.Source) (events.Position, bool) {
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

// Knowledge returns how far the index can be trusted about an endpoint, from
// what is read here and what the log says. It takes no lock.
func (x *Index) Knowledge(id indexer.EndpointID) events.Knowledge {
	k := x.read(id)
	if x.o.Index.Overflowed(id) {
		k.State, k.Complete = events.Approximate, false
	}
	return k
}

// Reason says why an endpoint is not known better, if that lasts; "" if not.
func (x *Index) Reason(id indexer.EndpointID) string {
	if x.o.Index.Overflowed(id) {
		return fmt.Sprintf("it holds more blocks than are kept of one (%d), or all endpoints do", x.o.Index.MaxSourceBlocks())
	}
	for _, s := range (*x.byEndpoint.Load())[id] {
		if r := s.reason.Load(); r != nil && *r != "" && mode(s.seen.Load()) == modeShared {
			return *r
		}
	}
	return x.events.Trouble(id)
}

// read is what was read of an endpoint, here and by others.
func (x *Index) read(id indexer.EndpointID) events.Knowledge {
	k := x.events.Knowledge(id)
	if x.log == nil {
		return k
	}
	read, shared := false, false
	log := events.Knowledge{Complete: true}
	for _, s := range (*x.byEndpoint.Load())[id] {
		read = read || s.plan.read.Load()
		if mode(s.seen.Load()) == modeDirect {
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
func (x *Index) count(m mode) (n float64) {
	for _, s := range *x.byName.Load() {
		if mode(s.seen.Load()) == m {
			n++
		}
	}
	return n
}

// Readers names who reads the streams of an endpoint for this replica: members,
// or the replica itself where it shares nothing.
func (x *Index) Readers(id indexer.EndpointID) (names []string) {
	for _, s := range (*x.byEndpoint.Load())[id] {
		name := ""
		switch r := s.reader.Load(); {
		case mode(s.seen.Load()) != modeShared:
			name = "this replica, not shared"
		case s.plan.read.Load():
			name = x.o.Node.Self().ID
		case r != nil:
			name = *r
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Distrust says that the index was found wrong about an endpoint. What others
// read of it is not believed any more either: it is read here.
func (x *Index) Distrust(id indexer.EndpointID) {
	for _, s := range (*x.byEndpoint.Load())[id] {
		if mode, inc := s.isMode(); mode == modeShared && !s.plan.read.Load() {
			s.become(modeDirect, inc)
			x.poke()
		}
	}
	x.events.Distrust(id)
}

func SourceName(address string, rank uint16) string { return fmt.Sprintf("%s/%d", address, rank) }

// Vouch ends the doubt about an endpoint's entries: what the index says of it was
// found right.
func (x *Index) Vouch(id indexer.EndpointID) { x.events.Vouch(id) }

// Exact reports whether the index knows an endpoint exactly: whether the State of
// Knowledge is Exact, at a fraction of its cost. Every decision asks for each endpoint.
func (x *Index) Exact(id indexer.EndpointID) bool {
	if x.o.Index.Overflowed(id) {
		return false
	}
	read, shared := false, false
	if x.log != nil {
		for _, s := range (*x.byEndpoint.Load())[id] {
			read = read || s.plan.read.Load()
			if mode(s.seen.Load()) == modeDirect {
				continue
			}
			if shared = true; events.State(s.state.Load()) != events.Exact {
				return false
			}
		}
	}
	return shared && !read || x.events.State(id) == events.Exact
}

// StreamsRead counts the event streams that this replica reads itself, and all.
func (x *Index) StreamsRead() (read, all int) {
	if x.log == nil {
		for _, ep := range x.o.Pool.Snapshot().Endpoints {
			all += len(x.o.Source(ep).Streams)
		}
		return all, all
	}
	for _, s := range *x.byName.Load() {
		all++
		if s.plan.read.Load() {
			read++
		}
	}
	return read, all
}

// SourceStatus is what this replica knows of one event stream.
type SourceStatus struct {
	Name string
	Mode string // asking, direct, shared
	Read bool   // by this replica
	Log  cluster.SourceView
}

// Sources lists the event streams of a group; none when nothing is shared.
func (x *Index) Sources() (out []SourceStatus) {
	if x.log == nil {
		return nil
	}
	for name, s := range *x.byName.Load() {
		st := SourceStatus{Name: name, Mode: mode(s.seen.Load()).String(), Read: s.plan.read.Load()}
		st.Log, _ = x.log.Source(name)
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b SourceStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Position returns how far a source is known to the group's log.
func (x *Index) Position(source string) cluster.Position { return x.log.Position(source) }

// Followed returns how far this replica itself has read a source's stream.
func (x *Index) Followed(src indexer.Source) (events.Position, bool) { return x.events.Position(src) }
