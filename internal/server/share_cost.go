package server

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// costEvery is how often learned constants are sent.
const costEvery = time.Second

// costShare shares what each replica has learned of the engines' speed. The
// others' constants are averaged by the samples behind them. It is safe for
// concurrent use.
type costShare struct {
	s     *Server
	gauge *cluster.Gauge
	mu    sync.Mutex
	costs map[string]map[string]endpoint.Cost // by endpoint address, by origin
}

func newCostShare(s *Server) *costShare {
	c := &costShare{s: s, costs: map[string]map[string]endpoint.Cost{}}
	c.gauge = s.node.Gauge(stateCost, stateVersion, c)
	return c
}

func (c *costShare) run(ctx context.Context) {
	tick := time.NewTicker(costEvery)
	defer tick.Stop()
	sent := map[string]endpoint.Cost{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.tell(sent)
	}
}

// tell sends what is not in sent, and withdraws what was said of endpoints that
// are gone: a gauge holds so much and no more.
func (c *costShare) tell(sent map[string]endpoint.Cost) {
	pool := c.s.pool.Snapshot()
	set := func(address string, value []byte) {
		if err := c.gauge.Set(address, value); err != nil {
			c.s.o.Log.Warn("learned constants not shared", "endpoint", address, "error", err)
		}
	}
	for address := range sent {
		if pool.Lookup(address) == nil {
			delete(sent, address)
			set(address, nil)
		}
	}
	for _, ep := range pool.Endpoints {
		cost := ep.LocalCost()
		if cost.PrefillSeen+cost.DecodeSeen == 0 || told(sent[ep.Address], cost) {
			continue
		}
		sent[ep.Address] = cost
		set(ep.Address, appendCost(nil, &cost))
	}
}

// told reports whether the others know enough who know was: constants within 2%
// and samples within a fifth of what they are.
func told(was, is endpoint.Cost) bool {
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
	w, c := wire{b: b}, endpoint.Cost{}
	for _, f := range costFields(&c) {
		if *f = w.float(); *f < 0 {
			w.bad = true
		}
	}
	if w.bad {
		return endpoint.Cost{}, errWire
	}
	return c, nil
}

// Merge implements cluster.GaugeSink.
func (c *costShare) Merge(origin string, _ uint64, address string, value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value == nil {
		if delete(c.costs[address], origin); len(c.costs[address]) == 0 {
			delete(c.costs, address)
		}
		return nil
	}
	cost, err := readCost(value)
	if err != nil {
		return err
	}
	if c.costs[address] == nil {
		c.costs[address] = map[string]endpoint.Cost{}
	}
	c.costs[address][origin] = cost
	if ep := c.s.pool.Snapshot().Lookup(address); ep != nil {
		ep.SetRemoteCost(average(c.costs[address]))
	}
	return nil
}

// joined applies what is known of endpoints that the pool has just got.
func (c *costShare) joined(eps []*endpoint.Endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ep := range eps {
		if by := c.costs[ep.Address]; len(by) > 0 {
			ep.SetRemoteCost(average(by))
		}
	}
}

// Drop implements cluster.GaugeSink. What a replica learned stays true when it is gone, so only its weight goes.
func (c *costShare) Drop(origin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, by := range c.costs {
		if delete(by, origin); len(by) == 0 {
			delete(c.costs, address)
		}
	}
}

// average weighs constants by the samples behind them, prefill and decode apart.
func average(by map[string]endpoint.Cost) endpoint.Cost {
	var sum endpoint.Cost
	for _, c := range by {
		p, d := c.PrefillSeen, c.DecodeSeen
		sum.Base, sum.PerToken, sum.PerPair = sum.Base+p*c.Base, sum.PerToken+p*c.PerToken, sum.PerPair+p*c.PerPair
		sum.Step, sum.PerSeq, sum.PerContext = sum.Step+d*c.Step, sum.PerSeq+d*c.PerSeq, sum.PerContext+d*c.PerContext
		sum.PrefillSeen, sum.DecodeSeen = sum.PrefillSeen+p, sum.DecodeSeen+d
	}
	if p := sum.PrefillSeen; p > 0 {
		sum.Base, sum.PerToken, sum.PerPair = sum.Base/p, sum.PerToken/p, sum.PerPair/p
	}
	if d := sum.DecodeSeen; d > 0 {
		sum.Step, sum.PerSeq, sum.PerContext = sum.Step/d, sum.PerSeq/d, sum.PerContext/d
	}
	return sum
}
