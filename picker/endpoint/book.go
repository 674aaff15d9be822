package endpoint

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Time constants of a Load's rates. The constant of Rate is a fifth of Busy's, so that one
// exponential serves both.
const (
	busyWindow = 5 * time.Minute
	rateWindow = busyWindow / 5
)

// Load is the in-flight load of one endpoint. All values are absolute.
type Load struct {
	Requests int64   // dispatched and not ended
	Waiting  int64   // requests without a first token
	Prefill  int64   // uncached prompt tokens of waiting requests
	Pairs    float64 // token pairs that attention visits for waiting requests: Σ new × (input − new/2)
	Tokens   int64   // prompt and generated tokens of all requests
	Context  int64   // tokens of requests past their first token
	Moving   int64   // tokens whose KV blocks are to be sent to serving endpoints
	Rate     float64 // dispatches per second, exponentially weighted over 60 s
	Busy     float64 // seconds of prefill dispatched per second, exponentially weighted over 5 min
	// RatesAt is the time of Rate and Busy, from which they decay, in Unix nanoseconds; 0: now.
	RatesAt int64
	// LastFirst is the time of the last first token, or of the queue's beginning, in Unix
	// nanoseconds; 0: never.
	LastFirst int64
}

// Add returns the sum of two loads. LastFirst and RatesAt are the later ones.
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

// FadeTo decays the rates to a later time, which becomes the time of the report.
func (l *Load) FadeTo(at time.Time) {
	if l.RatesAt != 0 {
		l.fadeTo(at.UnixNano())
	}
}

// fadeTo is FadeTo in Unix nanoseconds.
func (l *Load) fadeTo(at int64) {
	rate, busy := fade(at - l.RatesAt)
	l.Rate, l.Busy, l.RatesAt = l.Rate*rate, l.Busy*busy, at
}

// PerRank returns the load of the rank with the fewest requests, for an engine with that many
// data-parallel ranks that sends each request there. Rank loads differ by at most one request, so
// this rank has the integer part of an equal share, and the mean work of the waiting requests.
// Moving and LastFirst are not divided, since ranks may share the sender of their blocks.
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

// bookCell is the in-flight load of one endpoint: the exact local part and the other replicas'
// reports.
type bookCell struct {
	local  loadCell
	remote loadCell
	shared atomic.Bool // other replicas reported load

	rateMu      sync.Mutex // serializes changes of localRates
	localRates  rateCell
	remoteRates rateCell
}

// rateCell holds the rates of one Load in atomics, as float64 bits.
type rateCell struct {
	rate, busy atomic.Uint64
	at         atomic.Int64 // Unix nanoseconds; 0: no decay
}

// addTo adds the rates, decayed to now, to l.
func (c *rateCell) addTo(l *Load, now int64) {
	rate, busy := math.Float64frombits(c.rate.Load()), math.Float64frombits(c.busy.Load())
	if at := c.at.Load(); at != 0 && (rate != 0 || busy != 0) {
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

// LoadTracker tracks the in-flight load of a pool. It is safe for concurrent use.
type LoadTracker struct {
	now   func() time.Time // nil: reports have no delay
	hook  atomic.Pointer[func(*Endpoint)]
	watch atomic.Pointer[[]func(*Endpoint)]
}

// OnChange sets a callback for every change of an endpoint's local part. It runs on the goroutine
// of the change, must return quickly and must not use the tracker. nil removes it.
func (b *LoadTracker) OnChange(f func(*Endpoint)) {
	if f == nil {
		b.hook.Store(nil)
		return
	}
	b.hook.Store(&f)
}

// Watch adds a further callback with the same contract. Callbacks stay.
func (b *LoadTracker) Watch(f func(*Endpoint)) {
	for {
		was := b.watch.Load()
		var all []func(*Endpoint)
		if was != nil {
			all = slices.Clone(*was)
		}
		all = append(all, f)
		if b.watch.CompareAndSwap(was, &all) {
			return
		}
	}
}

func (b *LoadTracker) changed(ep *Endpoint) {
	ep.mark.changed()
	if f := b.hook.Load(); f != nil {
		(*f)(ep)
	}
	if all := b.watch.Load(); all != nil {
		for _, f := range *all {
			f(ep)
		}
	}
}

// Load returns the in-flight load of ep over all replicas.
func (b *LoadTracker) Load(ep *Endpoint, now time.Time) Load {
	var l Load
	ep.book.sum(&l, now.UnixNano())
	return l
}

// RankLoad returns the load of the rank of ep with the fewest requests. The learned constants apply
// to one rank.
func (b *LoadTracker) RankLoad(ep *Endpoint, now time.Time) Load {
	return b.Load(ep, now).PerRank(ep.gauges.get().Ranks)
}

// AddLoad adds the endpoint's in-flight load over all replicas to l. now is in Unix nanoseconds.
func (c *life) AddLoad(l *Load, now int64) { c.book.sum(l, now) }

// sum adds the local and remote parts to l.
func (c *bookCell) sum(l *Load, now int64) {
	c.local.addTo(l)
	c.localRates.addTo(l, now)
	if c.shared.Load() {
		c.remote.addTo(l)
		c.remoteRates.addTo(l, now)
	}
}

// Local returns this replica's in-flight load of ep. Its rates carry a time, so that receivers can
// decay them.
func (b *LoadTracker) Local(ep *Endpoint, now time.Time) Load {
	l := Load{RatesAt: now.UnixNano()}
	ep.book.localRates.addTo(&l, l.RatesAt)
	ep.book.local.addTo(&l)
	return l
}

// Remote returns the other replicas' in-flight load of ep, as last reported.
func (b *LoadTracker) Remote(ep *Endpoint) Load {
	l := Load{RatesAt: ep.book.remoteRates.at.Load()}
	ep.book.remoteRates.addTo(&l, l.RatesAt)
	ep.book.remote.addTo(&l)
	return l
}

// SetRemote replaces the total in-flight load of the other replicas at ep. LastFirst and RatesAt
// use this process's clock. RatesAt is the time of the report: the load is extrapolated from then to
// now.
func (b *LoadTracker) SetRemote(ep *Endpoint, l Load) {
	if b.now != nil && l.RatesAt != 0 {
		l.extrapolate(ep, b.now().UnixNano()-l.RatesAt)
	}
	ep.book.remote.store(l)
	ep.book.shared.Store(true)
	ep.book.remoteRates.store(&l)
	ep.mark.changed()
}

// extrapolate removes the queued work that the engine of ep has done since a report that took delay
// nanoseconds. Replicas report each change at once, so a report describes the load of that long ago
// until the next one arrives.
//
// The engine works on the whole queue, of which this replica's requests are a part. Without this,
// queues that have ended keep engines idle, and replicas with late reports place requests worse than
// replicas without any.
func (l *Load) extrapolate(ep *Endpoint, delay int64) {
	if delay < int64(leastDelay) || delay > int64(mostDelay) || l.Waiting <= 0 {
		return
	}
	own, cost := &ep.book.local, ep.Cost()
	seconds := cost.PerToken*float64(l.Prefill+own.prefill.Load()) + cost.PerPair*(l.Pairs+float64(own.pairs.Load()))
	left := max(1-float64(delay)/1e9/seconds, 0)
	if !(seconds > 0) {
		left = 0
	}
	waiting := l.Waiting
	l.Waiting = int64(math.Ceil(left * float64(l.Waiting)))
	l.Prefill, l.Pairs = int64(left*float64(l.Prefill)), left*l.Pairs
	if waiting > l.Waiting {
		mean := max(l.Tokens-l.Context, 0) / waiting
		l.Context += mean * (waiting - l.Waiting)
	}
	if l.LastFirst != 0 {
		l.LastFirst += delay
	}
}

// Delays outside of this range are ignored: below it, an engine does a few steps, and above it, the
// clocks differ.
const (
	leastDelay = 100 * time.Millisecond
	mostDelay  = 30 * time.Second
)

// dispatched adds one dispatch with the given seconds of prefill to the rates.
func (c *bookCell) dispatched(now time.Time, prefill float64) {
	c.rateMu.Lock()
	defer c.rateMu.Unlock()
	l := Load{RatesAt: now.UnixNano()}
	c.localRates.addTo(&l, l.RatesAt)
	l.Rate += 1 / rateWindow.Seconds()
	l.Busy += prefill / busyWindow.Seconds()
	c.localRates.store(&l)
}

// fade returns the decay factors of Rate and Busy after a number of nanoseconds.
func fade(ns int64) (rate, busy float64) {
	if ns <= 0 {
		return 1, 1
	}
	busy = math.Exp(-float64(ns) / float64(busyWindow))
	square := busy * busy
	return square * square * busy, busy
}
