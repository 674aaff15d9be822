package facts

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// CostEvery is the interval at which learned constants are sent.
const CostEvery = time.Second

// CostOptions configure a Costs. All fields are required.
type CostOptions struct {
	Group Group
	Pool  *endpoint.Pool
	Log   *slog.Logger
}

// Costs shares the engine speeds that each replica has learned. The other replicas' constants are
// averaged, weighted by their samples. It is safe for concurrent use, except that Publish must not
// be called concurrently.
type Costs struct {
	o    CostOptions
	set  SetFunc
	sent map[string]endpoint.Cost // owned by Publish

	mu    sync.Mutex
	costs Origins[endpoint.Cost]
}

// NewCosts returns a Costs. It sends nothing before Publish or Run.
func NewCosts(o CostOptions) *Costs {
	c := &Costs{o: o, sent: map[string]endpoint.Cost{}}
	c.set = o.Group.Gauge(stateCost, StateVersion, c)
	return c
}

// Run calls Publish every CostEvery until ctx ends. Constants whose samples have expired are published
// even if this replica has no requests.
func (c *Costs) Run(ctx context.Context) {
	tick := time.NewTimer(ticks.Until(CostEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.o.Pool.FadeCosts()
		c.Publish()
		tick.Reset(ticks.Until(CostEvery))
	}
}

// Publish sends constants that differ from the last sent ones. It withdraws constants of removed
// endpoints, because a gauge has a limited size.
func (c *Costs) Publish() {
	pool := c.o.Pool.Snapshot()
	set := func(address string, value []byte) {
		if err := c.set(address, value); err != nil {
			c.o.Log.Warn("learned constants not shared", "endpoint", address, "error", err)
		}
	}
	for address := range c.sent {
		if pool.Known(address) == nil {
			delete(c.sent, address)
			set(address, nil)
		}
	}
	for _, ep := range pool.Endpoints {
		cost := ep.LocalCost()
		if cost.PrefillSeen+cost.DecodeSeen == 0 { // no samples yet, or none any more: another engine
			if _, said := c.sent[ep.Address]; said {
				delete(c.sent, ep.Address)
				set(ep.Address, nil)
			}
			continue
		}
		if nearlyEqual(c.sent[ep.Address], cost) {
			continue
		}
		c.sent[ep.Address] = cost
		set(ep.Address, appendCost(nil, &cost))
	}
}

// nearlyEqual reports whether constants are close to those sent before: within 2%, and their sample counts
// within a fifth.
func nearlyEqual(was, is endpoint.Cost) bool {
	a, b := costFields(&was), costFields(&is)
	for i := range a {
		within := .02
		if a[i] == &was.PrefillSeen || a[i] == &was.DecodeSeen {
			within = .2
		}
		if math.Abs(*a[i]-*b[i]) > within**b[i] {
			return false
		}
	}
	return true
}

func costFields(c *endpoint.Cost) [8]*float64 {
	return [8]*float64{&c.Base, &c.PerToken, &c.PerPair, &c.Step, &c.PerSeq, &c.PerContext, &c.PrefillSeen, &c.DecodeSeen}
}

func appendCost(b []byte, c *endpoint.Cost) []byte {
	for _, f := range costFields(c) {
		b = appendFloat(b, *f)
	}
	return b
}

func readCost(b []byte) (endpoint.Cost, error) {
	r, c := varint.Reader{B: b}, endpoint.Cost{}
	for _, f := range costFields(&c) {
		if *f = r.Float(); *f < 0 {
			r.Fail(varint.ErrValue)
		}
	}
	if r.Err != nil {
		return endpoint.Cost{}, errWire
	}
	return c, nil
}

// Merge implements cluster.GaugeSink.
func (c *Costs) Merge(origin string, _ uint64, address string, value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value == nil { // its samples are of an earlier engine
		c.costs.Delete(address, origin)
		c.apply(address, endpoint.Cost{})
		return nil
	}
	cost, err := readCost(value)
	if err != nil {
		return err
	}
	c.costs.Set(address, origin, cost)
	c.apply(address, endpoint.Cost{})
	return nil
}

// apply sends the average of the other replicas' constants to an endpoint, or last if there are
// none. The caller holds c.mu.
func (c *Costs) apply(address string, last endpoint.Cost) {
	if len(c.costs.Of(address)) > 0 {
		last = endpoint.MeanCost(c.costs.Values(address))
	}
	if ep := c.o.Pool.Snapshot().Known(address); ep != nil {
		ep.SetRemoteCost(last)
	}
}

// Joined applies the known constants to endpoints that joined the pool.
func (c *Costs) Joined(eps []*endpoint.Endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ep := range eps {
		if len(c.costs.Of(ep.Address)) > 0 {
			ep.SetRemoteCost(endpoint.MeanCost(c.costs.Values(ep.Address)))
		}
	}
}

// departedSamples is the weight of constants whose replicas have all departed, in samples. Nobody
// corrects them any more, so this replica's own samples soon outweigh them.
const departedSamples = 2

// Drop implements cluster.GaugeSink. The constants of the last other replica stay with a small
// weight, because they are better than none.
func (c *Costs) Drop(origin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, address := range c.costs.KeysOf(origin) {
		last := endpoint.MeanCost(c.costs.Values(address))
		last.PrefillSeen, last.DecodeSeen = min(last.PrefillSeen, departedSamples), min(last.DecodeSeen, departedSamples)
		c.costs.Delete(address, origin)
		c.apply(address, last)
	}
}

// Endpoints returns the number of endpoints for which other replicas have sent constants.
func (c *Costs) Endpoints() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.costs.Len()
}
