package picker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// rateWindow is the time constant of the dispatch rate.
const rateWindow = 60 * time.Second

// Load is what is in flight at one endpoint. All figures are absolute.
type Load struct {
	Requests int64   // placed and not ended
	Waiting  int64   // of them, without a first token
	Prefill  int64   // uncached prompt tokens of the waiting ones
	Pairs    float64 // token pairs that attention has to visit for them: Σ new × (input − new/2)
	Tokens   int64   // prompt and generated tokens of all of them
	Context  int64   // of Tokens, those of requests past their first token
	Rate     float64 // dispatches per second, exponentially weighted over 60 s
	// LastFirst is when the last first token was seen, or the queue began, in
	// Unix nanoseconds; 0: never.
	LastFirst int64
}

// Add returns the sum of two loads; LastFirst is the later one.
func (l Load) Add(o Load) Load {
	l.Requests += o.Requests
	l.Waiting += o.Waiting
	l.Prefill += o.Prefill
	l.Pairs += o.Pairs
	l.Tokens += o.Tokens
	l.Context += o.Context
	l.Rate += o.Rate
	l.LastFirst = max(l.LastFirst, o.LastFirst)
	return l
}

// loadCell holds one Load in atomics.
type loadCell struct {
	requests, waiting, prefill, tokens, context atomic.Int64
	pairs                                       atomic.Int64 // whole pairs: exact under addition
	lastFirst                                   atomic.Int64
}

// bookCell is the in-flight book of one endpoint: our own part, exact, and
// what the other replicas say.
type bookCell struct {
	local  loadCell
	remote loadCell

	rateMu     sync.Mutex
	rate       atomic.Uint64 // float64 bits: value at rateAt
	rateAt     atomic.Int64
	remoteRate atomic.Uint64
}

// addTo adds the cell to l.
func (c *loadCell) addTo(l *Load) {
	l.Requests += c.requests.Load()
	l.Waiting += c.waiting.Load()
	l.Prefill += c.prefill.Load()
	l.Pairs += float64(c.pairs.Load())
	l.Tokens += c.tokens.Load()
	l.Context += c.context.Load()
	l.LastFirst = max(l.LastFirst, c.lastFirst.Load())
}

func (c *loadCell) store(l Load) {
	c.requests.Store(l.Requests)
	c.waiting.Store(l.Waiting)
	c.prefill.Store(l.Prefill)
	c.pairs.Store(int64(l.Pairs))
	c.tokens.Store(l.Tokens)
	c.context.Store(l.Context)
	c.lastFirst.Store(l.LastFirst)
}

// Book is the in-flight book of a pool. It is safe for concurrent use.
type Book struct {
	hook atomic.Pointer[func(*Endpoint)]
}

// OnChange sets what is called after every change of an endpoint's local
// part, on the goroutine that made it. f must be quick and must not use the
// book. Nil unsets it.
func (b *Book) OnChange(f func(*Endpoint)) {
	if f == nil {
		b.hook.Store(nil)
		return
	}
	b.hook.Store(&f)
}

func (b *Book) changed(ep *Endpoint) {
	if f := b.hook.Load(); f != nil {
		(*f)(ep)
	}
}

// Load returns what is in flight at ep over all replicas.
func (b *Book) Load(ep *Endpoint, now time.Time) Load {
	var l Load
	ep.book.sum(&l, now.UnixNano())
	return l
}

// sum adds both parts to l.
func (c *bookCell) sum(l *Load, now int64) {
	c.local.addTo(l)
	c.remote.addTo(l)
	l.Rate += c.rateNow(now) + math.Float64frombits(c.remoteRate.Load())
}

// Local returns what this replica has in flight at ep.
func (b *Book) Local(ep *Endpoint, now time.Time) Load {
	l := Load{Rate: ep.book.rateNow(now.UnixNano())}
	ep.book.local.addTo(&l)
	return l
}

// Remote returns what the other replicas have in flight at ep, as they last
// said.
func (b *Book) Remote(ep *Endpoint) Load {
	l := Load{Rate: math.Float64frombits(ep.book.remoteRate.Load())}
	ep.book.remote.addTo(&l)
	return l
}

// SetRemote replaces what the other replicas, together, have in flight at ep.
// LastFirst is by this process's clock.
func (b *Book) SetRemote(ep *Endpoint, l Load) {
	ep.book.remote.store(l)
	ep.book.remoteRate.Store(math.Float64bits(l.Rate))
}

func (c *bookCell) rateNow(now int64) float64 {
	rate := math.Float64frombits(c.rate.Load())
	if rate == 0 {
		return 0
	}
	return rate * decay(now-c.rateAt.Load())
}

// dispatched counts one dispatch in the rate.
func (c *bookCell) dispatched(now time.Time) {
	c.rateMu.Lock()
	defer c.rateMu.Unlock()
	rate := c.rateNow(now.UnixNano()) + 1/rateWindow.Seconds()
	c.rate.Store(math.Float64bits(rate))
	c.rateAt.Store(now.UnixNano())
}

func decay(ns int64) float64 {
	if ns <= 0 {
		return 1
	}
	return math.Exp(-float64(ns) / float64(rateWindow))
}
