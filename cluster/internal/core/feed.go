package core

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Feed is a state of hints. They are delivered at most once, in the origin's order, and are not
// repaired when lost.
type Feed struct {
	c       *Core
	id, idx int
	name    string
	version uint64
	sink    FeedSink

	next    uint64 // sequence number of the next payload
	queue   [][]byte
	bytes   int
	flushAt time.Duration
}

// NewFeed registers a feed.
func (c *Core) NewFeed(name string, version uint64, sink FeedSink) *Feed {
	f := &Feed{
		c: c, idx: c.g.Register(name), id: len(c.feeds), name: name, version: version, sink: sink,
		flushAt: group.Never, next: 1,
	}
	c.feeds = append(c.feeds, f)
	return f
}

// Send queues payload for every peer. If the queue exceeds Options.FeedBytes, Send drops and counts
// the payload and returns false. payload belongs to the feed afterwards.
func (f *Feed) Send(payload []byte) bool {
	if len(f.c.peers) == 0 {
		return true
	}
	if f.bytes+len(payload)+4 > f.c.g.Opt.FeedBytes {
		f.c.g.Stats.FeedDropped++
		return false
	}
	f.bytes += len(payload) + 4
	f.queue = append(f.queue, payload)
	if f.flushAt == group.Never {
		f.flushAt = f.c.paced(f.c.g.Opt.DeltaDelay)
	}
	return true
}

// flush sends the queue, if there is one.
func (f *Feed) flush() {
	if f.flushAt == group.Never {
		return
	}
	f.flushAt = group.Never
	m := group.Feed{Name: []byte(f.name), Version: f.version, Seq: f.next, Payloads: f.queue}
	f.next += uint64(len(f.queue))
	f.c.g.Broadcast(group.Live, f.idx, m.Append(f.c.g.Frame(group.KindFeed)))
	clear(f.queue)
	f.queue, f.bytes = f.queue[:0], 0
}

func (c *Core) feed(name []byte) *Feed {
	for _, f := range c.feeds {
		if f.name == string(name) {
			return f
		}
	}
	return nil
}

func (c *Core) onFeed(p *peer, r group.Reader) (int, error) {
	m := &c.in.feed
	if err := m.Decode(r); err != nil {
		return 0, err
	}
	f := c.feed(m.Name)
	if f == nil {
		return c.g.UnknownState(), nil
	}
	next := &p.feeds[f.id]
	if *next > 0 && m.Seq > *next {
		c.g.Stats.FeedMissed += m.Seq - *next
	}
	for k, payload := range m.Payloads {
		seq := m.Seq + uint64(k)
		if seq < *next {
			continue
		}
		*next = seq + 1
		if err := f.sink.Deliver(p.ID, m.Version, payload); err != nil {
			c.g.Refuse(group.RefusedPayload)
		}
	}
	return f.idx, nil
}
