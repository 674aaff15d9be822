package endpoint

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Time constants of a Load's rates: of Busy, and of Rate, which is a fifth of it
// so that one exponential serves both.
const (
	busyWindow = 5 * time.Minute
	rateWindow = busyWindow / 5
)

// Load is what is in flight at one endpoint. All figures are absolute.
type Load struct {
	Requests int64   // placed and not ended
	Waiting  int64   // of them, without a first token
	Prefill  int64   // uncached prompt tokens of the waiting ones
	Pairs    float64 // token pairs that attention has to visit for them: Σ new × (input − new/2)
	Tokens   int64   // prompt and generated tokens of all of them
	Context  int64   // of Tokens, those of requests past their first token
	Moving   int64   // tokens whose KV blocks are to go from there to the endpoints that answer
	Rate     float64 // dispatches per second, exponentially weighted over 60 s
	Busy     float64 // seconds of prefill dispatched per second, exponentially weighted over 5 min
	// RatesAt is the moment of Rate and Busy, from which they fade, in Unix
	// nanoseconds; 0: now.
	RatesAt int64
	// LastFirst is when the last first token was seen, or the queue began, in
	// Unix nanoseconds; 0: never.
	LastFirst int64
}

// Add returns the sum of two loads; LastFirst is the later one, and so is the
// moment of the rates.
func (l Load) Add(o Load) Load {
	if l.RatesAt != 0 && o.RatesAt != 0 {
		at := max(l.RatesAt, o.RatesAt)
		l.fadeTo(at)
		o.fadeTo(at)
	}
	l.RatesAt = max(l.RatesAt, o.RatesAt)
	l.Requests += o.Requests
	l.Waiting += o.Waiting
	l.Prefill += o.Prefill
	l.Pairs += o.Pairs
	l.Tokens += o.Tokens
	l.Context += o.Context
	l.Moving += o.Moving
	l.Rate += o.Rate
	l.Busy += o.Busy
	l.LastFirst = max(l.LastFirst, o.LastFirst)
	return l
}

// fadeTo moves the rates on to a later moment.
func (l *Load) fadeTo(at int64) {
	rate, busy := fade(at - l.RatesAt)
	l.Rate, l.Busy, l.RatesAt = l.Rate*rate, l.Busy*busy, at
}

// PerRank returns what is in flight at one of so many data-parallel ranks, of an engine that
// sends each request to the rank with the fewest: at that rank. Ranks differ by a request,
// so that it has the whole part of an equal share, and of those that wait their mean work.
// Moving stays whole, since ranks may share what sends their blocks, and so does LastFirst.
func (l Load) PerRank(ranks int) Load {
	if ranks <= 1 {
		return l
	}
	n := int64(ranks)
	queued := float64(l.Waiting/n) / float64(max(l.Waiting, 1))
	l.Prefill, l.Pairs = int64(math.Round(float64(l.Prefill)*queued)), l.Pairs*queued
	l.Requests, l.Waiting, l.Tokens, l.Context = l.Requests/n, l.Waiting/n, l.Tokens/n, l.Context/n
	l.Rate, l.Busy = l.Rate/float64(n), l.Busy/float64(n)
	return l
}

// loadCell holds one Load in atomics.
type loadCell struct {
	requests, waiting, prefill, tokens, context, moving atomic.Int64
	pairs                                               atomic.Int64 // whole pairs: exact under addition
	lastFirst                                           atomic.Int64
}

// bookCell is the in-flight book of one endpoint: our own part, exact, and
// what the other replicas say.
type bookCell struct {
	local  loadCell
	remote loadCell

	rateMu      sync.Mutex // of changes to localRates
	localRates  rateCell
	remoteRates rateCell
}

// rateCell holds the rates of one Load in atomics, as float64 bits.
type rateCell struct {
	rate, busy atomic.Uint64
	at         atomic.Int64 // Unix nanoseconds; 0: they do not fade
}

// addTo adds the rates as of now to l.
func (c *rateCell) addTo(l *Load, now int64) {
	rate, busy := math.Float64frombits(c.rate.Load()), math.Float64frombits(c.busy.Load())
	if at := c.at.Load(); at != 0 {
		r, b := fade(now - at)
		rate, busy = rate*r, busy*b
	}
	l.Rate += rate
	l.Busy += busy
}

func (c *rateCell) store(l *Load) {
	c.rate.Store(math.Float64bits(l.Rate))
	c.busy.Store(math.Float64bits(l.Busy))
	c.at.Store(l.RatesAt)
}

// addTo adds the cell to l.
func (c *loadCell) addTo(l *Load) {
	l.Requests += c.requests.Load()
	l.Waiting += c.waiting.Load()
	l.Prefill += c.prefill.Load()
	l.Pairs += float64(c.pairs.Load())
	l.Tokens += c.tokens.Load()
	l.Context += c.context.Load()
	l.Moving += c.moving.Load()
	l.LastFirst = max(l.LastFirst, c.lastFirst.Load())
}

func (c *loadCell) store(l Load) {
	c.requests.Store(l.Requests)
	c.waiting.Store(l.Waiting)
	c.prefill.Store(l.Prefill)
	c.pairs.Store(int64(l.Pairs))
	c.tokens.Store(l.Tokens)
	c.context.Store(l.Context)
	c.moving.Store(l.Moving)
	c.lastFirst.Store(l.LastFirst)
}

// LoadTracker is the in-flight book of a pool. It is safe for concurrent use.
type LoadTracker struct {
	hook  atomic.Pointer[func(*Endpoint)]
	watch atomic.Pointer[func(*Endpoint)]
}

// OnChange sets what is called after every change of an endpoint's local
// part, on the goroutine that made it. f must be quick and must not use the
// book. Nil unsets it.
func (b *LoadTracker) OnChange(f func(*Endpoint)) {
	if f == nil {
		b.hook.Store(nil)
		return
	}
	b.hook.Store(&f)
}

// Watch sets a second one to be called, under the same terms.
func (b *LoadTracker) Watch(f func(*Endpoint)) { b.watch.Store(&f) }

func (b *LoadTracker) changed(ep *Endpoint) {
	if f := b.hook.Load(); f != nil {
		(*f)(ep)
	}
	if f := b.watch.Load(); f != nil {
		(*f)(ep)
	}
}

// Load returns what is in flight at ep over all replicas.
func (b *LoadTracker) Load(ep *Endpoint, now time.Time) Load {
	var l Load
	ep.book.sum(&l, now.UnixNano())
	return l
}

// RankLoad returns what is in flight at the rank of ep that has the fewest requests, which is
// what its constants are of.
func (b *LoadTracker) RankLoad(ep *Endpoint, now time.Time) Load {
	return b.Load(ep, now).PerRank(int(ep.gauges.ranks.Load()))
}

// AddLoad adds what is in flight at the endpoint over all replicas to l. now is
// in Unix nanoseconds.
func (c *life) AddLoad(l *Load, now int64) { c.book.sum(l, now) }

// sum adds both parts to l.
func (c *bookCell) sum(l *Load, now int64) {
	c.local.addTo(l)
	c.remote.addTo(l)
	c.localRates.addTo(l, now)
	c.remoteRates.addTo(l, now)
}

// Local returns what this replica has in flight at ep. Its rates are dated, so
// that they fade where they are told.
func (b *LoadTracker) Local(ep *Endpoint, now time.Time) Load {
	l := Load{RatesAt: now.UnixNano()}
	ep.book.localRates.addTo(&l, l.RatesAt)
	ep.book.local.addTo(&l)
	return l
}

// Remote returns what the other replicas have in flight at ep, as they last
// said.
func (b *LoadTracker) Remote(ep *Endpoint) Load {
	l := Load{RatesAt: ep.book.remoteRates.at.Load()}
	ep.book.remoteRates.addTo(&l, l.RatesAt)
	ep.book.remote.addTo(&l)
	return l
}

// SetRemote replaces what the other replicas, together, have in flight at ep.
// LastFirst and RatesAt are by this process's clock.
func (b *LoadTracker) SetRemote(ep *Endpoint, l Load) {
	ep.book.remote.store(l)
	ep.book.remoteRates.store(&l)
}

// dispatched counts one dispatch in the rates, with so many seconds of prefill.
func (c *bookCell) dispatched(now time.Time, prefill float64) {
	c.rateMu.Lock()
	defer c.rateMu.Unlock()
	l := Load{RatesAt: now.UnixNano()}
	c.localRates.addTo(&l, l.RatesAt)
	l.Rate += 1 / rateWindow.Seconds()
	l.Busy += prefill / busyWindow.Seconds()
	c.localRates.store(&l)
}

// fade returns what is left of a rate and of a busy share after so many
// nanoseconds.
func fade(ns int64) (rate, busy float64) {
	if ns <= 0 {
		return 1, 1
	}
	busy = math.Exp(-float64(ns) / float64(busyWindow))
	square := busy * busy
	return square * square * busy, busy
}
