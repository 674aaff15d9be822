package cycle

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// View is the state of one candidate at the time of the decision.
type View struct {
	*endpoint.Endpoint
	Load endpoint.Load  // in flight, over all replicas
	Cost *endpoint.Cost // learned constants, read-only

	endpoint.Reading // the engine's own gauges

	otherFree bool // some candidate of its role has a free slot

	rank *View // of one rank of the engine; nil: a single rank
}

// Rank returns the view of the data-parallel rank to which the engine would send the request. Its
// load determines the wait. It returns v itself for an engine with a single rank. The result is
// valid until the cycle ends.
func (v *View) Rank() *View {
	if v.rank != nil {
		return v.rank
	}
	return v
}

// PerRank computes the view that Rank returns.
func (v *View) PerRank() View {
	r := *v
	r.Load, r.Reading, r.rank = v.Load.PerRank(v.Ranks), v.Reading.PerRank(), nil
	return r
}

// Prediction is the cost model's estimate for a request at one candidate, in seconds.
type Prediction struct {
	Wait   float64 // until the queue ahead is done
	Own    float64 // own prefill
	Base   float64 // fixed part
	Fetch  float64 // fetching blocks from another holder, instead of their prefill
	Load   float64 // loading other resources that the request needs, such as its adapter
	Others float64 // cost to other requests, weighted
	Zone   float64 // price of leaving the replica's zone

	Fetched int32 // tokens of those blocks
	From    int32 // sender's position among all candidates; -1: a store
}

// TTFT returns the expected time to first token.
func (p Prediction) TTFT() float64 { return p.Wait + p.Own + p.Base + p.Fetch + p.Load }

// Cycle is the working state of one decision: the candidates and their data, by index. Through Len,
// At and Run, plugins see the candidates that earlier filters kept. A Cycle is used by one
// goroutine and reused by later requests: plugins must not keep it, nor anything that it returns.
type Cycle struct {
	Now     time.Time
	Request *request.Request
	Pool    *endpoint.Snapshot
	Health  *health.Snapshot // nil without a monitor
	Session sessions.Key     // 0 when the request has none
	// Peer is the endpoint that a profile handler already chose for another part of the same
	// request; nil for the first.
	Peer *endpoint.Endpoint

	endpoints []*endpoint.Endpoint
	views     []*storedView
	places    []int32 // positions in the pool, ascending; before observe, of all that were gathered
	fleet     fleet
	remote    []*storedView // added candidates, for reuse
	remotes   int           // number of them in use
	held      []PrefixMatch
	predicted []Prediction
	predictOf []uint32 // decision of each prediction
	decision  uint32   // number of this decision
	hasPred   bool
	top       int // see Top
	state     any // see State
	matched   bool
	tiers     TierWeights
	saves     TierWeights     // tiers adjusted by learned savings
	context   context.Context // of the request
	trace     *tracing.Span   // of the current step; nil unless the request is sampled
	asks      Match
	sessions  *sessions.Table

	answers    *fit.Answers
	needTimes  *endpoint.NeedTimes
	needs      endpoint.Needs // that the request may have
	seen       flags          // of all candidates
	moves      *endpoint.Transfers
	splits     *endpoint.Splits
	trial      bool // pairs that are off may be used
	byPriority bool
	fetched    *endpoint.Transfers

	live     []int32 // candidates visible through Len and At
	rankings []*Ranking
	ranked   int
	plan     Plan
	random   uint64
	scratch  []float64
	allowed  []bool // by position in the pool; empty: all are
	unserved bool   // every allowed endpoint is known to reject the model
	keep     []bool
	reserve  []*endpoint.Endpoint // excluded as suspect, returning or full
	avoided  []Avoided            // excluded endpoints and reasons

	remoteState  remoteScratch
	queued       float64 // seconds
	pinned       bool    // bound to the engine that stores the conversation
	conversation ConversationUse
	warmUps      bool
	failures     int // see CountFailure
	memory       *sync.Pool
}

// Options are the inputs of a cycle. Match and Sessions may be nil.
type Options struct {
	Context  context.Context // of the request; nil means context.Background
	Pool     *endpoint.Pool
	Match    Match // nil: no prefix matching
	Sessions *sessions.Table
	Now      time.Time
	Seed     uint64       // of the cycle's random numbers
	Tiers    *TierWeights // nil means DefaultTiers
	Harmful  bool         // the prompt may crash the engine: choose the one with the least to lose
	WarmUps  bool         // warm-up requests are allowed
	// ByPriority reports that engines order waiting requests by the priority that the picker sets.
	ByPriority bool
}

// TierWeights gives, per tier, the share of a token's prefill work that a cached copy saves, 0..1.
type TierWeights [block.NumTiers]float64

// DefaultTiers are the default weights.
var DefaultTiers = TierWeights{block.TierGPU: 1, block.TierCPU: .8, block.TierDisk: .5, block.TierRemote: .5}

// Of returns the weighted tokens of a run.
func (w *TierWeights) Of(r *block.Run) float64 {
	sum := 0.0
	for t := range r.Tokens {
		sum += w[t] * float64(r.Tokens[t])
	}
	return sum
}

// New returns a cycle with the endpoints that may serve r. Return it with Free.
func New(o Options, r *request.Request) *Cycle {
	memory := o.Pool.Memory()
	c, _ := memory.Get().(*Cycle)
	if c == nil {
		c = &Cycle{memory: memory}
	}
	c.Now, c.Request, c.Pool, c.Session = o.Now, r, o.Pool.Snapshot(), sessions.KeyIn(r.Tenant, r.Session)
	c.Health = o.Pool.Health()
	c.asks, c.sessions, c.random, c.answers = o.Match, o.Sessions, o.Seed, o.Pool.Answers()
	c.needTimes = o.Pool.NeedTimes()
	c.moves, c.fetched = o.Pool.Transfers(), o.Pool.Fetches()
	c.splits, c.trial = o.Pool.Splits(), o.Pool.Splits().Trial()
	if c.context = o.Context; c.context == nil {
		c.context = context.Background()
	}
	if c.decision++; c.decision == 0 { // after four billion decisions
		clear(c.predictOf[:cap(c.predictOf)])
		c.decision = 1
	}
	c.matched, c.hasPred, c.ranked, c.pinned, c.queued, c.warmUps, c.failures, c.top = false, false, 0, false, 0, o.WarmUps, 0, 0
	c.byPriority, c.trace = o.ByPriority, r.Trace
	c.tiers, c.saves = DefaultTiers, DefaultTiers
	c.saves[block.TierCPU] = o.Pool.Loads().Or(DefaultTiers[block.TierCPU])
	if o.Tiers != nil {
		c.tiers, c.saves = *o.Tiers, *o.Tiers
	}
	c.plan.reset()
	c.remoteState.terms, c.remoteState.question, c.remoteState.storedIn = c.remoteState.terms[:0], c.remoteState.question[:0], 0
	c.gather(r)
	c.observe()
	c.seat()
	if o.Harmful {
		c.isolate()
	}
	c.showAll()
	return c
}

// AllowAll makes all allowed endpoints candidates, regardless of their models.
func (c *Cycle) AllowAll() {
	c.gatherAll()
	c.unserved, c.avoided = false, c.avoided[:0]
	c.withhold()
	c.observe()
	c.showAll()
}

// Free returns the cycle to the pool. It must not be used afterwards.
func (c *Cycle) Free() {
	c.Request, c.Pool, c.Peer, c.context, c.asks, c.sessions, c.Health, c.trace = nil, nil, nil, nil, nil, nil, nil, nil
	clear(c.reserve)
	clear(c.avoided)
	for _, v := range c.remote[:c.remotes] {
		*v = storedView{}
	}
	c.remotes = 0
	clear(c.remoteState.terms)
	clear(c.remoteState.question)
	c.plan.reset()
	c.memory.Put(c)
}

// gather lists the endpoints that may serve r: allowed by the proxy and serving its model.
// Unhealthy endpoints are excluded while others can serve requests. So are endpoints that cannot
// serve a whole request, if no profile handler splits this one.
func (c *Cycle) gather(r *request.Request) {
	c.allow(r)
	c.reserve, c.avoided = c.reserve[:0], c.avoided[:0]
	c.gatherModel(r.Target)
	if c.pin(); !c.pinned {
		c.withhold()
	}
	serves := func(ep *endpoint.Endpoint) bool { return ep.Role&endpoint.RoleDecode != 0 }
	if r.Kind == request.KindOther {
		c.endpoints = prefer(c.endpoints, serves)
	}
}

// prefer keeps the endpoints for which good is true, or all if there are none.
func prefer(list []*endpoint.Endpoint, good func(*endpoint.Endpoint) bool) []*endpoint.Endpoint {
	n := 0
	for _, ep := range list {
		if good(ep) {
			n++
		}
	}
	if n == 0 || n == len(list) {
		return list
	}
	kept := list[:0]
	for _, ep := range list {
		if good(ep) {
			kept = append(kept, ep)
		}
	}
	return kept
}

// observe takes one consistent snapshot of every candidate.
func (c *Cycle) observe() {
	c.fleet.follow(c.Pool, c.Now.UnixNano())
	c.views = resize(c.views, len(c.endpoints))
	c.seen = 0
	at, all := 0, c.Pool.Endpoints
	for i, ep := range c.endpoints {
		for all[c.places[at]] != ep {
			at++
		}
		c.places[i] = c.places[at]
		c.views[i] = c.fleet.view(c.Pool, c.places[i], &c.seen)
		at++
	}
	c.places = c.places[:len(c.endpoints)]
	if c.seen&flagSlots != 0 {
		c.fleet.shareSlots(c.places)
	}
	c.findNeeds()
}

// ShowAll makes all candidates visible through Len and At, as before the first filter.
func (c *Cycle) ShowAll() { c.showAll() }

func (c *Cycle) showAll() {
	c.predicted, c.predictOf = resize(c.predicted, len(c.endpoints)), resize(c.predictOf, len(c.endpoints))
	c.live = resize(c.live, len(c.endpoints))
	for i := range c.live {
		c.live[i] = int32(i)
	}
}

// Context returns the context of the decision.
func (c *Cycle) Context() context.Context { return c.context }

// Len returns the number of remaining candidates.
func (c *Cycle) Len() int { return len(c.live) }

// At returns remaining candidate k.
func (c *Cycle) At(k int) *View { return c.All(c.live[k]) }

// Candidates returns the number of all candidates.
func (c *Cycle) Candidates() int { return len(c.endpoints) }

// All returns candidate i of all candidates, filtered or not.
func (c *Cycle) All(i int32) *View {
	k := c.views[i]
	if k.turn != c.fleet.turn {
		c.fleet.advance(k)
	}
	return &k.View
}

// CountFailure records that a plugin could not compute a value for one candidate and used its
// fallback.
func (c *Cycle) CountFailure() { c.failures++ }

// Failures returns how often that happened in this decision.
func (c *Cycle) Failures() int { return c.failures }

// Scratch returns a buffer of n unspecified values, valid until the next call.
func (c *Cycle) Scratch(n int) []float64 {
	c.scratch = resize(c.scratch, n)
	return c.scratch
}

// Index returns the position of remaining candidate k among all candidates.
func (c *Cycle) Index(k int) int32 { return c.live[k] }

// Answer returns the expected answer length in tokens.
func (c *Cycle) Answer() float64 { return c.answers.Expect(c.Request.Target, c.Request.MaxTokens) }

// Works reports whether a decision may use a pair of prefill and decode endpoints: split requests
// succeeded there of late, or it is a trial.
func (c *Cycle) Works(from, to *endpoint.Endpoint) bool { return c.trial || c.splits.Works(from, to) }

// Success returns the probability that a prefill endpoint computes the prompt of a split request; 1 in
// a trial.
func (c *Cycle) Success(from, to *endpoint.Endpoint) float64 {
	if c.trial {
		return 1
	}
	return c.splits.Success(from, to)
}

// Transfers returns the learned costs of moving KV blocks between endpoints.
func (c *Cycle) Transfers() *endpoint.Transfers { return c.moves }

// Fetches returns the learned costs of fetching KV blocks from another holder.
func (c *Cycle) Fetches() *endpoint.Transfers { return c.fetched }

// PrefixKey returns the key of the prompt's first chunks, and whether the prompt has that many.
// Equal keys mean equal prefixes.
func (c *Cycle) PrefixKey(chunks int) (block.Key, bool) {
	if chunks < 1 || chunks > len(c.Request.ChunkKeys) {
		return 0, false
	}
	return c.Request.ChunkKeys[chunks-1], true
}

// Chunks returns the number of chunks of the prompt.
func (c *Cycle) Chunks() int { return len(c.Request.ChunkKeys) }

// Position returns the index of an endpoint among the remaining candidates, or -1.
func (c *Cycle) Position(id block.EndpointID) int {
	for k, i := range c.live {
		if c.endpoints[i].ID == id {
			return k
		}
	}
	return -1
}

// Run returns the prefix of the prompt that remaining candidate k holds. The first call of a cycle
// runs the matcher.
func (c *Cycle) Run(k int) *block.Run {
	if !c.matched {
		c.match()
	}
	return &c.held[c.live[k]].Run
}

// RunAt is Run for a position among all candidates.
func (c *Cycle) RunAt(i int32) *block.Run {
	if !c.matched {
		c.match()
	}
	return &c.held[i].Run
}

// MatchAt returns the matcher's result for a position among all candidates.
func (c *Cycle) MatchAt(i int32) PrefixMatch {
	if !c.matched {
		c.match()
	}
	return c.held[i]
}

// Held returns the prompt tokens that candidate k holds, weighted by tier.
func (c *Cycle) Held(k int) float64 { return c.tiers.Of(c.Run(k)) }

// Work returns the work of the request at candidate k: its input tokens, and the tokens to compute
// after subtracting the tier-weighted cached ones. Unless weights are configured, host memory
// counts by its measured saving. At least one token is always computed.
func (c *Cycle) Work(k int) endpoint.Work { return c.WorkAt(c.live[k]) }

// WorkAt is Work for a position among all candidates.
func (c *Cycle) WorkAt(i int32) endpoint.Work {
	if !c.matched {
		c.match()
	}
	in := max(c.Request.InputTokens, 1)
	return endpoint.Work{Input: in, New: c.missing(in, &c.held[i].Run)}
}

func (c *Cycle) match() {
	c.matched = true
	c.held = resize(c.held, len(c.endpoints))
	clear(c.held)
	if c.asks != nil {
		span := c.trace.Start(tracing.SpanMatch)
		c.asks(c.context, c.Request, c.endpoints, c.held)
		span.End()
	}
}

// Predict sets the cost model's estimate for candidate k, for the decision record and for learning.
func (c *Cycle) Predict(k int, p Prediction) { c.PredictAt(c.live[k], p) }

// PredictAt is Predict for a position among all candidates.
func (c *Cycle) PredictAt(i int32, p Prediction) {
	c.hasPred = true
	c.predicted[i], c.predictOf[i] = p, c.decision
}

// HasPredicted reports whether a scorer has set the estimate for position i among all candidates.
func (c *Cycle) HasPredicted(i int32) bool { return c.hasPred && c.predictOf[i] == c.decision }

// Listed is the number of candidates, from the first one, that the record of a decision shows in
// addition to those of the plan. Scorers predict these even if they cannot be picked.
const Listed = 128

// Top returns how many of the best candidates the profile needs. A scorer may give the others any
// score that is not better, and no prediction. Candidates that are Listed or Named need both. 0 means
// that the scores of all are needed.
func (c *Cycle) Top() int { return c.top }

// Named reports whether an earlier profile of the decision has picked position i among all
// candidates.
func (c *Cycle) Named(i int32) bool {
	for _, r := range c.rankings[:max(c.ranked-1, 0)] {
		if slices.Contains(r.Order, i) {
			return true
		}
	}
	return false
}

// State returns the value of the last SetState, also of earlier decisions.
func (c *Cycle) State() any { return c.state }

// SetState keeps a scorer's working memory for reuse.
func (c *Cycle) SetState(s any) { c.state = s }

// Bound returns the remaining candidate that served the session's last request, or -1.
func (c *Cycle) Bound() int {
	if c.sessions == nil {
		return -1
	}
	id, ok := c.sessions.Lookup(c.Session)
	if !ok {
		return -1
	}
	return c.Position(id)
}

// Uint64 returns a random number. Equal seeds give equal sequences.
func (c *Cycle) Uint64() uint64 {
	c.random += 0x9e3779b97f4a7c15
	z := c.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// IntN returns a random number in [0, n); n must be positive.
func (c *Cycle) IntN(n int) int { return int(c.Uint64() % uint64(n)) }

// Float64 returns a random number in [0, 1).
func (c *Cycle) Float64() float64 { return float64(c.Uint64()>>11) / (1 << 53) }

// resize returns s with length n, its contents unspecified.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// ByPriority reports whether engines order waiting requests by the priority that the picker sets.
func (c *Cycle) ByPriority() bool { return c.byPriority }
