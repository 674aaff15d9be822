package picker

import (
	"sync"
	"sync/atomic"
	"time"
)

// youngSamples is up to how many samples of its own an endpoint listens to the
// pool.
const youngSamples = 24

// fleetCost learns the constants of a pool's engines as if they were one.
// Endpoints with few samples of their own lean on it, so that a pool is learned
// as fast as one endpoint.
type fleetCost struct {
	mu      sync.Mutex
	prefill fit // in units of PriorCost
	decode  fit
	turn    atomic.Uint64
}

// learnPrefill teaches ep and the pool from one first token.
func (p *Pool) learnPrefill(ep *Endpoint, q *Queued, ttft time.Duration) {
	x, y, trust := prefillSample(&PriorCost, q, ttft)
	f := &p.fleet
	f.mu.Lock()
	f.prefill.begin()
	f.prefill.observe(x, y, trust)
	constants := PriorCost.prefill(f.prefill.a)
	f.mu.Unlock()
	ep.ObservePrefill(q, ttft)
	p.teach(0, constants)
}

// learnStep teaches ep and the pool from the time between tokens.
func (p *Pool) learnStep(ep *Endpoint, sequences, context, seconds float64) {
	f := &p.fleet
	f.mu.Lock()
	f.decode.begin()
	f.decode.observe(stepSample(&PriorCost, sequences, context), seconds, 1)
	constants := PriorCost.decode(f.decode.a)
	f.mu.Unlock()
	ep.ObserveStep(sequences, context, seconds)
	p.teach(1, constants)
}

// teach tells the pool's constants to endpoints with few samples of their own.
func (p *Pool) teach(half int, constants [3]float64) {
	endpoints := p.Snapshot().Endpoints
	if p.fleet.turn.Add(1)%uint64(1+len(endpoints)/64) != 0 { // big pools need not hear every word
		return
	}
	for _, ep := range endpoints {
		c := &ep.cost
		c.mu.Lock()
		if c.seen[half] < youngSamples {
			c.fleet[half] = constants
			c.publish()
		}
		c.mu.Unlock()
	}
}
