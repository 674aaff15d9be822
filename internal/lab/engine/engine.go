package engine

import (
	"math"
	"math/rand/v2"
	"time"
)

// Engine is one simulated engine core (one data-parallel rank). It is not
// safe for concurrent use.
type Engine struct {
	cfg  Config
	cost cost
	pool *pool
	host *hostTier  // nil: none
	rng  *rand.Rand // of noise; nil: none

	running []*seq // in order of admission
	came    uint64 // requests
	kept    map[uint64]*seq
	waiting queue
	spare   []*seq // ended sequences, for reuse

	// The step being computed.
	planned  []*seq
	load     load
	blocked  bool    // the waiting queue cannot move until something ends
	events   []Event // events for the next Result
	shown    []Event // events of the last Result
	names    []Hash  // backing of generated names in events
	hits     []int32
	adapters []uint32
	loaded   []uint32 // adapters, the most recently used one last
	res      Result

	// State of a run of steps that differ only in context length: every running request decodes
	// inside its block. quiet is the number of remaining steps, lag the number not yet applied to
	// the sequences.
	quiet, lag int

	stats Stats
}

// New returns an idle engine with an empty cache.
func New(c Config) (*Engine, error) {
	c, err := c.Check()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, cost: c.Model.cost(), pool: newPool(c.Blocks)}
	if c.Events {
		e.pool.evicted = func(h Hash) { e.events = append(e.events, Event{Kind: Removed, Hash: h}) }
	}
	if c.Host.Blocks > 0 && !c.NoPrefixCache {
		e.host = newHostTier(c.Host.Blocks)
	}
	if c.Noise.Sigma > 0 || c.Noise.PauseEvery > 0 {
		e.rng = rand.New(rand.NewPCG(c.Noise.Seed, 0x901e))
	}
	return e, nil
}

// Config returns the configuration with defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// SetModel changes how long steps take, from the next one on.
func (e *Engine) SetModel(m Model) {
	e.settle()
	e.cfg.Model, e.cost = m, m.cost()
}

// Submit appends a request to the waiting queue. It returns ErrTooLong or ErrRequest if the request
// is invalid. It may be called during a step; the next step includes the request.
func (e *Engine) Submit(r Request) error {
	if err := r.check(&e.cfg); err != nil {
		return err
	}
	var s *seq
	if n := len(e.spare); n > 0 {
		s, e.spare = e.spare[n-1], e.spare[:n-1]
		*s = seq{blocks: s.blocks[:0]}
	} else {
		s = new(seq)
	}
	e.came++
	s.Request, s.number, s.total, s.cached = r, e.came, r.Prompt, -1
	if e.cfg.ByPriority {
		e.waiting.insert(s)
	} else {
		e.waiting.pushBack(s)
	}
	e.quiet = 0
	return nil
}

// Abort ends a request without a trace in any Result. It returns false when no
// such request is waiting or running. Cost: a pass over both queues.
func (e *Engine) Abort(id uint64) bool {
	e.settle()
	for i, s := range e.running {
		if s.ID != id {
			continue
		}
		e.giveBack(s)
		e.running = append(e.running[:i], e.running[i+1:]...)
		e.abandon(s)
		return true
	}
	for i, s := range e.waiting.all() {
		if s.ID != id {
			continue
		}
		e.waiting.remove(i)
		e.abandon(s)
		return true
	}
	return false
}

func (e *Engine) abandon(s *seq) {
	e.stats.Aborted++
	e.recycle(s)
}

func (e *Engine) recycle(s *seq) {
	s.Request = Request{}
	e.spare = append(e.spare, s)
}

// ResetPrefixCache empties the prefix cache and returns true, or returns false
// while any block is in use. The event appears in the next Result that is not
// idle, as engines publish it.
func (e *Engine) ResetPrefixCache() bool {
	if !e.pool.clear() {
		return false
	}
	if e.cfg.Events {
		e.events = append(e.events, Event{Kind: Cleared})
	}
	return true
}

// Stats returns the engine's figures as of the end of the last step.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting = len(e.running), e.waiting.len()
	s.Blocks, s.UsedBlocks = e.pool.size(), e.pool.size()-e.pool.free
	s.CachedBlocks, s.CachedNames = e.pool.named, len(e.pool.first)
	return s
}

// Idle reports whether there is no work to schedule.
func (e *Engine) Idle() bool { return len(e.running) == 0 && e.waiting.len() == 0 }

// Step computes one step. The Result and its slices are valid until the next
// call of Step or Skip.
func (e *Engine) Step() *Result {
	r := &e.res
	*r = Result{Admitted: r.Admitted[:0], First: r.First[:0], Tokens: r.Tokens[:0], Finished: r.Finished[:0]}
	if e.Idle() {
		r.Idle = true
		return r
	}
	if e.quiet > 0 {
		e.quietStep(r)
		return r
	}
	e.settle()
	e.names = e.names[:0]
	e.schedule()
	r.Duration = e.noisy(e.cost.duration(&e.load))
	r.Prefill, r.Decoding, r.Seqs = int(e.load.prefill), int(e.load.decoding), int(e.load.seqs)
	r.Events = e.events
	e.events, e.shown = e.shown[:0], e.events
	e.stats.Steps++
	e.stats.PrefillTokens += uint64(e.load.prefill)
	e.advance(r)
	e.foresee(r)
	return r
}

// Skip computes the following steps that only lengthen contexts (no token is reported, no block
// changes, no request finishes) and start before limit has passed. It returns their number and
// total duration. It is equivalent to as many calls of Step, but faster. It returns 0 if the next
// step does more, and always with Config.EveryToken.
func (e *Engine) Skip(limit time.Duration) (steps int, d time.Duration) {
	var r Result
	for e.quiet > 0 && d < limit {
		e.quietStep(&r)
		d += r.Duration
		steps++
	}
	return steps, d
}

func (e *Engine) quietStep(r *Result) {
	n := len(e.running)
	e.quiet--
	e.lag++
	r.Duration = e.noisy(e.cost.duration(&e.load))
	r.Decoding, r.Seqs = n, n
	e.load.context += int64(n)
	e.stats.Steps++
	e.stats.GeneratedTokens += uint64(n)
}

// noisy returns how long a step of a nominal duration takes.
func (e *Engine) noisy(d time.Duration) time.Duration {
	if e.rng == nil {
		return d
	}
	n := &e.cfg.Noise
	if n.Sigma > 0 {
		d = time.Duration(float64(d) * math.Exp(n.Sigma*e.rng.NormFloat64()))
	}
	if n.PauseEvery > 0 && e.rng.Float64() < float64(d)/float64(n.PauseEvery) {
		d += time.Duration((.1 + .9*e.rng.Float64()) * float64(n.PauseMax))
	}
	return d
}

// settle applies quiet steps to the sequences and ends the run.
func (e *Engine) settle() {
	e.quiet = 0
	if e.lag == 0 {
		return
	}
	for _, s := range e.running {
		s.computed += e.lag
		s.total += e.lag
	}
	e.lag = 0
}

// advance applies the planned step: tokens appear, requests end.
func (e *Engine) advance(r *Result) {
	for _, s := range e.planned {
		s.computed += s.chunk
		if s.computed < s.total {
			continue
		}
		s.total++
		e.stats.GeneratedTokens++
		m := Mark{ID: s.ID, Generated: s.generated(), Cached: s.cached, Preemptions: s.preempted}
		if m.Generated == 1 {
			r.First = append(r.First, m)
		}
		if e.cfg.EveryToken {
			r.Tokens = append(r.Tokens, m)
		}
		if s.done() {
			r.Finished = append(r.Finished, m)
		}
	}
	if len(r.Finished) > 0 {
		e.retire()
	}
}

func (e *Engine) retire() {
	kept := e.running[:0]
	for _, s := range e.running {
		if !s.done() {
			kept = append(kept, s)
			continue
		}
		e.stats.Finished++
		if s.Hold {
			e.hold(s)
			continue
		}
		e.giveBack(s)
		e.recycle(s)
	}
	clear(e.running[len(kept):])
	e.running = kept
}

// foresee counts the following steps in which only context lengths change.
func (e *Engine) foresee(r *Result) {
	e.quiet = 0
	moved := len(r.Finished) > 0 || r.Preempted > 0 || !e.blocked
	if e.cfg.EveryToken || len(e.running) == 0 || len(e.running) > e.cfg.MaxBatchTokens ||
		(e.waiting.len() > 0 && moved) {
		return
	}
	bs := e.cfg.BlockSize
	quiet := int(^uint(0) >> 1)
	var next load
	for _, s := range e.running {
		in := s.computed % bs
		if !s.decoding() || in == 0 {
			return
		}
		next.addDecode(s.computed + 1)
		quiet = min(quiet, bs-1-in, s.Prompt+s.Output-s.total-1)
	}
	e.quiet, e.load = max(quiet, 0), next
}

// ForEachAdapter calls f for every request that uses an adapter, running ones
// first.
func (e *Engine) ForEachAdapter(f func(adapter uint32, running bool)) {
	for _, s := range e.running {
		if s.Adapter != 0 {
			f(s.Adapter, true)
		}
	}
	for _, s := range e.waiting.all() {
		if s.Adapter != 0 {
			f(s.Adapter, false)
		}
	}
}
