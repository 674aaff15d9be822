package share

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

const (
	stateIndex   = "index" // name of the shared log
	indexVersion = 2       // version of the log; since version 2 payloads may be short
	// suffixMark starts the suffix of source names whose block keys use a seed made by the group.
	suffixMark = "~"
)

// printOf returns a fingerprint of a hasher's seed that is safe to publish.
func printOf(h block.Hasher) uint64 { return uint64(h.Root(block.Scope{})) }

// suffix returns the suffix of source names for a seed.
func suffix(mark uint64) string {
	return suffixMark + base64.RawURLEncoding.EncodeToString(binary.LittleEndian.AppendUint64(nil, mark))
}

// Tuning suits sources of 100,000 blocks and more. Their snapshots take time, so few are loaded at
// once, with a longer timeout.
func Tuning() cluster.Tuning { return cluster.Tuning{Loads: 4, AskTimeout: time.Second} }

// IndexOptions configure an Index. All fields except Node and Grouped are required.
type IndexOptions struct {
	Node    *cluster.Node // not open yet
	Grouped bool          // false: nothing is shared, and this replica reads every stream
	// Secret means that the seed of block keys is read from a file and never changes. Otherwise the
	// group makes a seed, and Seeded reports whether this replica has it; see Seeds.
	Secret   bool
	Seeded   func() bool
	Hasher   block.Hasher
	Index    *indexer.Index
	Pool     *endpoint.Pool
	Source   func(*endpoint.Endpoint) events.EndpointSource // returns an endpoint's streams and how to read them
	Page     func(context.Context, *endpoint.Endpoint) (scrape.Page, error)
	Conflict func(*endpoint.Endpoint) string // returns a member that reads an endpoint differently, or ""
	Ready    func() bool                     // reports whether models were loaded
	// EngineRestarted is called on a separate goroutine when a stream shows a restarted engine
	// whose metrics page has no start time. It may be nil.
	EngineRestarted func(*endpoint.Endpoint)
	Log             *slog.Logger
	Watch           *watchdog.Loop // of Run; nil: not watched
	Registry        *prometheus.Registry
	Events          events.Options // periods and limits of reading; OpenIndex sets the rest
}

// Index shares the precise index. Each event stream is a source of a log with positions (engine
// incarnation, batch). Deltas that this replica reads go through the log, which decides whether
// they are new. Deltas that peers read arrive from the log. A source with an unknown incarnation is
// not shared: this replica reads it directly. Safe for concurrent use.
//
// Lock order: mu (the plan), the event manager's, a stream's, the group's, a source's, the index's.
// For that reason the hooks of streams and of the log only record events and wake the driver.
type Index struct {
	o       IndexOptions
	events  *events.Manager
	began   time.Time
	log     *cluster.Log // nil if this replica shares nothing
	wake    chan struct{}
	waiting sync.WaitGroup // for requests about incarnations
	common  atomic.Uint64  // lowest log version of all members
	scratch sync.Pool      // of *block.Delta, for store.Apply
	byName  atomic.Pointer[map[string]*source]
	bySrc   atomic.Pointer[map[block.Source]*source]

	byEndpoint atomic.Pointer[map[block.EndpointID][]*source]

	mu      sync.Mutex
	ctx     context.Context
	pool    *endpoint.Snapshot
	order   []*source             // all sources, by name in the log
	views   []cluster.SourceView  // from the last look
	names   []string              // passed to the log
	relist  bool                  // names may have changed
	zones   map[string]string     // of those names; passed to the log
	suffix  string                // of the names in the log
	reading map[block.Source]bool // streams as last set
	losses  prometheus.Counter
}

// OpenIndex registers the shared log and opens the event streams' manager. Streams are read after
// the first Set. Run ends with ctx.
func OpenIndex(ctx context.Context, o IndexOptions) *Index {
	x := &Index{o: o, ctx: ctx, wake: make(chan struct{}, 1), began: time.Now(), pool: &endpoint.Snapshot{}}
	x.byName.Store(&map[string]*source{})
	x.bySrc.Store(&map[block.Source]*source{})
	x.byEndpoint.Store(&map[block.EndpointID][]*source{})
	x.losses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_share_index_lost_total", Help: "Times that batches of a shared stream were lost and skipped.",
	})
	o.Registry.MustRegister(x.losses)
	for _, m := range []plan.Mode{plan.Asking, plan.Direct, plan.Shared} {
		o.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "grapevine_share_index_sources", Help: "Event streams by the source of their content: asking, direct (this replica's reader) or shared (the group).", ConstLabels: prometheus.Labels{"mode": m.String()},
		}, func() float64 { return x.count(m) }))
	}
	if o.Grouped {
		// Block keys with another secret are unusable here, so such replicas must not share the
		// index.
		name, mark := stateIndex+"-group", printOf(o.Hasher)
		if o.Secret {
			name = fmt.Sprintf("%s-%016x", stateIndex, mark)
		} else {
			x.suffix = suffix(mark)
		}
		x.log = o.Node.Log(name, indexVersion, store{x}, cluster.LogOptions{Owned: true, Needs: payloadNeeds})
	}
	e := o.Events
	e.Index, e.Hasher, e.Log, e.Registry = streamIndex{x}, o.Hasher, o.Log, o.Registry
	e.OnDelta, e.OnRestart, e.OnLink, e.Resume = x.onDelta, x.onRestart, x.onLink, x.resume
	x.events = events.Open(e)
	return x
}

// Close closes all streams and waits.
func (x *Index) Close() error { return x.events.Close() }

func (x *Index) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *Index) find(src block.Source) *source { return (*x.bySrc.Load())[src] }

// streamIndex is the index for the streams. It drops changes to shared sources, which the log
// applies instead.
type streamIndex struct{ x *Index }

// Parents implements translate.Index.
func (i streamIndex) Parents(src block.Source, parents, blocks []block.EngineHash, keys []block.Key) {
	i.x.o.Index.Parents(src, parents, blocks, keys)
}

// Lookup implements translate.Index.
func (i streamIndex) Lookup(src block.Source, h block.EngineHash) (block.Key, bool) {
	return i.x.o.Index.Lookup(src, h)
}

// Digest implements translate.Index.
func (i streamIndex) Digest(src block.Source) (count, xor uint64) { return i.x.o.Index.Digest(src) }

// Apply implements translate.Index.
func (i streamIndex) Apply(src block.Source, d *block.Delta) indexer.ApplyStats {
	s := i.x.find(src)
	if s == nil {
		return i.x.o.Index.Apply(src, d)
	}
	if s.isMode() == plan.Shared { // the mode does not change while a stream is open
		return indexer.ApplyStats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != plan.Direct {
		return indexer.ApplyStats{}
	}
	return i.x.o.Index.Apply(src, d)
}

// onDelta adds a batch read here to the log. A stream that restarts from its beginning changes
// nothing: the log tracks its content and losses.
func (x *Index) onDelta(u events.Update) {
	s := x.find(u.Source)
	if s == nil || u.Reset || x.log == nil || s.held.Load() || s.isMode() != plan.Shared {
		return
	}
	if !s.continues(&u) {
		x.another(s)
		return
	}
	payload, inc := s.encode(&u, x.common.Load())
	if u.Missed {
		payload[0] |= payloadMissed
	}
	if u.Paged && !s.paged.Swap(true) {
		s.in.note(func(r *reports) { r.paged = true })
		x.poke()
	}
	d := cluster.Delta{Source: s.name, Inc: inc, First: u.First, Last: u.Last, Payload: payload}
	s.local.Store(&localDelta{inc, u.First, u.Delta})
	v := x.log.Append(d)
	if v == cluster.Gap {
		x.lose(s, inc, u.First)
		v = x.log.Append(d) // buffered, or too large for the buffer
	}
	s.local.Store(nil)
	if v == cluster.Stale {
		at := x.log.Position(s.name)
		s.in.note(func(r *reports) { r.overtaken = at.Inc })
		x.poke()
	}
}

// another records that the stream's engine differs from the engine of the current content.
func (x *Index) another(s *source) {
	s.held.Store(true)
	s.in.note(func(r *reports) { r.restarted, r.wiped, r.another = true, true, true })
	x.log.Reading(s.name, false)
	x.poke()
}

// lose skips batches that the stream cannot provide. At the beginning this omits blocks; later it
// may keep evicted ones.
func (x *Index) lose(s *source, inc, next uint64) {
	before := x.log.Position(s.name)
	if x.log.MarkLost(s.name, inc, next) != cluster.Applied || before.Inc != inc || before.Next == 0 {
		return
	}
	x.losses.Inc()
	s.mu.Lock()
	s.head.mayBeStale = true
	s.mu.Unlock()
}

// onRestart handles an engine that was replaced or that lost its history.
func (x *Index) onRestart(src block.Source, wrapped bool) {
	s := x.find(src)
	if s == nil {
		return
	}
	s.in.note(func(r *reports) { r.another = r.another || !wrapped })
	if x.log == nil || s.isMode() != plan.Shared {
		x.poke()
		return
	}
	s.held.Store(true)
	s.in.note(func(r *reports) { r.restarted, r.wiped = true, r.wiped || !wrapped })
	x.log.Reading(s.name, false)
	x.poke()
}

// onLink handles a stream that connected, caught up or was lost. Peers rely on this replica's
// reading only after it has caught up.
func (x *Index) onLink(src block.Source, link events.Link) {
	s := x.find(src)
	if s == nil || x.log == nil {
		return
	}
	mode, inc := s.identity()
	if link == events.LinkCaught && mode == plan.Shared && !s.held.Load() && !s.reached() {
		x.another(s)
		return
	}
	reads := link >= events.LinkBlind && mode == plan.Shared && !s.held.Load()
	if reads {
		x.log.MarkLost(s.name, inc, 0) // an empty cache is known exactly
	}
	x.log.Reading(s.name, reads)
	if link == events.LinkUp {
		s.in.note(func(r *reports) { r.connected = true })
	}
	x.poke()
}

// resume returns the position from which a stream continues: after the last batch in the content.
func (x *Index) resume(src block.Source) (events.Position, bool) {
	s := x.find(src)
	if s == nil || x.log == nil || s.isMode() != plan.Shared {
		return events.Position{}, false
	}
	at := x.log.Position(s.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened, s.came = shareHead{}, shareHead{}
	if !s.head.have || at.Inc != s.inc {
		return events.Position{}, false
	}
	if s.cold.Load() {
		s.opened = s.head
		return events.Position{}, false
	}
	return events.Position{Incarnation: s.inc, Seq: s.head.last + 1, Sum: s.head.sum}, true
}
