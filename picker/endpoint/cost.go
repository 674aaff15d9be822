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

// Cost are the constants of an endpoint's engine, in seconds. A prefill of n
// new tokens below c held ones takes about Base + PerToken × n + PerPair × n ×
// (c + n/2); a decode step takes Step + PerSeq × sequences + PerContext ×
// context tokens.
type Cost struct {
	Base       float64 `json:"base_s"`
	PerToken   float64 `json:"per_token_s"`
	PerPair    float64 `json:"per_pair_s"`
	Step       float64 `json:"step_s"`
	PerSeq     float64 `json:"per_sequence_s"`
	PerContext float64 `json:"per_context_token_s"`
	// Idle is how many times PriorCost's time a prefill takes at the pool's
	// engines when nothing is in its way. Each replica learns it by itself.
	Idle float64 `json:"idle"`
	// Samples behind the two halves, faded; 0 means the prior.
	PrefillSeen float64 `json:"prefill_samples"`
	DecodeSeen  float64 `json:"decode_samples"`
	// Uncertainty is the standard error of a prefill by this replica's constants
	// against that of an equal endpoint, as a share of it.
	Uncertainty float64 `json:"doubt"`
}

// PriorCost is what is assumed of an endpoint of which nothing is known: a
// model between 8B on one device and 70B on four.
var PriorCost = Cost{
	Base: 0.020, PerToken: 50e-6, PerPair: 0.8e-9,
	Step: 0.014, PerSeq: 50e-6, PerContext: 40e-9,
	Idle: 1,
}

// Prefill returns the seconds that w takes on an endpoint that does nothing
// else, without Base.
func (c *Cost) Prefill(w Work) float64 {
	return c.PerToken*float64(w.New) + c.PerPair*w.Pairs()
}

// StepOf returns the seconds of a step in which so many sequences decode, with
// context tokens in all. What is learned from answers under way includes the
// prefills that came between.
func (c *Cost) StepOf(sequences, context float64) float64 {
	return c.Step + c.PerSeq*sequences + c.PerContext*context
}

// Wait returns the seconds until the queue that l describes has had its first
// tokens, as far as the book tells. The queue's work shrinks with the time since
// the last first token, but by no more than the longest prefill in it: an engine
// that has shown no first token for longer than twice that is blocked (on memory,
// on its limit of sequences) or hangs, and what has waited so long is expected
// to wait as long again.
func (c *Cost) Wait(l *Load, now time.Time) float64 {
	if l.Waiting <= 0 {
		return 0
	}
	work := c.PerToken*float64(l.Prefill) + c.PerPair*l.Pairs
	step := c.StepOf(float64(l.Requests-l.Waiting), float64(l.Context))
	if l.LastFirst == 0 {
		return max(work, step)
	}
	silent := max(float64(now.UnixNano()-l.LastFirst)/1e9, 0)
	longest := c.longest(l)
	if silent > 2*longest+blockedSteps*step {
		return max(work, silent)
	}
	return max(work-min(silent, longest), step)
}

// blockedSteps is how many steps an engine may be late before it counts as
// blocked.
const blockedSteps = 8

// longest returns the seconds of the longest prefill in a queue: no book tells
// it, but as a prefill of n new tokens visits at least n²/2 pairs, twice the
// pairs for each token is no less than the size-weighted mean of prefills.
func (c *Cost) longest(l *Load) float64 {
	if l.Prefill <= 0 {
		return 0
	}
	tokens := min(float64(l.Prefill), 2*l.Pairs/float64(l.Prefill))
	return c.PerToken*tokens + c.PerPair*tokens*tokens/2
}

// costCell learns the constants of one endpoint. Reads do not block.
type costCell struct {
	mu      sync.Mutex
	prefill fit.Linear
	decode  fit.Linear
	prior   Cost          // what factors of 1 mean
	fleet   [2][3]float64 // the pool's constants of both, in seconds; zero: not known
	own     [2]float64    // how much the endpoint's own count against them, 0..1
	doubt   float64       // of own prefill constants, as far as they count
	idle    float64       // Cost.Idle; 0: not known
	bias    [2]bias
	local   atomic.Pointer[Cost]
	shared  atomic.Pointer[Cost] // of the other replicas
	merged  atomic.Pointer[Cost]
}

// Cost returns the endpoint's constants as far as all replicas have learned
// them. The result is read-only.
func (c *counters) Cost() *Cost {
	if p := c.cost.merged.Load(); p != nil {
		return p
	}
	return &PriorCost
}

// LocalCost returns what this replica has learned by itself.
func (c *counters) LocalCost() Cost {
	if p := c.cost.local.Load(); p != nil {
		return *p
	}
	return PriorCost
}

// SetRemoteCost replaces what the other replicas have learned; its Samples fields
// are its weight against our own.
func (c *counters) SetRemoteCost(remote Cost) {
	c.cost.mu.Lock()
	defer c.cost.mu.Unlock()
	c.cost.shared.Store(&remote)
	c.cost.publish()
}

// SetPriorCost sets the constants to start from, such as those of the pool's
// other endpoints. What was learned is forgotten.
func (c *counters) SetPriorCost(prior Cost) {
	c.cost.mu.Lock()
	defer c.cost.mu.Unlock()
	c.cost.reset(prior)
	c.cost.publish()
}

func (c *costCell) reset(prior Cost) {
	prior.PrefillSeen, prior.DecodeSeen = 0, 0
	c.prior, c.prefill, c.decode = prior, fit.New(), fit.New()
	c.fleet, c.own, c.bias, c.doubt, c.idle = [2][3]float64{}, [2]float64{}, [2]bias{}, 0, prior.Idle
}

// restart begins one half again, from the pool's constants where they are known.
func (c *costCell) restart(half int) {
	c.begin()
	c.bias[half] = bias{}
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

// Queued is what was ahead of a request and its own work, at the moment when
// it was placed.
type Queued struct {
	Ahead Load // the endpoint's load before it
	Own   Work
	At    time.Time
}

// ObservePrefill learns from one first token that came ttft after q.
func (c *counters) ObservePrefill(q *Queued, ttft time.Duration) {
	cell := &c.cost
	cell.mu.Lock()
	defer cell.mu.Unlock()
	cell.begin()
	x, y, trust := prefillSample(&cell.prior, q, ttft)
	cell.prefill.Observe(x, y, trust)
	cell.publish()
}

func (c *costCell) begin() {
	if c.prior.PerToken == 0 {
		c.reset(PriorCost)
	}
}

// prefillSample returns the inputs of a prefill fit, in units of p.
func prefillSample(p *Cost, q *Queued, ttft time.Duration) (x [3]float64, y, trust float64) {
	tokens, pairs := float64(q.Own.New), q.Own.Pairs()
	y, trust = ttft.Seconds(), 1
	if q.Ahead.Waiting > 0 {
		tokens += float64(q.Ahead.Prefill)
		pairs += q.Ahead.Pairs
		if q.Ahead.LastFirst != 0 {
			y += max(float64(q.At.UnixNano()-q.Ahead.LastFirst)/1e9, 0)
		}
		trust = 0.4 // the order of a queue and what joins it later are guesses
	}
	return [3]float64{p.Base, p.PerToken * tokens, p.PerPair * pairs}, y, trust
}

// ObserveStep learns from the mean time between tokens of one answer while the
// endpoint was decoding sequences with context tokens in all.
func (c *counters) ObserveStep(sequences, context, seconds float64) {
	cell := &c.cost
	cell.mu.Lock()
	defer cell.mu.Unlock()
	cell.begin()
	cell.decode.Observe(stepSample(&cell.prior, sequences, context), seconds, 1)
	cell.publish()
}

// stepSample returns the inputs of a decode fit, in units of p.
func stepSample(p *Cost, sequences, context float64) [3]float64 {
	return [3]float64{p.Step, p.PerSeq * sequences, p.PerContext * context}
}

// publish makes what was learned visible, mixed with the other replicas'
// constants by the number of samples.
func (c *costCell) publish() {
	c.begin()
	a, d := c.lean(0, c.prior.prefill(c.prefill.A)), c.lean(1, c.prior.decode(c.decode.A))
	local := Cost{
		Base: a[0], PerToken: a[1], PerPair: a[2], PrefillSeen: c.prefill.N,
		Step: d[0], PerSeq: d[1], PerContext: d[2], DecodeSeen: c.decode.N, Uncertainty: c.doubt,
		Idle: cmp.Or(c.idle, 1),
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
	c.merged.Store(&merged)
}

// prefill and decode return c's constants times factors.
func (c *Cost) prefill(a [3]float64) [3]float64 {
	return [3]float64{c.Base * a[0], c.PerToken * a[1], c.PerPair * a[2]}
}

func (c *Cost) decode(a [3]float64) [3]float64 {
	return [3]float64{c.Step * a[0], c.PerSeq * a[1], c.PerContext * a[2]}
}

// lean moves constants towards the pool's as far as the endpoint's own are not
// to be believed.
func (c *costCell) lean(half int, own [3]float64) [3]float64 {
	if c.fleet[half][0] == 0 {
		return own
	}
	for j := range own {
		own[j] = c.fleet[half][j] + c.own[half]*(own[j]-c.fleet[half][j])
	}
	return own
}

// mix moves v towards other by their weights. Nonsense from a peer is ignored.
func mix(v *float64, other, weight, otherWeight float64) {
	if !(other > 0) || !(otherWeight > 0) || math.IsInf(other, 0) || math.IsInf(otherWeight, 0) {
		return
	}
	*v = (*v*weight + other*otherWeight) / (weight + otherWeight)
}

// MeanCost weighs constants by the samples behind them, prefill and decode apart.
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
