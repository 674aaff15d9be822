package facts

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Changes of load are batched for loadDelay, and sent at most every loadPace.
const (
	loadDelay = 5 * time.Millisecond
	loadPace  = 20 * time.Millisecond
)

// expireEvery is how often the time limits of departed replicas' requests are checked.
const expireEvery = 5 * time.Second

// LoadOptions configure a Load. All fields but Watch and Remains are required.
type LoadOptions struct {
	Group Group
	Pool  *endpoint.Pool
	Now   func() time.Time
	Log   *slog.Logger
	Watch *watchdog.Loop // of Run; nil: not watched
	// Remains is called for each endpoint at which a departed replica had requests. New gauges of the
	// endpoint show when these end.
	Remains func(*endpoint.Endpoint)
}

// Load shares in-flight load: absolute values per endpoint, written by each replica for itself. It
// passes the sum over the other replicas to the local load tracker. Safe for concurrent use.
type Load struct {
	o   LoadOptions
	set SetFunc

	mu    sync.Mutex
	dirty map[string]bool // addresses
	wake  chan struct{}

	remote sync.Mutex // taken before the load tracker's lock
	loads  Origins[endpoint.Load]
	sums   map[string]total // by address
	// remains are the requests of departed replicas, by address. process has the last process number
	// of each replica that reported.
	remains  map[string][]remains
	process  map[string]uint64
	departed map[string]bool // replicas that departed and have not reported since
	self     uint64          // number of this process
}

// total is the other replicas' summed load of an endpoint.
type total struct {
	endpoint.Load
	changes int // since the last full summation
}

// wholeEvery is the number of changes after which a total is summed from scratch, so that rounding
// errors do not accumulate.
const wholeEvery = 64

// NewLoad returns a Load. It sends nothing before Flush or Run.
func NewLoad(o LoadOptions) *Load {
	l := &Load{o: o, dirty: map[string]bool{}, sums: map[string]total{}, wake: make(chan struct{}, 1),
		remains: map[string][]remains{}, process: map[string]uint64{}, departed: map[string]bool{}, self: 1 + rand.Uint64N(1<<20)}
	l.set = o.Group.Gauge(stateLoad, StateVersion, l)
	return l
}

// Changed is the hook for endpoint.LoadTracker.OnChange. It only marks the endpoint.
func (l *Load) Changed(ep *endpoint.Endpoint) { l.note(ep.Address) }

func (l *Load) note(addresses ...string) {
	l.mu.Lock()
	first := len(l.dirty) == 0
	for _, a := range addresses {
		l.dirty[a] = true
	}
	l.mu.Unlock()
	if first {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Run sends changes, a few milliseconds after the first one, until ctx ends.
func (l *Load) Run(ctx context.Context) {
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	var sent time.Time
	for {
		l.o.Watch.Waiting()
		select {
		case <-ctx.Done():
			return
		case <-expire.C:
			l.o.Watch.Working()
			l.expire(l.o.Now())
			continue
		case <-l.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(loadDelay, loadPace-time.Since(sent))):
		}
		l.o.Watch.Working()
		sent = time.Now()
		l.Flush()
	}
}

// Flush sends changes. The value for an address is the load of the endpoint that has it now.
// Requests to an earlier endpoint with that address may still end.
func (l *Load) Flush() {
	l.mu.Lock()
	dirty := l.dirty
	l.dirty = make(map[string]bool, len(dirty))
	l.mu.Unlock()
	now, pool := l.o.Now(), l.o.Pool.Snapshot()
	for address := range dirty {
		var value []byte
		if ep := pool.Known(address); ep != nil {
			value = appendLoad(nil, l.o.Pool.LoadTracker().Local(ep, now), now)
			value = binary.AppendUvarint(value, l.self)
		}
		if err := l.set(address, value); err != nil {
			l.o.Log.Warn("in-flight load not shared", "endpoint", address, "error", err)
		}
	}
}

func appendLoad(b []byte, l endpoint.Load, now time.Time) []byte {
	for _, v := range [...]int64{l.Requests, l.Waiting, l.Prefill, l.Tokens, l.Context} {
		b = binary.AppendVarint(b, v)
	}
	b = appendFloat(appendFloat(b, l.Pairs), l.Rate)
	age := int64(0)
	if l.LastFirst != 0 {
		age = max(now.UnixNano()-l.LastFirst, 1)
	}
	b = appendFloat(binary.AppendVarint(b, age), l.Busy)
	return binary.AppendVarint(b, l.Moving)
}

// readLoad returns a load, and the number of the process that wrote it: 0 for older peers.
func readLoad(b []byte, now time.Time) (l endpoint.Load, process uint64, err error) {
	c := varint.Reader{B: b}
	l = endpoint.Load{Requests: c.Natural(), Waiting: c.Natural(), Prefill: c.Natural(), Tokens: c.Natural(), Context: c.Natural()}
	l.Pairs, l.Rate, l.RatesAt = c.Float(), c.Float(), now.UnixNano()
	if age := readAge(&c); age > 0 {
		l.LastFirst = now.Add(-age).UnixNano()
	}
	if len(c.B) > 0 { // older peers omit it
		l.Busy = c.Float()
	}
	if len(c.B) > 0 { // older peers omit it too
		l.Moving = c.Natural()
	}
	if len(c.B) > 0 {
		process = c.Uint()
	}
	if c.Err != nil || l.Pairs < 0 || l.Rate < 0 || l.Busy < 0 {
		return endpoint.Load{}, 0, errWire
	}
	return l, process, nil
}

// Merge implements cluster.GaugeSink.
func (l *Load) Merge(origin string, _ uint64, address string, value []byte) error {
	var load endpoint.Load
	var process uint64
	if value != nil {
		var err error
		if load, process, err = readLoad(value, l.o.Now()); err != nil {
			return err
		}
	}
	l.remote.Lock()
	defer l.remote.Unlock()
	if known, ok := l.process[origin]; value != nil && (!ok || known != process || l.departed[origin]) {
		l.returned(origin, process)
	}
	was := l.loads.Get(address, origin)
	if load.Requests == 0 && load.Rate == 0 {
		load = endpoint.Load{}
		l.loads.Delete(address, origin)
	} else {
		l.loads.Set(address, origin, load)
	}
	t := l.sums[address]
	t.changes++
	latest := was.LastFirst == t.LastFirst && load.LastFirst < was.LastFirst // it was the latest, and now another replica's is
	if latest || t.changes%wholeEvery == 1 || len(l.loads.Of(address)) == 0 {
		l.apply(address)
		return nil
	}
	t.Load = t.Add(negative(was)).Add(load)
	t.Rate, t.Busy = max(t.Rate, 0), max(t.Busy, 0)
	if all := t.Rate + t.Busy + t.Pairs; math.IsNaN(all) || all > math.MaxFloat32 { // impossible; a later subtraction would leave a wrong rest
		l.apply(address)
		return nil
	}
	l.setSum(address, t)
	return nil
}

// negative returns the value that subtracts l from a sum. The latest first token is kept.
func negative(l endpoint.Load) endpoint.Load {
	return endpoint.Load{
		Requests: -l.Requests, Waiting: -l.Waiting, Prefill: -l.Prefill, Pairs: -l.Pairs, Tokens: -l.Tokens,
		Context: -l.Context, Moving: -l.Moving, Rate: -l.Rate, Busy: -l.Busy, RatesAt: l.RatesAt,
	}
}

// Drop implements cluster.GaugeSink. The requests of a departed replica count until the engine's
// gauges show that they have ended. A replica that left after its last request has none.
func (l *Load) Drop(origin string) {
	remain := l.drop(origin)
	if l.o.Remains == nil {
		return
	}
	pool := l.o.Pool.Snapshot()
	for _, address := range remain {
		if ep := pool.Known(address); ep != nil {
			l.o.Remains(ep)
		}
	}
}

// drop returns the addresses at which origin had requests.
func (l *Load) drop(origin string) (remain []string) {
	l.remote.Lock()
	defer l.remote.Unlock()
	l.departed[origin] = true
	now := l.o.Now()
	for _, address := range l.loads.KeysOf(origin) {
		if l.depart(origin, address, now) {
			remain = append(remain, address)
		}
		l.apply(address)
	}
	return remain
}

// apply sums the other replicas' loads. The caller holds l.remote.
func (l *Load) apply(address string) {
	var sum endpoint.Load
	for load := range l.loads.Values(address) {
		sum = sum.Add(load)
	}
	for i := range l.remains[address] {
		sum = sum.Add(l.remains[address][i].Load)
	}
	l.setSum(address, total{Load: sum, changes: 1})
}

// setSum passes a sum to the load tracker. The caller holds l.remote.
func (l *Load) setSum(address string, t total) {
	if l.sums[address] = t; len(l.loads.Of(address)) == 0 && len(l.remains[address]) == 0 {
		delete(l.sums, address)
	}
	if ep := l.o.Pool.Snapshot().Known(address); ep != nil {
		t.FadeTo(l.o.Now()) // replicas report each change at once, so the sum is the present load
		l.o.Pool.LoadTracker().SetRemote(ep, t.Load)
	}
}

// Joined applies known loads to endpoints that joined the pool, and sends this replica's load
// there.
func (l *Load) Joined(eps []*endpoint.Endpoint) {
	l.remote.Lock()
	defer l.remote.Unlock()
	for _, ep := range eps {
		if len(l.loads.Of(ep.Address)) > 0 || len(l.remains[ep.Address]) > 0 {
			l.apply(ep.Address)
		}
	}
}

// Withdraw withdraws this replica's values for endpoints that left the pool.
func (l *Load) Withdraw(eps []*endpoint.Endpoint) {
	addresses := make([]string, len(eps))
	for i, ep := range eps {
		addresses[i] = ep.Address
	}
	l.note(addresses...)
}
