package core

import "time"

// Feed is a state of hints: delivered at most once, in the origin's order, and
// not repaired when lost.
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
		c: c, idx: c.register(name), id: len(c.feeds), name: name, version: version, sink: sink,
		flushAt: never, next: 1,
	}
	c.feeds = append(c.feeds, f)
	return f
}

// Send tells every peer. When more waits than Options.FeedBytes, payload is
// dropped and counted, and Send says false. payload belongs to the feed
// afterwards.
func (f *Feed) Send(payload []byte) bool {
	if len(f.c.peers) == 0 {
		return true
	}
	if f.bytes+len(payload)+4 > f.c.opt.FeedBytes {
		f.c.stats.FeedDropped++
		return false
	}
	f.bytes += len(payload) + 4
	f.queue = append(f.queue, payload)
	if f.flushAt == never {
		f.flushAt = f.c.now + f.c.opt.DeltaDelay
	}
	return true
}

func (f *Feed) tick() {
	if f.c.now < f.flushAt {
		return
	}
	f.flushAt = never
	m := feedMsg{Name: []byte(f.name), Version: f.version, Seq: f.next, Payloads: f.queue}
	f.next += uint64(len(f.queue))
	f.c.broadcast(Live, f.idx, m.append(f.c.frame(kindFeed)))
	clear(f.queue)
	f.queue, f.bytes = f.queue[:0], 0
}

func (c *Core) feed(name []byte) int {
	for i, f := range c.feeds {
		if f.name == string(name) {
			return i
		}
	}
	return -1
}

func (c *Core) onFeed(p *peer, r reader) (int, error) {
	m := &c.in.feed
	if err := m.decode(r); err != nil {
		return 0, err
	}
	i := c.feed(m.Name)
	if i < 0 {
		return c.unknownState(), nil
	}
	f, next := c.feeds[i], &p.feeds[i]
	if *next > 0 && m.Seq > *next {
		c.stats.FeedMissed += m.Seq - *next
	}
	for k, payload := range m.Payloads {
		seq := m.Seq + uint64(k)
		if seq < *next {
			continue
		}
		*next = seq + 1
		if err := f.sink.Deliver(p.m.ID, m.Version, payload); err != nil {
			c.refuse(RefusedPayload)
		}
	}
	return f.idx, nil
}
