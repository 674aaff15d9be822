package endpoint

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// fleetCost learns the constants of a group of engines as if they were one, and the variance
// between endpoints and between samples. A pool has two per base model: one for the endpoints that
// serve it, and one for prefill-only endpoints, whose first tokens include a KV transfer.
//
// Estimates from noisy samples differ even for identical engines: the endpoint with the lowest
// estimate would get all requests, and one with a high estimate would never be tried again. Each
// endpoint's own constants therefore count only with weight
//
//	spread² / (spread² + noise² / samples)
//
// and the pool's constants for the rest. An endpoint's samples decay with time (bias). Endpoints of a
// uniform pool get equal constants, a different engine is recognized after some samples, and one
// without requests for minutes is tried again.
type fleetCost struct {
	key     fleetKey
	mu      sync.Mutex
	prefill fit.Linear // in units of PoolOptions.Prior
	decode  fit.Linear
	noise   [2]variance  // of a sample around its endpoint's mean, in logarithms
	spread  [2]float64   // variance between endpoints in excess of noise
	turn    [2]uint64    // samples
	sampled [2]time.Time // time of the last sample
	taught  [2]time.Time // when the endpoints last received the constants
	idle    float64      // logarithm of Cost.Idle
}

const (
	biasLife    = 5 * time.Minute // after which an endpoint's samples no longer count
	onceLife    = time.Minute     // the same for a single slow sample
	longestLife = time.Hour       // the same for samples that slow retrials confirmed
	slowFrom    = 0.25            // logarithmic deviation from which an endpoint counts as slow

	confirmedLives = 3  // maximum life of confirmed samples in biasLife, if the pool has enough requests
	confirmedTurns = 50 // the pool's samples during that life

	biasFade    = 0.96 // decay of a sample's weight per later sample
	noiseFade   = 0.995
	noisePrior  = 0.1 // initial variance, with the weight of noiseWeight samples
	noiseWeight = 8
	spreadPrior = 0.005 // the same between endpoints, with the weight of one
	idleShare   = 0.1   // quantile of prefill times that counts as unobstructed
	idleStep    = 0.05  // step of the quantile's logarithm per quicker sample
	teachAlways = 16    // endpoints of a fleet per sample of delay
	teachMost   = 8     // maximum number of such delays in a row
	teachFirst  = 64    // initial samples that are published at once
	teachEvery  = 20 * time.Millisecond
	fadeEvery   = 10 * time.Second // interval of updates without samples
)

// variance is a decayed mean square.
type variance struct{ sum, n float64 }

func (v *variance) add(x, weight float64) {
	v.sum, v.n = v.sum*noiseFade+weight*x*x, v.n*noiseFade+weight
}

func (v *variance) value() float64 {
	return (v.sum + noiseWeight*noisePrior) / (v.n + noiseWeight)
}

// bias is the mean logarithmic deviation of an endpoint's samples from the pool's prediction.
//
// Slow samples keep an endpoint from the requests that would correct them, so their life depends on
// the evidence. A single slow sample may be a cold start: it expires after onceLife, and the next
// request is a retrial. Each slow retrial in a row extends the life, by time and by requests: an
// engine that stays slow gets about one of confirmedTurns requests. A fast retrial discards the
// earlier samples.
type bias struct {
	mean, n float64
	at      time.Time
	turn    uint64 // the pool's samples at that time
	once    bool   // there is one sample
	retried int    // slow retrials in a row
}

// slow reports whether the samples show a slow endpoint.
func (b *bias) slow() bool { return b.n > 0 && b.mean > slowFrom }

// samples returns the effective number of samples at a time. turn is the pool's number of samples.
func (b *bias) samples(now time.Time, turn uint64) float64 {
	if b.n == 0 {
		return 0
	}
	idle, life := now.Sub(b.at), biasLife
	if b.slow() && b.once && b.retried == 0 {
		life = onceLife
	}
	if b.slow() && b.retried > 0 {
		life *= time.Duration(min(b.retried, confirmedLives))
	}
	age := idle.Seconds() / life.Seconds()
	if b.slow() && b.retried > 0 {
		age = min(age, max(float64(turn-b.turn)/confirmedTurns, idle.Seconds()/longestLife.Seconds()))
	}
	return b.n * min(max(1-age, 0), 1)
}

// add adds a sample and returns its deviation from the previous mean. known is the result of renew.
func (b *bias) add(x, weight, known float64, now time.Time, turn uint64) (off float64) {
	n := known * biasFade
	off = x - b.mean
	b.once = b.n == 0 && weight <= 1 // latency counters show several answers
	b.n, b.at, b.turn = n+weight, now, turn
	b.mean += off * weight / b.n
	return off * math.Sqrt(n/(n+weight)) // corrects for the error of the mean
}

// renew returns the effective number of earlier samples for a new one. 0 means that none of them
// counts. A slow endpoint whose samples have lost half of their weight was idle: x is a retrial.
func (b *bias) renew(x float64, now time.Time, turn uint64) float64 {
	n := b.samples(now, turn)
	if !b.slow() || n > b.n/2 {
		return n
	}
	if x < b.mean/2 {
		b.retried = 0
		return 0
	}
	b.retried++
	return n
}

// fleets holds a pool's fleetCosts.
type fleets struct {
	mu  sync.RWMutex
	all map[fleetKey]*fleetCost
}

// fleetKey identifies endpoints that are assumed alike.
type fleetKey struct {
	base  string // model; "": unknown
	helps bool   // prefill-only
}

func (e *Endpoint) fleet() fleetKey { return fleetKey{e.Base(), e.Role&RoleDecode == 0} }

// fleetOf returns the fleetCost of a key. There are at most two per base model; prune removes the
// others.
func (p *Pool) fleetOf(k fleetKey) *fleetCost {
	p.fleets.mu.RLock()
	f := p.fleets.all[k]
	p.fleets.mu.RUnlock()
	if f != nil {
		return f
	}
	p.fleets.mu.Lock()
	defer p.fleets.mu.Unlock()
	if f = p.fleets.all[k]; f == nil {
		f = &fleetCost{key: k}
		if p.fleets.all == nil {
			p.fleets.all = map[fleetKey]*fleetCost{}
		}
		p.fleets.all[k] = f
	}
	return f
}

// prune removes models that are no longer the base of any endpoint.
func (p *Pool) prune() {
	s := p.Snapshot()
	p.fleets.mu.Lock()
	defer p.fleets.mu.Unlock()
	for k := range p.fleets.all {
		if len(s.ByBaseModel(k.base)) == 0 {
			delete(p.fleets.all, k)
		}
	}
}

// LearnPrefill trains the constants of ep and its fleet with one first token.
func (p *Pool) LearnPrefill(ep *Endpoint, q *Queued, ttft time.Duration) {
	ep.latency.seen(1)
	p.learnFirst(ep, q.first(ttft.Seconds()), q.At.Add(ttft))
}

// learnFirst trains the constants of ep and its fleet with a sample of first tokens.
func (p *Pool) learnFirst(ep *Endpoint, s firstSample, at time.Time) {
	f := p.fleetOf(ep.fleet())
	f.idles(&s)
	p.learn(f, 0, ep, sample{s.inputs(&p.opts.Prior), s.seconds, s.trust, at})
	ep.observeFirst(s)
}

// idles tracks the fastest tenth of sufficiently long prefills. Slower ones may include other
// requests that this replica does not track.
func (f *fleetCost) idles(s *firstSample) {
	x := s.inputs(&PriorCost)
	ratio := math.Log(s.seconds / (x[0] + x[1] + x[2]))
	if x[1]+x[2] < x[0] || math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle += idleStep * idleShare / (1 - idleShare); ratio < f.idle {
		f.idle -= idleStep / (1 - idleShare)
	}
}

// LearnStep trains the constants of ep and its fleet with the time between tokens.
func (p *Pool) LearnStep(ep *Endpoint, sequences, context, seconds float64, now time.Time) {
	p.learnStep(ep, sequences, context, seconds, 1, now)
}

// learnStep is LearnStep with a weight.
func (p *Pool) learnStep(ep *Endpoint, sequences, context, seconds, trust float64, now time.Time) {
	p.learn(p.fleetOf(ep.fleet()), 1, ep, sample{stepSample(&p.opts.Prior, sequences, context), seconds, trust, now})
	ep.observeStep(sequences, context, seconds, trust)
}

// sample is one sample of the pool's fit.
type sample struct {
	x        [3]float64
	y, trust float64
	at       time.Time
}

func (p *Pool) learn(f *fleetCost, half int, ep *Endpoint, s sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.fit(half)
	m.Begin()
	f.differ(half, ep, &s, m.A)
	m.Observe(s.x, s.y, s.trust)
	if f.due(half, len(p.Snapshot().ByBaseModel(f.key.base)), s.at) {
		p.teach(f, half, s.at)
		f.taught[half] = s.at
	}
	f.turn[half]++
	f.sampled[half] = s.at
}

// FadeCosts updates the constants of endpoints for the age of their samples. Each new sample does the
// same. A replica without requests calls FadeCosts because the other replicas use its constants.
func (p *Pool) FadeCosts() {
	now := p.opts.Now()
	p.fleets.mu.RLock()
	all := slices.Collect(maps.Values(p.fleets.all))
	p.fleets.mu.RUnlock()
	for _, f := range all {
		f.fade(p, now)
	}
}

// fade sends the constants to the endpoints, until all samples have expired.
func (f *fleetCost) fade(p *Pool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for half := range f.taught {
		if f.turn[half] > 0 && now.Sub(f.taught[half]) >= fadeEvery && f.taught[half].Sub(f.sampled[half]) <= longestLife {
			p.teach(f, half, now)
			f.taught[half] = now
		}
	}
}

// due reports whether to send the constants to n endpoints after a sample: after each of the first
// ones, then once per teachEvery, and after a number of samples. Large fleets count several samples
// as one.
func (f *fleetCost) due(half, n int, at time.Time) bool {
	turn, each := f.turn[half], uint64(1+n/teachAlways)
	if turn%each != 0 {
		return false
	}
	return turn < teachFirst || at.Sub(f.taught[half]) >= teachEvery || turn/each%uint64(min(max(n, 1), teachMost)) == 0
}

func (f *fleetCost) fit(half int) *fit.Linear {
	if half == 0 {
		return &f.prefill
	}
	return &f.decode
}

// differ records a sample's deviation from the pool's prediction.
func (f *fleetCost) differ(half int, ep *Endpoint, s *sample, a [3]float64) {
	x := math.Log(s.y / fit.Dot(a, s.x))
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return
	}
	limit := math.Log(fit.Clip)
	c := &ep.cost
	c.mu.Lock()
	x = min(max(x, -limit), limit)
	known := c.bias[half].renew(x, s.at, f.turn[half])
	first := known == 0
	if first {
		c.restart(half)
	}
	off := c.bias[half].add(x, s.trust, known, s.at, f.turn[half])
	c.mu.Unlock()
	if !first { // one sample does not show noise
		f.noise[half].add(off, s.trust)
	}
}

// teach sends the constants of f and the weight of their own ones to its endpoints. The caller
// holds f.mu.
func (p *Pool) teach(f *fleetCost, half int, now time.Time) {
	noise := f.noise[half].value()
	constants := p.opts.Prior.prefill(f.prefill.A)
	if half == 1 {
		constants = p.opts.Prior.decode(f.decode.A)
	}
	var n, sum, square, luck float64
	spread := f.spread[half]
	s := p.Snapshot()
	for _, i := range s.ByBaseModel(f.key.base) {
		ep := s.Endpoints[i]
		if ep.Role&RoleDecode == 0 != f.key.helps {
			continue
		}
		c := &ep.cost
		c.mu.Lock()
		b := &c.bias[half]
		samples := b.samples(now, f.turn[half])
		c.idle = math.Exp(f.idle)
		if half == 0 {
			c.noise = math.Sqrt(noise)
		}
		c.fleet[half], c.own[half] = constants, spread*samples/(spread*samples+noise)
		if half == 0 && samples > 0 {
			c.uncertainty = c.own[0] * math.Sqrt(noise/samples)
		}
		c.publish()
		c.mu.Unlock()
		if w := samples / (samples + 1); w > 0 { // endpoints without samples do not count
			n += w
			sum += w * b.mean
			square += w * b.mean * b.mean
			luck += w * noise / samples
		}
	}
	if n > 0 {
		between := max((square-sum*sum/n-luck)/n, 0)
		f.spread[half] = (between*n + spreadPrior) / (n + 1)
	}
}
