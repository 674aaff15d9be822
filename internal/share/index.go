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
	"github.com/grapevine-epp/grapevine/internal/share/plan"
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
	began   time.Time
	log     *cluster.Log // nil when this replica shares nothing
	wake    chan struct{}
	waiting sync.WaitGroup // for answers about incarnations
	common  atomic.Uint64  // version of the log that every member states
	scratch sync.Pool      // of *indexer.Delta, for store.Apply
	byName  atomic.Pointer[map[string]*source]
	bySrc   atomic.Pointer[map[indexer.Source]*source]

	byEndpoint atomic.Pointer[map[indexer.EndpointID][]*source]

	mu      sync.Mutex
	ctx     context.Context
	pool    *endpoint.Snapshot
	names   []string                // given to the log
	reading map[indexer.Source]bool // as the streams were set last
	losses  prometheus.Counter
}

// OpenIndex registers the shared log and opens the event streams' manager. Streams
// are read once Set has been called; Run ends with ctx.
func OpenIndex(ctx context.Context, o IndexOptions) *Index {
	x := &Index{o: o, ctx: ctx, wake: make(chan struct{}, 1), began: time.Now(), pool: &endpoint.Snapshot{}}
	x.byName.Store(&map[string]*source{})
	x.bySrc.Store(&map[indexer.Source]*source{})
	x.byEndpoint.Store(&map[indexer.EndpointID][]*source{})
	x.losses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_share_index_lost_total", Help: "Times that batches of a shared stream were missing and nobody was asked before going on.",
	})
	o.Registry.MustRegister(x.losses)
	for _, m := range []plan.Mode{plan.Asking, plan.Direct, plan.Shared} {
		o.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "grapevine_share_index_sources", Help: "Event streams by who writes what is known of them.", ConstLabels: prometheus.Labels{"mode": m.String()},
		}, func() float64 { return x.count(m) }))
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
	if s.isMode() == plan.Shared { // the mode of a stream that is open does not change
		return indexer.ApplyStats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != plan.Direct {
		return indexer.ApplyStats{}
	}
	return i.x.o.Index.Apply(src, d)
}

// onDelta hands a batch that was read here to the log. A stream that begins again
// from its beginning changes nothing: the log knows what it has, and what it lost.
func (x *Index) onDelta(u events.Update) {
	s := x.find(u.Source)
	if s == nil || u.Reset || x.log == nil || s.held.Load() || s.isMode() != plan.Shared {
		return
	}
	payload, inc := s.encode(&u, x.common.Load())
	d := cluster.Delta{Source: s.name, Inc: inc, First: u.First, Last: u.Last, Payload: payload}
	s.local.Store(&localDelta{inc, u.First, u.Delta})
	v := x.log.Append(d)
	if v == cluster.Gap {
		x.lose(s, inc, u.First)
		v = x.log.Append(d) // kept aside, or too large for that
	}
	s.local.Store(nil)
	if v == cluster.Stale {
		at := x.log.Position(s.name)
		s.in.note(func(r *reports) { r.overtaken = at.Inc })
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
func (x *Index) onRestart(src indexer.Source, wrapped bool) {
	s := x.find(src)
	if s == nil || x.log == nil || s.isMode() != plan.Shared {
		return
	}
	s.held.Store(true)
	s.in.note(func(r *reports) { r.restarted, r.wiped = true, r.wiped || !wrapped })
	x.log.Reading(s.name, false)
	x.poke()
}

// onLink is told when a stream is connected or lost.
func (x *Index) onLink(src indexer.Source, up bool) {
	s := x.find(src)
	if s == nil || x.log == nil {
		return
	}
	mode, inc := s.identity()
	reads := up && mode == plan.Shared && !s.held.Load()
	if reads {
		x.log.Lose(s.name, inc, 0) // an empty cache is known exactly
	}
	x.log.Reading(s.name, reads)
	if up {
		s.in.note(func(r *reports) { r.connected = true })
	}
	x.poke()
}

// resume tells a stream from where to go on: from the last batch in the content.
func (x *Index) resume(src indexer.Source) (events.Position, bool) {
	s := x.find(src)
	if s == nil || x.log == nil || s.isMode() != plan.Shared || s.cold.Load() {
		return events.Position{}, false
	}
	at := x.log.Position(s.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.head.have || at.Inc != s.inc {
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
		if r := s.shown.reason.Load(); r != nil && *r != "" && s.isMode() == plan.Shared {
			return *r
		}
	}
	return x.events.Trouble(id)
}

// Final reports whether an endpoint that is not known exactly will not be known
// better by waiting: batches were lost that no member has.
func (x *Index) Final(id indexer.EndpointID) bool {
	all := (*x.byEndpoint.Load())[id]
	final := len(all) > 0
	for _, s := range all {
		final = final && (s.shown.final.Load() || events.State(s.shown.state.Load()) == events.Exact)
	}
	return final
}

// read is what was read of an endpoint, here and by others.
func (x *Index) read(id indexer.EndpointID) events.Knowledge {
	k := x.events.Knowledge(id)
	read, shared := false, false
	log := events.Knowledge{Complete: true}
	for _, s := range (*x.byEndpoint.Load())[id] {
		read = read || s.shown.reads.Load()
		lag := time.Duration(s.shown.lag.Load())
		if s.isMode() == plan.Direct {
			if lag > 0 {
				k.State, k.Lag = max(k.State, events.CatchingUp), max(k.Lag, lag)
			}
			continue
		}
		shared = true
		log.State = max(log.State, events.State(s.shown.state.Load()))
		log.Behind += s.shown.behind.Load()
		log.Complete = log.Complete && s.shown.full.Load()
		log.Lag = max(log.Lag, lag)
	}
	switch {
	case !shared:
		return k
	case !read:
		return log
	}
	k.State, k.Behind, k.Complete, k.Lag = max(k.State, log.State), max(k.Behind, log.Behind), log.Complete, max(k.Lag, log.Lag)
	return k
}

// count returns how many sources are in a mode.
func (x *Index) count(m plan.Mode) (n float64) {
	for _, s := range *x.byName.Load() {
		if s.isMode() == m {
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
		switch r := s.shown.reader.Load(); {
		case s.isMode() != plan.Shared:
			name = "this replica, not shared"
		case s.shown.reads.Load():
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

// Distrust says that the index was found wrong about an endpoint: it is read again
// from the beginning, for the whole group where the stream is shared.
func (x *Index) Distrust(id indexer.EndpointID) {
	alone := false
	for _, s := range (*x.byEndpoint.Load())[id] {
		if s.isMode() == plan.Direct {
			alone = true
			continue
		}
		s.in.note(func(r *reports) { r.distrusted = true })
	}
	if alone {
		x.events.Distrust(id)
	}
	x.poke()
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
	for _, s := range (*x.byEndpoint.Load())[id] {
		read = read || s.shown.reads.Load()
		if s.isMode() == plan.Direct {
			if s.shown.lag.Load() > 0 {
				return false
			}
			continue
		}
		if shared = true; events.State(s.shown.state.Load()) != events.Exact {
			return false
		}
	}
	return shared && !read || x.events.State(id) == events.Exact
}

// StreamsRead counts the event streams that this replica reads itself, and all.
func (x *Index) StreamsRead() (read, all int) {
	for _, s := range *x.byName.Load() {
		all++
		if s.shown.reads.Load() {
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
		st := SourceStatus{Name: name, Mode: s.isMode().String(), Read: s.shown.reads.Load()}
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
