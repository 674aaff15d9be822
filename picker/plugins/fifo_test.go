package plugins

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var structures = flag.Int("structures", usualStructures(), "structures of the tests in the FIFO model")

// usualStructures returns fewer for the race detector: the model has one goroutine, and 10,000 take five minutes there.
func usualStructures() int {
	if testkit.Raced {
		return 1_000
	}
	return 10_000
}

// structure is a fleet of equal engines and its load. Engines prefill one prompt after the other,
// one token per tick. Waits are exact, and caches evict at random.
type structure struct {
	engines   int
	prefixes  int
	skew      float64
	root      int     // mean tokens of a prefix
	tail      int     // mean unique tokens of a prompt
	level     float64 // offered work without caches / capacity
	variation float64 // of gaps between arrivals
	holds     int     // prefixes that fit into an engine's cache
	forgets   float64 // share of decisions before which an engine loses its cache
	requests  int
}

func logUniform(rng *rand.Rand, from, to float64) float64 {
	return from * math.Pow(to/from, rng.Float64())
}

func randomStructure(rng *rand.Rand) structure {
	s := structure{
		engines: 2 + rng.IntN(15), prefixes: int(logUniform(rng, 1, 200)), skew: 2 * rng.Float64(),
		root: int(logUniform(rng, 100, 24_000)), tail: int(logUniform(rng, 20, 8_000)),
		level: logUniform(rng, .1, 6), variation: 1, holds: int(logUniform(rng, 1, 200)), requests: 60 + rng.IntN(60),
	}
	if rng.IntN(3) == 0 {
		s.variation = 1 + 3*rng.Float64()
	}
	if rng.IntN(3) == 0 {
		s.forgets = rng.Float64() / 4
	}
	return s
}

const (
	tick      = 50 * time.Microsecond // of one token
	fifoChunk = 256                   // tokens
)

// fifo plays one structure.
type fifo struct {
	structure
	rng     *rand.Rand
	fleet   *fleet
	now     int64   // ticks
	backlog []int64 // tokens, exact
	ends    [][]int64
	lengths []int     // of prefixes
	shares  []float64 // of requests, added up
	cached  [][]int   // by engine: prefixes, the latest used last
	asks    request.Request
	prefix  int
}

func newFIFO(s structure, seed uint64) *fifo {
	list := make([]one, s.engines)
	for i := range list {
		list[i].cost = &endpoint.Cost{PerToken: tick.Seconds(), Idle: 1}
	}
	f := &fifo{
		structure: s, rng: rand.New(rand.NewPCG(seed, 0xf1f0)), fleet: newFleet(list...),
		backlog: make([]int64, s.engines), ends: make([][]int64, s.engines), cached: make([][]int, s.engines),
	}
	sum := 0.0
	for k := range s.prefixes {
		sum += math.Pow(float64(k+1), -s.skew)
		f.shares = append(f.shares, sum)
		f.lengths = append(f.lengths, 1+int(f.rng.ExpFloat64()*float64(s.root)))
	}
	return f
}

// arrive moves on to the next request.
func (f *fifo) arrive() {
	mean := float64(f.root+f.tail) / f.level / float64(f.engines)
	gap := f.rng.ExpFloat64() * mean
	if f.variation > 1 { // hyperexponential: most gaps are short, a few long
		p := .5 * (1 - math.Sqrt((f.variation*f.variation-1)/(f.variation*f.variation+1)))
		if f.rng.Float64() < p {
			gap /= 2 * p
		} else {
			gap /= 2 * (1 - p)
		}
	}
	f.pass(int64(gap))
	f.prefix = f.pick()
	length := f.lengths[f.prefix]
	f.asks = *ask(length + 1 + int(f.rng.ExpFloat64()*float64(f.tail)))
	for at := range f.asks.InputTokens / fifoChunk {
		key := uint64(f.prefix)<<32 + uint64(at)
		if (at+1)*fifoChunk > length {
			key = f.rng.Uint64()
		}
		f.asks.ChunkKeys = append(f.asks.ChunkKeys, block.Key(key*0x9e3779b97f4a7c15))
	}
	if f.rng.Float64() < f.forgets {
		f.cached[f.rng.IntN(f.engines)] = nil
	}
}

// pick draws a prefix by its popularity.
func (f *fifo) pick() int {
	at, _ := slices.BinarySearch(f.shares, f.rng.Float64()*f.shares[f.prefixes-1])
	return min(at, f.prefixes-1)
}

// pass lets time pass.
func (f *fifo) pass(ticks int64) {
	f.now += ticks
	for e := range f.backlog {
		f.backlog[e] = max(f.backlog[e]-ticks, 0)
		for len(f.ends[e]) > 0 && f.ends[e][0] <= f.now {
			f.ends[e] = f.ends[e][1:]
		}
	}
}

// held returns the tokens that engine e has of the prompt.
func (f *fifo) held(e int) int {
	for _, p := range f.cached[e] {
		if p == f.prefix {
			return f.lengths[p]
		}
	}
	return 0
}

// Match implements picker.Matcher.
func (f *fifo) Match(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for k, ep := range eps {
		held[k].Run.Tokens[block.TierGPU] = int32(f.held(int(ep.ID)))
	}
}

func (f *fifo) Chosen(*request.Request, *endpoint.Endpoint)                                       {}
func (f *fifo) Finished(*request.Request, *endpoint.Endpoint, cycle.PrefixMatch, request.Outcome) {}

// choose returns the endpoint that a scorer chooses for the request.
func (f *fifo) choose(s cycle.Scorer, scores []float64) int {
	at := t0.Add(time.Duration(f.now) * tick)
	for e, ep := range f.fleet.pool.Snapshot().Endpoints {
		queue := int64(len(f.ends[e]))
		f.fleet.pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: queue, Waiting: queue, Prefill: f.backlog[e], LastFirst: at.UnixNano()})
	}
	c := cycle.New(cycle.Options{Pool: f.fleet.pool, Match: f.Match, Now: at, Seed: uint64(f.now)}, &f.asks)
	defer c.Free()
	s.Score(c, scores[:c.Len()])
	best := 0
	for k := range c.Len() {
		if scores[k] > scores[best] {
			best = k
		}
	}
	return int(c.At(best).ID)
}

// place puts the request into engine e's queue, and returns the ticks until its
// first token.
func (f *fifo) place(e int) int64 {
	f.backlog[e] += int64(f.asks.InputTokens - f.held(e))
	f.ends[e] = append(f.ends[e], f.now+f.backlog[e])
	kept := f.cached[e][:0]
	for _, p := range f.cached[e] {
		if p != f.prefix {
			kept = append(kept, p)
		}
	}
	f.cached[e] = append(kept, f.prefix)
	if len(f.cached[e]) > f.holds {
		f.cached[e] = f.cached[e][1:]
	}
	return f.backlog[e]
}

// uncached is a fleet of least-loaded placement without caches on the same arrivals.
type uncached []int64

func (c uncached) pass(ticks int64) {
	for e := range c {
		c[e] = max(c[e]-ticks, 0)
	}
}

func (c uncached) place(tokens int) int64 {
	least := 0
	for e := range c {
		if c[e] < c[least] {
			least = e
		}
	}
	c[least] += int64(tokens)
	return c[least]
}

// played is the result of a structure under a scorer.
type played struct {
	later int   // requests with a later first token than under cold least-loaded
	worst int64 // ticks
	sum   int64 // of all times to first token
}

func (s structure) play(seed uint64, scorer cycle.Scorer) played {
	f, c := newFIFO(s, seed), make(uncached, s.engines)
	var out played
	scores := make([]float64, s.engines)
	for range s.requests {
		before := f.now
		f.arrive()
		c.pass(f.now - before)
		first := f.place(f.choose(scorer, scores))
		out.sum += first
		if late := first - c.place(f.asks.InputTokens); late > 0 {
			out.later++
			out.worst = max(out.worst, late)
		}
	}
	return out
}

// TestLimitExact checks many structures, request by request: for any weights, the first token is
// never later than under least-loaded placement without caches (docs/adr/0017).
func TestLimitExact(t *testing.T) {
	parts.Full(t)
	weights := []string{
		"", `{"copyThreshold":0}`, `{"ownWeight":100,"copyThreshold":0}`, `{"ownWeight":0,"queueWeight":0,"arrivalWeight":0,"busyWeight":0}`,
		`{"queueWeight":50,"arrivalWeight":20}`, `{"copyThreshold":0.1}`,
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range *structures {
		s, seed := randomStructure(rng), rng.Uint64()
		params := weights[i%len(weights)]
		if got := s.play(seed, build(t, "predicted-ttft-scorer", params).Scorer); got.later > 0 {
			t.Fatalf("structure %d, %s: %d of %d requests are later, by %v at worst\n%+v", i, params, got.later, s.requests, time.Duration(got.worst)*tick, s)
		}
	}
}

// leastWork prefers the shortest queue, by work.
type leastWork struct{}

func (leastWork) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = -float64(c.At(k).Load.Prefill)
	}
}

// TestCopiesSum: on structures whose caches have space, the sum of all times to first token is at
// most twice the sum under least-loaded placement with caches. On many structures, prefix affinity
// alone is worse than that.
func TestCopiesSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	prefix := build(t, "prefix-cache-scorer", "").Scorer
	broken := 0
	for i := range *structures / 10 {
		s, seed := randomStructure(rng), rng.Uint64()
		s.holds, s.forgets, s.level, s.requests = s.prefixes, 0, min(s.level, .9), 4*s.requests
		least := s.play(seed, leastWork{}).sum
		if got := s.play(seed, build(t, "predicted-ttft-scorer", "").Scorer).sum; got > 2*least {
			t.Errorf("structure %d: the sum is %.2f times that of least-loaded placement\n%+v", i, float64(got)/float64(least), s)
		}
		if s.play(seed, prefix).sum > 2*least {
			broken++
		}
	}
	if broken < *structures/100 {
		t.Error(fmt.Sprint("prefix affinity alone exceeds it on ", broken, " structures only"))
	}
}

// TestLimitNeeded checks that the structures are hard enough for the test above to fail without the
// limit: policies without a limit are later on many.
func TestLimitNeeded(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	prefix := build(t, "prefix-cache-scorer", "").Scorer
	broken := 0
	const n = 200
	for range n {
		s, seed := randomStructure(rng), rng.Uint64()
		if s.play(seed, prefix).later > 0 {
			broken++
		}
	}
	if broken < n/2 {
		t.Error(fmt.Sprint("prefix affinity alone is later on ", broken, " of ", n, " structures only"))
	}
}
