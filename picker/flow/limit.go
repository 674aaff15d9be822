package flow

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// verdict is what makeWay says of a request that came to a full queue.
type verdict uint8

const (
	refuse verdict = iota
	again          // one request made way
	accept         // what is over the limit waits at other replicas, which will take it back
)

// makeWay decides who goes when a band is full: a request of the flow that has most
// waiting, or the newcomer when that is its own flow.
func (c *Core) makeWay(b *band, f *flow) verdict {
	most, flows := c.largest(b)
	if most == nil || most == f || most.queued() <= f.queued()+1 {
		return refuse
	}
	if n := len(most.heap.items); n > 0 {
		c.leave(most.heap.items[n-1], rules.Displaced)
		return again
	}
	// The others are to keep no more than their part for flows that have less.
	limit := c.o.MaxRequests
	if b.MaxRequests > 0 && (limit == 0 || b.MaxRequests < limit) {
		limit = b.MaxRequests
	}
	if limit > 0 && (f.queued()+1)*int64(flows+1) > limit {
		return refuse
	}
	return accept
}

// largest is what Core.largest found at a time.
type largest struct {
	flow  *flow
	flows int
	at    int64
}

// queued returns how many requests of the flow wait, everywhere.
func (f *flow) queued() int64 { return int64(len(f.heap.items)) + f.others.Requests }

// largest returns the flow of a band that has most waiting, and how many wait. Of more than a
// few flows it is the one that had at most shareEvery ago: each request that comes to a full
// queue asks.
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

// trim gives up this replica's part of what other replicas' flows have pushed over
// the limits.
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
