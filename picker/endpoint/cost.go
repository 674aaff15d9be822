package endpoint

import (
	"cmp"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// Cost holds the cost constants of an endpoint's engine, in seconds. A prefill of n new tokens
// after c cached ones takes about Base + PerToken × n + PerPair × n × (c + n/2). A decode step
// takes Step + PerSeq × sequences + PerContext × context tokens.
type Cost struct {
	Base       float64 `json:"base_s"`
	PerToken   float64 `json:"per_token_s"`
	PerPair    float64 `json:"per_pair_s"`
	Step       float64 `json:"step_s"`
	PerSeq     float64 `json:"per_sequence_s"`
	PerContext float64 `json:"per_context_token_s"`
	// Idle is the ratio of an unobstructed prefill at the pool's engines to PriorCost's prediction.
	// Each replica learns it on its own.
	Idle float64 `json:"idle"`
	// Decayed numbers of samples of the two halves; 0 means the prior.
	PrefillSeen float64 `json:"prefill_samples"`
	DecodeSeen  float64 `json:"decode_samples"`
	// Uncertainty is the relative standard error of a prefill predicted by this replica's
	// constants, compared with an equal endpoint.
	Uncertainty float64 `json:"doubt"`
	// Noise is the relative standard deviation of a single prefill around its prediction, at the
	// pool's engines. Each replica learns it on its own.
	Noise float64 `json:"noise"`
}

// PriorCost is the assumption for an unknown endpoint: between an 8B model on one device and a 70B
// model on four.
var PriorCost = Cost{
	Base: 0.020, PerToken: 50e-6, PerPair: 0.8e-9,
	Step: 0.014, PerSeq: 50e-6, PerContext: 40e-9,
	Idle: 1, Noise: 0.316, // the root of noisePrior
}

// Prefill returns the seconds of w on an otherwise idle endpoint, without Base.
func (c *Cost) Prefill(w Work) float64 {
	return c.PerToken*float64(w.New) + c.PerPair*w.Pairs()
}

// StepOf returns the seconds of a decode step for a number of sequences with context tokens in
// total. Constants learned from running answers include interleaved prefills.
func (c *Cost) StepOf(sequences, context float64) float64 {
	return c.Step + c.PerSeq*sequences + c.PerContext*context
}

// Queue holds the terms of Cost.Wait for one load.
type Queue struct {
	work, step, longest float64 // seconds: of all prefills, of a decode step, and of the longest prefill
	lastFirst           int64
	waits               bool
}

// Queue returns the terms of the queue that l describes.
func (c *Cost) Queue(l *Load) Queue {
	if l.Waiting <= 0 {
		return Queue{}
	}
	return Queue{
		work: c.PerToken*float64(l.Prefill) + c.PerPair*l.Pairs, step: c.StepOf(float64(l.Requests-l.Waiting), float64(l.Context)),
		longest: c.longest(l), lastFirst: l.LastFirst, waits: true,
	}
}

// Wait returns the expected seconds until every request of the queue described by l has its first
// token. The queue's work decreases with the time since the last first token, by at most its
// longest prefill. An engine without a first token for more than twice that is blocked (on memory
// or its sequence limit) or hangs; its requests are expected to wait as long again.
func (c *Cost) Wait(l *Load, now time.Time) float64 {
	q := c.Queue(l)
	return q.Wait(now.UnixNano())
}

// Wait is Cost.Wait at a time in Unix nanoseconds.
func (q *Queue) Wait(now int64) float64 {
	if !q.waits {
		return 0
	}
	if q.lastFirst == 0 {
		return max(q.work, q.step)
	}
	silent := max(float64(now-q.lastFirst)/1e9, 0)
	if silent > 2*q.longest+blockedSteps*q.step {
		return max(q.work, silent)
	}
	return max(q.work-min(silent, q.longest), q.step)
}

// blockedSteps is the number of steps that an engine may be late before it counts as blocked.
const blockedSteps = 8

// longest estimates the seconds of the longest prefill in a queue. A prefill of n new tokens visits
// at least n²/2 pairs, so twice the pairs per token is at least the size-weighted mean length.
func (c *Cost) longest(l *Load) float64 {
	if l.Prefill <= 0 {
		return 0
	}
	tokens := min(float64(l.Prefill), 2*l.Pairs/float64(l.Prefill))
	return c.PerToken*tokens + c.PerPair*tokens*tokens/2
}

// costCell learns the constants of one endpoint. Reads do not block.
type costCell struct {
	mu          sync.Mutex
	prefill     fit.Linear
	decode      fit.Linear
	prior       Cost          // constants for factors of 1
	fleet       [2][3]float64 // the pool's constants of both halves, in seconds; zero: unknown
	own         [2]float64    // weight of the endpoint's own constants, 0..1
	uncertainty float64       // standard error of the own prefill constants, scaled by their weight
	idle        float64       // Cost.Idle; 0: unknown
	noise       float64       // Cost.Noise
	bias        [2]bias
	local       atomic.Pointer[Cost]
	shared      atomic.Pointer[Cost] // of the other replicas
	merged      atomic.Pointer[Cost]
	mark        *Mark // nil outside of a pool
}

// Cost returns the endpoint's constants as learned by all replicas. The result is read-only.
func (c *counters) Cost() *Cost {
	if p := c.cost.merged.Load(); p != nil {
		return p
	}
	return &PriorCost
}

// LocalCost returns the constants learned by this replica alone.
func (c *counters) LocalCost() Cost {
	if p := c.cost.local.Load(); p != nil {
		return *p
	}
	return PriorCost
}

// SetRemoteCost replaces the other replicas' constants. Their Samples fields are their weight.
func (c *counters) SetRemoteCost(remote Cost) {
	c.cost.mu.Lock()
	defer c.cost.mu.Unlock()
	c.cost.shared.Store(&remote)
	c.cost.publish()
}

// SetPriorCost sets the initial constants, for example the constants of the pool's other endpoints.
// It discards all learned constants.
func (c *counters) SetPriorCost(prior Cost) {
	c.cost.mu.Lock()
	defer c.cost.mu.Unlock()
	c.cost.reset(prior)
	c.cost.publish()
}

func (c *costCell) reset(prior Cost) {
	prior.PrefillSeen, prior.DecodeSeen = 0, 0
	c.prior, c.prefill, c.decode = prior, fit.New(), fit.New()
	c.fleet, c.own, c.bias, c.uncertainty, c.idle = [2][3]float64{}, [2]float64{}, [2]bias{}, 0, prior.Idle
}

// restart resets one half, to the pool's constants if known. It keeps the number of slow retrials.
func (c *costCell) restart(half int) {
	c.begin()
	c.bias[half] = bias{retried: c.bias[half].retried}
	pool := c.fleet[half]
	if half == 0 {
		if c.prefill = fit.New(); pool[0] != 0 {
			c.prior.Base, c.prior.PerToken, c.prior.PerPair = pool[0], pool[1], pool[2]
		}
		return
	}
	if c.decode = fit.New(); pool[0] != 0 {
		c.prior.Step, c.prior.PerSeq, c.prior.PerContext = pool[0], pool[1], pool[2]
	}
}

// Queued holds a request's work and the load ahead of the request at dispatch.
type Queued struct {
	Ahead Load // the endpoint's load before the request
	Own   Work
	At    time.Time
}

// ObservePrefill learns from a first token that came ttft after q.
func (c *counters) ObservePrefill(q *Queued, ttft time.Duration) {
	c.observeFirst(q.first(ttft.Seconds()))
}

// observeFirst learns from the time of one or several first tokens.
func (c *counters) observeFirst(s firstSample) {
	cell := &c.cost
	cell.mu.Lock()
	defer cell.mu.Unlock()
	cell.begin()
	cell.prefill.Observe(s.inputs(&cell.prior), s.seconds, s.trust)
	cell.publish()
}

func (c *costCell) begin() {
	if c.prior.PerToken == 0 {
		c.reset(PriorCost)
	}
}

// firstSample is a sample of a prefill fit: the prefill work up to a first token, and its duration.
type firstSample struct {
	tokens, pairs float64
	seconds       float64 // since the first token before it, or since the dispatch
	trust         float64
}

// first returns the sample of a first token that came ttft seconds after q.
func (q *Queued) first(ttft float64) firstSample {
	s := firstSample{tokens: float64(q.Own.New), pairs: q.Own.Pairs(), seconds: ttft, trust: 1}
	if q.Ahead.Waiting > 0 {
		s.tokens += float64(q.Ahead.Prefill)
		s.pairs += q.Ahead.Pairs
		if q.Ahead.LastFirst != 0 {
			s.seconds += max(float64(q.At.UnixNano()-q.Ahead.LastFirst)/1e9, 0)
		}
		s.trust = 0.4 // the queue's order and later arrivals are unknown
	}
	return s
}

// inputs returns the inputs of a prefill fit, in units of p.
func (s *firstSample) inputs(p *Cost) [3]float64 {
	return [3]float64{p.Base, p.PerToken * s.tokens, p.PerPair * s.pairs}
}

// ObserveStep learns from the mean time between tokens of one answer while the endpoint decoded
// sequences with context tokens in total.
func (c *counters) ObserveStep(sequences, context, seconds float64) {
	c.observeStep(sequences, context, seconds, 1)
}

// observeStep is ObserveStep with a weight.
func (c *counters) observeStep(sequences, context, seconds, trust float64) {
	cell := &c.cost
	cell.mu.Lock()
	defer cell.mu.Unlock()
	cell.begin()
	cell.decode.Observe(stepSample(&cell.prior, sequences, context), seconds, trust)
	cell.publish()
}

// stepSample returns the inputs of a decode fit, in units of p.
func stepSample(p *Cost, sequences, context float64) [3]float64 {
	return [3]float64{p.Step, p.PerSeq * sequences, p.PerContext * context}
}

// publish makes the learned constants visible, averaged with the other replicas' by number of
// samples.
func (c *costCell) publish() {
	c.begin()
	a, d := c.lean(0, c.prior.prefill(c.prefill.A)), c.lean(1, c.prior.decode(c.decode.A))
	local := Cost{
		Base: a[0], PerToken: a[1], PerPair: a[2], PrefillSeen: c.prefill.N,
		Step: d[0], PerSeq: d[1], PerContext: d[2], DecodeSeen: c.decode.N, Uncertainty: c.uncertainty,
		Idle: cmp.Or(c.idle, 1), Noise: cmp.Or(c.noise, PriorCost.Noise),
	}
	c.local.Store(&local)
	merged := local
	if r := c.shared.Load(); r != nil {
		mix(&merged.Base, r.Base, local.PrefillSeen, r.PrefillSeen)
		mix(&merged.PerToken, r.PerToken, local.PrefillSeen, r.PrefillSeen)
		mix(&merged.PerPair, r.PerPair, local.PrefillSeen, r.PrefillSeen)
		mix(&merged.Step, r.Step, local.DecodeSeen, r.DecodeSeen)
		mix(&merged.PerSeq, r.PerSeq, local.DecodeSeen, r.DecodeSeen)
		mix(&merged.PerContext, r.PerContext, local.DecodeSeen, r.DecodeSeen)
		merged.PrefillSeen += max(r.PrefillSeen, 0)
		merged.DecodeSeen += max(r.DecodeSeen, 0)
	}
	if last := c.merged.Load(); last != nil && *last == merged {
		return
	}
	c.merged.Store(&merged)
	c.mark.changed()
}

// prefill and decode return c's constants times factors.
func (c *Cost) prefill(a [3]float64) [3]float64 {
	return [3]float64{c.Base * a[0], c.PerToken * a[1], c.PerPair * a[2]}
}

func (c *Cost) decode(a [3]float64) [3]float64 {
	return [3]float64{c.Step * a[0], c.PerSeq * a[1], c.PerContext * a[2]}
}

// lean moves constants towards the pool's, according to the weight of the endpoint's own.
func (c *costCell) lean(half int, own [3]float64) [3]float64 {
	if c.fleet[half][0] == 0 {
		return own
	}
	for j := range own {
		own[j] = c.fleet[half][j] + c.own[half]*(own[j]-c.fleet[half][j])
	}
	return own
}

// mix averages v with other by weight. It ignores invalid values of a peer.
func mix(v *float64, other, weight, otherWeight float64) {
	if !(other > 0) || !(otherWeight > 0) || math.IsInf(other, 0) || math.IsInf(otherWeight, 0) {
		return
	}
	*v = (*v*weight + other*otherWeight) / (weight + otherWeight)
}

// MeanCost averages constants by their samples, for prefill and decode separately.
func MeanCost(costs iter.Seq[Cost]) Cost {
	var out Cost
	for c := range costs {
		p, d := c.PrefillSeen, c.DecodeSeen
		out.Base, out.PerToken, out.PerPair = out.Base+p*c.Base, out.PerToken+p*c.PerToken, out.PerPair+p*c.PerPair
		out.Step, out.PerSeq, out.PerContext = out.Step+d*c.Step, out.PerSeq+d*c.PerSeq, out.PerContext+d*c.PerContext
		out.PrefillSeen, out.DecodeSeen = out.PrefillSeen+p, out.DecodeSeen+d
	}
	if p := out.PrefillSeen; p > 0 {
		out.Base, out.PerToken, out.PerPair = out.Base/p, out.PerToken/p, out.PerPair/p
	}
	if d := out.DecodeSeen; d > 0 {
		out.Step, out.PerSeq, out.PerContext = out.Step/d, out.PerSeq/d, out.PerContext/d
	}
	return out
}
