package natsbus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// beat publishes heartbeats and removes who is silent.
func (b *Bus) beat(ctx context.Context) {
	t := time.NewTicker(b.opt.Heartbeat)
	defer t.Stop()
	for {
		b.sendBeat(false)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.beatNow:
		}
		if !b.conn.IsConnected() {
			continue // nobody can be heard, which says nothing about them
		}
		b.mu.Lock()
		changed := b.roster.expire(time.Now().Add(-silent * b.opt.Heartbeat))
		b.mu.Unlock()
		if changed {
			b.announce(b.conn)
		}
	}
}

func (b *Bus) sendBeat(bye bool) {
	b.mu.Lock()
	if b.leaving && !bye {
		b.mu.Unlock()
		return
	}
	b.leaving = bye
	b.seq++
	h := heartbeat{Seq: b.seq, Bye: bye, Name: b.opt.Self.Name, Version: b.opt.Self.Version, Addr: b.conn.ConnectedAddr()}
	b.mu.Unlock()
	b.publishOne(b.subject(subjectBeat), h.append(nil))
}

func (b *Bus) onBeat(msg *nats.Msg) {
	m, ok := b.opened(msg)
	if !ok {
		return
	}
	h, err := parseHeartbeat(m.Content)
	if err != nil {
		b.count("frame")
		return
	}
	b.mu.Lock()
	_, known := b.roster.members[m.From]
	changed := b.roster.hear(m.From, m.Boot, h, time.Now())
	b.mu.Unlock()
	if !changed {
		return
	}
	b.announce(b.conn)
	if !known { // let a newcomer see us at once
		select {
		case b.beatNow <- struct{}{}:
		default:
		}
	}
}
