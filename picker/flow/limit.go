package flow

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// verdict is makeWay's decision on a request at a full queue.
type verdict uint8

const (
	refuse verdict = iota
	again          // one request was displaced; check again
	accept         // the excess waits at other replicas, which will displace it
)

// makeWay decides which request leaves a full band: one of the flow with the most waiting requests,
// or the new one if that is its own flow.
func (c *Core) makeWay(b *band, f *flow) verdict {
	most, flows := c.largest(b)
	if most == nil || most == f || most.queued() <= f.queued()+1 {
		return refuse
	}
	if n := len(most.heap.items); n > 0 {
		c.leave(most.heap.items[n-1], rules.Displaced)
		return again
	}
	// Limit the excess that other replicas must displace for flows with fewer requests.
	limit := c.o.MaxRequests
	if b.MaxRequests > 0 && (limit == 0 || b.MaxRequests < limit) {
		limit = b.MaxRequests
	}
	if limit > 0 && (f.queued()+1)*int64(flows+1) > limit {
		return refuse
	}
	return accept
}

// largest is a cached result of Core.largest.
type largest struct {
	flow  *flow
	flows int
	at    int64
}

// queued returns the flow's waiting requests at all replicas.
func (f *flow) queued() int64 { return int64(len(f.heap.items)) + f.others.Requests }

// largest returns the flow of a band with the most waiting requests, and the number of waiting
// flows. With many flows the result may be up to shareEvery old, since it is computed for each
// request at a full queue.
func (c *Core) largest(b *band) (most *flow, flows int) {
	if m := &b.most; len(b.live) > fewFlows && m.at > 0 && c.now-m.at < shareEvery && (m.flow == nil || m.flow.queued() > 0) {
		return m.flow, m.flows
	}
	defer func() { b.most = largest{most, flows, c.now} }()
	for _, f := range b.live {
		n := f.queued()
		if n == 0 {
			continue
		}
		if flows++; most == nil || n > most.queued() {
			most = f
		}
	}
	return most, flows
}

// trim displaces this replica's part of the excess over the limits that other replicas' flows have
// caused.
func (c *Core) trim() {
	for _, b := range c.bands {
		limit, have := b.MaxRequests, int64(b.waiting)+b.others.requests
		if over := int64(c.waiting) + c.fleet.all.requests - c.o.MaxRequests; c.o.MaxRequests > 0 && over > have-limit {
			limit = have - over
		}
		if limit <= 0 || have <= limit {
			continue
		}
		most, _ := c.largest(b)
		if most == nil || len(most.heap.items) == 0 {
			continue
		}
		part := float64(have-limit) * float64(len(most.heap.items)) / float64(most.queued())
		for range min(int(math.Ceil(part)), len(most.heap.items)) {
			c.leave(most.heap.items[len(most.heap.items)-1], rules.Displaced)
		}
	}
}
