package flow

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// flow returns a flow of a band. Clients choose the IDs, so their number is limited: beyond
// maxFlows, the flow idle longest is replaced. If none is idle, new IDs share sharedFlows flows.
//
// A band with strict fairness has one flow.
func (c *Core) flow(b *band, id string) *flow {
	if b.Fairness == rules.Strict {
		id = ""
	}
	key := flowKey{id, b.Priority}
	if f := c.flows[key]; f != nil {
		return f
	}
	if len(c.flows) >= maxFlows {
		if c.idle.first != nil {
			c.forget(c.idle.first)
		} else {
			key.id = "(shared " + strconv.FormatUint(xxhash.Sum64String(id)%sharedFlows, 10) + ")"
			if f := c.flows[key]; f != nil {
				return f
			}
		}
	}
	key.id = strings.Clone(key.id) // it points into a request's headers and outlives them
	f := &flow{id: key.id, band: b, at: -1, weight: 1, lastUse: c.now}
	if w := b.Weights[id]; w > 0 {
		f.weight = w
	}
	c.flows[key] = f
	c.idle.append(f)
	return f
}

// settle moves a flow without held or waiting permits to the idle list.
func (c *Core) settle(f *flow) {
	if f.own > 0 || len(f.heap.items) > 0 || f.others != (rules.Gauge{}) || f.ghost > 0 || f.idle {
		return
	}
	live := f.band.live
	last := len(live) - 1
	live[f.liveAt] = live[last]
	live[f.liveAt].liveAt = f.liveAt
	live[last] = nil
	f.band.live = live[:last]
	f.fair, f.target, f.deficit, f.parted = 0, 0, 0, 0
	c.idle.append(f)
}

// awake removes a flow from the idle list.
func (c *Core) awake(f *flow) {
	if !f.idle {
		return
	}
	c.idle.remove(f)
	f.liveAt = len(f.band.live)
	c.stale, c.urgent = true, c.urgent || f.liveAt < fewFlows
	f.band.live = append(f.band.live, f)
}

// expireFlows removes flows that were idle for long.
func (c *Core) expireFlows() {
	for f := c.idle.first; f != nil && c.now-f.lastUse > c.idleFlow; f = c.idle.first {
		c.forget(f)
	}
}

func (c *Core) forget(f *flow) {
	c.idle.remove(f)
	delete(c.flows, flowKey{f.id, f.band.Priority})
}

// flowList is a list of idle flows, idle longest first.
type flowList struct{ first, last *flow }

func (l *flowList) append(f *flow) {
	f.prev, f.next, f.idle = l.last, nil, true
	if l.last != nil {
		l.last.next = f
	} else {
		l.first = f
	}
	l.last = f
}

func (l *flowList) remove(f *flow) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		l.last = f.prev
	}
	f.prev, f.next, f.idle = nil, nil, false
}
