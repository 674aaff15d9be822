package core

import (
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Direct is a state of messages to single members. They are delivered at most once, in any order.
// Nothing is repaired: senders that need an answer repeat their request.
type Direct struct {
	c       *Core
	idx     int
	name    string
	version uint64
	sink    DirectSink
}

// NewDirect registers a state of direct messages.
func (c *Core) NewDirect(name string, version uint64, sink DirectSink) *Direct {
	d := &Direct{c: c, idx: c.g.Register(name), name: name, version: version, sink: sink}
	c.directs = append(c.directs, d)
	return d
}

// Send queues payload for the member with that ID, behind live frames. It returns false if the
// member is not reachable or payload is larger than Options.PageBytes.
func (d *Direct) Send(to string, payload []byte) bool {
	p := d.c.byID[to]
	if p == nil || !p.Up || len(payload) > d.c.g.Opt.PageBytes {
		return false
	}
	m := group.Direct{Name: []byte(d.name), Version: d.version, Payload: payload}
	d.c.g.Send(p.Peer, group.Bulk, d.idx, m.Append(d.c.g.Frame(group.KindDirect)))
	return true
}

func (c *Core) onDirect(p *peer, r group.Reader) (int, error) {
	m := &c.in.direct
	if err := m.Decode(r); err != nil {
		return 0, err
	}
	for _, d := range c.directs {
		if d.name != string(m.Name) {
			continue
		}
		if err := d.sink.Deliver(p.ID, m.Version, m.Payload); err != nil {
			c.g.Refuse(group.RefusedPayload)
		}
		return d.idx, nil
	}
	return c.g.UnknownState(), nil
}
