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
	indexVersion = 2       // of the log, since which payloads may be short
	// suffixMark begins what is behind the name of a source whose blocks have keys of a
	// seed that the group made.
	suffixMark = "~"
)

// printOf is what may be told of a hasher's seed.
func printOf(h block.Hasher) uint64 { return uint64(h.Root(block.Scope{})) }

// suffix is what is behind the names of such sources, for the seed of a mark.
func suffix(mark uint64) string {
	return suffixMark + base64.RawURLEncoding.EncodeToString(binary.LittleEndian.AppendUint64(nil, mark))
}

// Tuning suits sources of 100,000 blocks and more: a snapshot of one takes its time,
// so few are asked for at once, and not again before it can have been made.
func Tuning() cluster.Tuning { return cluster.Tuning{Loads: 4, AskTimeout: time.Second} }

// IndexOptions build an Index. Node and Grouped apart, all fields are required.
type IndexOptions struct {
	Node    *cluster.Node // not open yet
	Grouped bool          // false: nothing is shared, and every stream is read here
	// Secret says that the seed of block keys is of a file, and is never replaced. Else the
	// group makes one, and Seeded reports whether this replica has it; see Seeds.
	Secret   bool
	Seeded   func() bool
	Hasher   block.Hasher
	Index    *indexer.Index
	Pool     *endpoint.Pool
	Source   func(*endpoint.Endpoint) events.EndpointSource // where an endpoint's streams are, and how they are read
	Page     func(context.Context, *endpoint.Endpoint) (scrape.Page, error)
	Conflict func(*endpoint.Endpoint) string // names a member that reads an endpoint in another way; "" for none
	Ready    func() bool                     // models have been read
	// Reborn is told, on a goroutine of its own, that a stream shows another engine than
	// before where the page does not say when it started; nil: nobody wants to know.
	EngineRestarted func(*endpoint.Endpoint)
	Log             *slog.Logger
	Watch           *watchdog.Loop // of Run; nil: not watched
	Registry        *prometheus.Registry
	Events          events.Options // periods and limits of reading; the rest of it is set by OpenIndex
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
	scratch sync.Pool      // of *block.Delta, for store.Apply
	byName  atomic.Pointer[map[string]*source]
	bySrc   atomic.Pointer[map[block.Source]*source]

	byEndpoint atomic.Pointer[map[block.EndpointID][]*source]

	mu      sync.Mutex
	ctx     context.Context
	pool    *endpoint.Snapshot
	order   []*source             // all, by name in the log
	views   []cluster.SourceView  // as of the last look
	names   []string              // given to the log
	relist  bool                  // they may be others
	zones   map[string]string     // of those names; given to the log
	suffix  string                // of the names in the log
	reading map[block.Source]bool // as the streams were set last
	losses  prometheus.Counter
}

// OpenIndex registers the shared log and opens the event streams' manager. Streams
// are read once Set has been called; Run ends with ctx.
func OpenIndex(ctx context.Context, o IndexOptions) *Index {
	x := &Index{o: o, ctx: ctx, wake: make(chan struct{}, 1), began: time.Now(), pool: &endpoint.Snapshot{}}
	x.byName.Store(&map[string]*source{})
	x.bySrc.Store(&map[block.Source]*source{})
	x.byEndpoint.Store(&map[block.EndpointID][]*source{})
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

// Close ends all streams and waits for them.
func (x *Index) Close() error { return x.events.Close() }

func (x *Index) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *Index) find(src block.Source) *source { return (*x.bySrc.Load())[src] }

// streamIndex is the index as the streams see it: what belongs to the log is
// not applied by them.
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
		v = x.log.Append(d) // kept aside, or too large for that
	}
	s.local.Store(nil)
	if v == cluster.Stale {
		at := x.log.Position(s.name)
		s.in.note(func(r *reports) { r.overtaken = at.Inc })
		x.poke()
	}
}

// another says that the engine is not the one that the content is of.
func (x *Index) another(s *source) {
	s.held.Store(true)
	s.in.note(func(r *reports) { r.restarted, r.wiped, r.another = true, true, true })
	x.log.Reading(s.name, false)
	x.poke()
}

// lose goes on behind batches that the stream does not have. At the beginning
// that leaves blocks out; later it may leave blocks in that are gone.
func (x *Index) lose(s *source, inc, next uint64) {
	before := x.log.Position(s.name)
	if x.log.MarkLost(s.name, inc, next) != cluster.Applied || before.Inc != inc || before.Next == 0 {
		return
	}
	x.losses.Inc()
	s.mu.Lock()
	s.head.doubt = true
	s.mu.Unlock()
}

// onRestart is told that an engine is another one, or has lost its history.
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

// onLink is told when a stream is connected, has caught up, or is lost. Others rely
// on this replica's reading only once it has caught up.
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

// resume tells a stream from where to go on: from the last batch in the content.
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
