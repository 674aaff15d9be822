package natsbus

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/internal/steady"
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
	h := b.heartbeat()
	b.mu.Unlock()
	b.publishOne(b.subject(subjectBeat), h.append(nil))
}

// heartbeat is what this member says of itself. b.mu is held.
func (b *Bus) heartbeat() heartbeat {
	return heartbeat{
		Seq: b.seq, Bye: b.leaving, Answers: true,
		Name: b.opt.Self.Name, Version: b.opt.Self.Version, Addr: b.conn.ConnectedAddr(), Zone: b.opt.Self.Zone,
	}
}

func (b *Bus) onBeat(msg *nats.Msg) {
	m, ok := b.opened(msg, maxUnheard)
	if !ok || m.From == b.opt.Self.ID {
		return
	}
	h, err := parseHeartbeat(m.Content)
	if err != nil {
		b.count("frame")
		return
	}
	switch {
	case !m.Unproven:
		b.hear(m, h)
	case h.Bye: // of somebody who was never there
		b.count(refusedUnproven)
	case !h.Answers:
		b.count(refusedRelease)
		b.old.say(b.opt.Logger, m.From, h.Version)
	default:
		b.unproven(process{m.From, m.Boot})
		b.challenge(process{m.From, m.Boot}, challenge{})
	}
}

// patience is for how long messages of somebody who has not answered yet are nothing
// special: those of a newcomer are under way already.
const patience = 2 * time.Second

// unproven counts a message of somebody who has not shown that he lives, or had not when
// he sealed it.
func (b *Bus) unproven(who process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	since, waits := b.waiting[who]
	switch {
	case waits && now.Sub(since) > patience:
		b.refused[refusedUnproven]++
	case !waits && len(b.waiting) >= maxOthers:
		clear(b.waiting)
		fallthrough
	case !waits:
		b.waiting[who] = now
	}
}

// hear takes the heartbeat of a member that lives.
func (b *Bus) hear(m message, h heartbeat) {
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

// Reasons for refusals that only this bus knows.
const (
	refusedUnproven = "unproven" // a sender that has not answered yet whether it lives
	refusedRelease  = "release"  // a sender of a release that cannot answer that
	refusedRepeated = "repeated" // a message that was taken before
)

// oldRelease warns of members of a release before, at most once a minute.
type oldRelease struct{ last atomic.Int64 }

func (o *oldRelease) say(log *slog.Logger, id, version string) {
	now := steady.Now().UnixNano()
	if last := o.last.Load(); now-last >= int64(time.Minute) && o.last.CompareAndSwap(last, now) {
		log.Warn("a member of an older release cannot prove that it is alive: nothing is shared with it", "member", id, "version", version)
	}
}
