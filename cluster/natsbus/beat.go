package natsbus

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/internal/monotime"
)

// beat publishes heartbeats and removes silent members.
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
			continue // disconnected: silence proves nothing
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

// heartbeat returns this member's heartbeat. The caller holds b.mu.
func (b *Bus) heartbeat() heartbeat {
	return heartbeat{
		Seq: b.seq, Bye: b.leaving, Answers: true,
		Name: b.opt.Self.Name, Version: b.opt.Self.Version, Addr: b.conn.ConnectedAddr(), Zone: b.opt.Self.Zone,
	}
}

func (b *Bus) onBeat(msg *nats.Msg) {
	m, ok := b.opened(msg, maxUnproven)
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
	case h.Bye: // of a process that was never a member
		b.count(refusedUnproven)
	case !h.Answers:
		b.count(refusedRelease)
		b.old.logOnce(b.opt.Logger, m.From, h.Version)
	default:
		b.unproven(process{m.From, m.Boot})
		b.challenge(process{m.From, m.Boot}, challenge{})
	}
}

// beatTimeout is how long messages of an unproven process are not counted as refusals: a new member's
// messages may be in transit before its answer.
const beatTimeout = 2 * time.Second

// unproven counts a message of a process that is not proven alive, or was not when it sealed the
// message.
func (b *Bus) unproven(who process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	since, waits := b.waiting[who]
	switch {
	case waits && now.Sub(since) > beatTimeout:
		b.refused[refusedUnproven]++
	case !waits && len(b.waiting) >= maxOthers:
		clear(b.waiting)
		fallthrough
	case !waits:
		b.waiting[who] = now
	}
}

// hear handles the heartbeat of a proven process.
func (b *Bus) hear(m message, h heartbeat) {
	b.mu.Lock()
	_, known := b.roster.members[m.From]
	changed := b.roster.hear(m.From, m.Boot, h, time.Now())
	b.mu.Unlock()
	if !changed {
		return
	}
	b.announce(b.conn)
	if !known { // so that the new member sees this one immediately
		select {
		case b.beatNow <- struct{}{}:
		default:
		}
	}
}

// Refusal reasons specific to this bus.
const (
	refusedUnproven = "unproven" // sender has not proven that it is alive
	refusedRelease  = "release"  // sender's release cannot prove it
	refusedRepeated = "repeated" // duplicate message
)

// oldRelease warns about members of an older release, at most once a minute.
type oldRelease struct{ last atomic.Int64 }

func (o *oldRelease) logOnce(log *slog.Logger, id, version string) {
	now := monotime.Now().UnixNano()
	if last := o.last.Load(); now-last >= int64(time.Minute) && o.last.CompareAndSwap(last, now) {
		log.Warn("member of an older release cannot prove its liveness, so no state is shared with it", "member", id, "version", version)
	}
}
