package federation

import (
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// View returns the current view. It is the same pointer until something changes.
func (c *Core) View(now time.Time) *View {
	for _, p := range c.peers {
		c.expire(p, now)
	}
	if c.view != nil && !c.dirty {
		return c.view
	}
	c.version++
	c.dirty = false
	v := &View{Self: c.o.Self, Version: c.version, Secret: c.o.Secret, Also: c.also}
	for _, p := range c.peers {
		v.Clusters = append(v.Clusters, c.viewOf(p, now))
	}
	for _, o := range c.exports {
		e := ExportView{Pool: o.Pool, Draining: o.Draining, Omitted: o.omitted()}
		for _, p := range c.peers {
			e.Acks = append(e.Acks, p.ackOf(o.Pool, now))
		}
		v.Exports = append(v.Exports, e)
	}
	c.view = v
	return v
}

// state returns whether the peer is heard, or why not.
func (p *peer) state(now time.Time) (State, string) {
	switch {
	case now.Before(p.until):
		return Live, ""
	case len(p.Targets) == 0:
		return Silent, "its address is not configured"
	case p.why != "":
		return Silent, p.why
	case p.last.IsZero():
		return Silent, "nothing heard yet"
	}
	return Silent, "nothing heard"
}

func (c *Core) viewOf(p *peer, now time.Time) *Cluster {
	l := &p.listener
	state, reason := p.state(now)
	out := &Cluster{Name: p.Name, State: state, Reason: reason, Several: p.several, Replica: l.replica, RTT: l.rtt, LastMessage: l.last, Until: l.until,
		Served: l.served, ServedKnown: l.serves}
	for _, i := range l.pools {
		export := i.Export
		r := &Remote{Export: &export, Cluster: p.Name, State: state, Reason: reason, RTT: l.rtt, ReceivedAt: l.last, Until: l.until, FilterHead: i.head}
		r.FilterNote = i.loading(now, c.o.Lease)
		r.Filter, r.Secret = i.filter()
		if state == Live {
			r.State, r.Reason = i.state()
		}
		out.Pools = append(out.Pools, r)
	}
	return out
}

// state returns whether a pool of a live cluster is used, or why not.
func (i *imported) state() (State, string) {
	switch {
	case i.refused != "":
		return Refused, i.refused
	case i.Draining:
		return Draining, "withdrawn by its cluster"
	}
	return Live, ""
}

// filter returns the filter to use and its secret. It uses the previous secret's filter until the
// next one is complete.
func (i *imported) filter() (*filter.Filter, *filter.Secret) {
	if i.sink == nil {
		return nil, nil
	}
	if _, whole := i.sink.Complete(); !whole && i.before != nil {
		return i.before.Filter(), i.beforeSecret
	}
	return i.sink.Filter(), i.secret
}

// loading returns why the filter is incomplete or outdated. A filter is outdated if no missing
// changes arrived for a lease.
func (i *imported) loading(now time.Time, lease time.Duration) string {
	if i.refused != "" {
		return i.refused
	}
	if i.note != "" || i.sink == nil {
		return i.note
	}
	fault := i.fault
	if fault != "" {
		fault = ": " + fault
	}
	if _, whole := i.sink.Complete(); whole {
		if late := now.Sub(i.moved); late > lease && i.sink.Behind(i.head) {
			return fmt.Sprintf("not brought up to date for %v%s", late.Round(time.Second), fault)
		}
		return ""
	}
	percent, replaces := i.sink.Progress(i.head)
	if replaces {
		return fmt.Sprintf("that of before is used: %d%% of its successor is here%s", percent, fault)
	}
	return fmt.Sprintf("%d%% is here%s", percent, fault)
}

// verdicts returns our verdicts on the peer's exports.
func (c *Core) verdicts(p *peer, now time.Time) (list []verdict) {
	if state, _ := p.state(now); state != Live {
		return nil
	}
	for _, i := range p.pools {
		v := verdict{pool: i.Pool}
		v.state, v.reason = i.state()
		v.shown, v.why = c.shown(p.Name, i.Pool)
		list = append(list, v)
	}
	return list
}

// shown reports whether an object of this cluster shows a peer's export.
func (c *Core) shown(cluster string, pool PoolKey) (Shown, string) {
	if !c.shows {
		return NoObjects, ""
	}
	for _, i := range c.imports {
		switch {
		case i.Pool != pool:
		case slices.Contains(i.Clusters, cluster):
			return IsShown, i.Reason
		default:
			return NotShown, i.Reason
		}
	}
	return NotShown, ""
}

// ackOf returns the peer's state for one of our exports.
func (p *peer) ackOf(pool PoolKey, now time.Time) ExportAck {
	t := ExportAck{Cluster: p.Name}
	if !matches(p.Export, pool) {
		t.State, t.Reason = Refused, "not exported to it"
		return t
	}
	if t.State, t.Reason = p.state(now); t.State != Live {
		return t
	}
	for _, v := range p.acks {
		if v.pool == pool {
			t.State, t.Reason, t.Shown, t.ShownReason = v.state, v.reason, v.shown, v.why
			return t
		}
	}
	t.State, t.Reason = Silent, "it has not heard of it yet"
	return t
}

// Traffic is the cost of one pair of clusters for this process.
type Traffic struct {
	Cluster                     string
	Asked, Answered             uint64 // bytes received and sent for the peer's asks
	Received, Sent              uint64 // bytes received and sent for our asks
	Sessions                    int    // replicas of the peer that ask here
	Faults                      uint64 // rejected messages of the peer
	SourceBlocks, SourceOmitted int    // of the peer's filters
	SourceBytes                 int
}

// Traffic returns the counters of all pairs.
func (c *Core) Traffic() []Traffic {
	var list []Traffic
	for _, p := range c.peers {
		t := Traffic{
			Cluster: p.Name, Asked: p.speaker.in, Answered: p.speaker.out, Received: p.listener.in, Sent: p.listener.out,
			Sessions: len(p.sessions), Faults: p.faults,
		}
		for _, s := range p.sources {
			h := s.Head()
			t.SourceBlocks += int(h.Blocks)
			t.SourceOmitted += int(h.Omitted)
			t.SourceBytes += h.Bytes()
		}
		list = append(list, t)
	}
	return list
}
