package logs

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// take merges one delta of any incarnation into s.
func (l *Log) take(s *source, d Delta) Verdict {
	if d.Inc > s.pos.Inc {
		l.adopt(s, d.Inc)
	}
	return l.ingest(l.g.Now, s, d)
}

// ingest merges one delta of the current or an older incarnation. It applies the next delta in
// sequence, ignores one already covered, and buffers one that arrives early. It and its callees
// need only the lock of s.
func (l *Log) ingest(now time.Duration, s *source, d Delta) Verdict {
	switch {
	case d.Inc < s.pos.Inc:
		s.counts.StaleDeltas++
		return Stale
	case d.Last < s.pos.Next:
		return Already
	case d.First < s.pos.Next:
		s.counts.Straddled++
		s.todo |= todoCheck
		return Gap
	case d.First > s.pos.Next:
		if !s.pend.add(d, max(s.room, l.g.Opt.PendingBytes)) {
			s.counts.PendingDropped++
		}
		s.todo |= todoCheck
		return Gap
	}
	v := l.apply(now, s, d)
	l.drainPending(now, s)
	return v
}

// apply applies the next delta.
func (l *Log) apply(now time.Duration, s *source, d Delta) Verdict {
	next := d.Last + 1
	if err := l.store.Apply(d); err != nil {
		s.counts.Broken++
		s.pos.Lost += next - s.pos.Next
		s.pos.Next = next
		l.touch(now, s)
		s.todo |= todoCheck
		if errors.Is(err, ErrUnsure) {
			l.retain(s, d) // it still belongs to the deltas that follow a snapshot
		} else {
			s.ring.clear()
		}
		return Broken
	}
	s.pos.Next = next
	l.touch(now, s)
	l.retain(s, d)
	return Applied
}

// retain keeps d for requests and queues it for followers.
func (l *Log) retain(s *source, d Delta) {
	if len(d.Payload) > MaxPayload {
		s.ring.clear()
		s.todo |= todoAnnounce
		return
	}
	// A payload from a peer shares a frame with many others, which it would keep in memory.
	e := group.Entry{First: d.First, Last: d.Last, Payload: bytes.Clone(d.Payload)}
	s.ring.push(ringEntry{Entry: e, digest: s.digest}, l.ringRoom(s), l.g.Opt.RingDeltas)
	if !d.Local || l.g.Opt.Standalone {
		return
	}
	if s.pushInc != d.Inc {
		s.push, s.pushLen, s.pushInc = s.push[:0], 0, d.Inc
	}
	if s.pushLen+len(d.Payload) > l.g.Opt.PendingBytes {
		s.counts.PushDropped++
		s.todo |= todoAnnounce
		return
	}
	s.push = append(s.push, e)
	s.pushLen += len(d.Payload) + 8
	s.todo |= todoPush
}

// The least ring size of a source, and the size of an entry in a snapshot.
const (
	ringLeast  = 64 << 10
	entryBytes = 24
)

// ringRoom is the ring size of s: no more than a snapshot takes, which would serve as well.
func (l *Log) ringRoom(s *source) int {
	return min(l.g.Opt.RingBytes, max(ringLeast, entryBytes*int(min(s.digest.Count, 1<<32))))
}

// touch records a change of the position or content of s.
func (l *Log) touch(now time.Duration, s *source) {
	s.moved = now
	s.moves++
	s.digest = l.store.Digest(s.name)
}

// adopt starts a new incarnation of s. The engine restarted, so the old content is void, and an
// empty cache is its exact initial state.
func (l *Log) adopt(s *source, inc uint64) {
	l.store.Reset(s.name, inc)
	s.pos = Position{Inc: inc}
	s.ring.clear()
	s.pend.dropBefore(inc, 0)
	s.push, s.pushLen = s.push[:0], 0
	s.differs, s.healAt, s.behind = 0, 0, 0
	l.dropSnaps(s)
	if s.load != nil {
		l.endLoad(s)
	}
	l.touch(l.g.Now, s)
	l.watchSource(s)
}

// drainStep is how many bytes of pending deltas are applied in one step.
const drainStep = 64 << 10

// drainPending applies the pending deltas that are next in sequence. If there are many, the rest
// follows soon.
func (l *Log) drainPending(now time.Duration, s *source) {
	s.pend.dropBefore(s.pos.Inc, s.pos.Next)
	for size := 0; size < drainStep; {
		d, ok := s.pend.take(s.pos.Next)
		if !ok {
			break
		}
		size += len(d.Payload) + entryOverhead
		l.apply(now, s, d)
		s.pend.dropBefore(s.pos.Inc, s.pos.Next)
	}
	if s.pend.len() == 0 {
		return
	}
	s.todo |= todoCheck
	if s.pend.startsAt(s.pos.Next) {
		s.todo |= todoDrain
	}
}

// Deliver merges the deltas that need only the locks of their sources, and marks their groups in m
// as done. Safe for concurrent use.
func (l *Log) Deliver(now time.Duration, m *group.Deltas) (due time.Duration) {
	due = group.Never
	m.Each(func(i int, g *group.DeltaRun) {
		s := l.table.Load().find(g)
		if s == nil {
			return
		}
		s.lock()
		defer s.unlock()
		if s.gone || !s.completes(g) || g.Inc > s.pos.Inc {
			return
		}
		l.ingestGroup(now, s, g)
		m.Done[i] = true
		due = min(due, l.remind(now, s))
	})
	return due
}

func (l *Log) ingestGroup(now time.Duration, s *source, g *group.DeltaRun) {
	for _, e := range g.Entries {
		s.counts.Merged[l.ingest(now, s, Delta{
			Source: s.name, Inc: g.Inc, First: e.First, Last: e.Last, Payload: e.Payload,
		})]++
	}
}

// mergeGroup merges deltas from p unless that is done. It records that p has them, and p's content
// if there is a check.
func (l *Log) mergeGroup(p *group.Peer, s *source, g *group.DeltaRun, done bool, check *group.Check) {
	if !done {
		if g.Inc > s.pos.Inc && len(g.Entries) > 0 {
			l.adopt(s, g.Inc)
		}
		l.ingestGroup(l.g.Now, s, g)
	}
	if len(g.Entries) == 0 {
		return
	}
	cl := &l.of(p).claims[s.slot]
	at := Position{Inc: g.Inc, Next: g.Entries[len(g.Entries)-1].Last + 1, Lost: cl.pos.Lost}
	if cl.pos.Inc != g.Inc {
		at.Lost = 0
	}
	if at.Inc < cl.pos.Inc || (at.Inc == cl.pos.Inc && at.Next <= cl.pos.Next) {
		return
	}
	s.word.claimed(p, cl.pos, at)
	cl.pos, cl.hasDigest = at, false
	if check != nil {
		cl.pos.Lost = 0
		cl.sum, cl.hasDigest, cl.folded = uint64(check.Sum), true, true
		l.weigh(p, s, cl)
	}
	l.judge(p, s)
}

// flush sends the deltas appended since the last flush to the peers that do not read the source
// themselves.
func (l *Log) flush() {
	l.flushAt = group.Never
	var all []outgoing
	per := make([][]outgoing, len(l.g.Peers))
	for _, s := range l.pushing {
		l.enter(s)
		publishes := l.publishes(s)
		switch {
		case !publishes:
			if s.published { // a member that becomes the publisher may not have sent these
				l.announce(s)
			}
		case len(s.push) == 0:
		case l.followedByAll(s):
			all = append(all, l.checked(l.deltasFor(nil, s)))
		default:
			for i, p := range l.g.Peers {
				if l.follows(p, s) && l.readsAll(p, s.push) {
					per[i] = append(per[i], l.deltasFor(p, s))
				} else {
					l.announceToo(p, s)
				}
			}
		}
		s.published = publishes
		s.push, s.pushLen, s.pushing = nil, 0, false
		l.leave(s)
	}
	l.pushing = l.pushing[:0]
	l.sendGroups(all, nil)
	for i, p := range l.g.Peers {
		l.sendGroups(per[i], p)
	}
}

// announceToo queues the position of s for p, which is not sent its deltas.
func (l *Log) announceToo(p *group.Peer, s *source) {
	switch {
	case l.tipped(p, s):
		s.tip = true
		l.nextTips = min(l.nextTips, l.g.Now+l.g.Opt.Digest)
	case p.Up:
		l.announce(s)
	}
}

// follows reports whether p should be sent the deltas of s.
func (l *Log) follows(p *group.Peer, s *source) bool {
	return p.Link && (!l.opt.Owned || !p.Up || !l.of(p).claims[s.slot].reading)
}

// followedByAll reports whether the deltas of s can be broadcast. Unreachable peers do not count:
// they get a full digest once they are reachable.
func (l *Log) followedByAll(s *source) bool {
	return !slices.ContainsFunc(l.g.Peers, func(p *group.Peer) bool { return p.Link && !l.follows(p, s) || !l.readsAll(p, s.push) })
}

func (l *Log) readsAll(p *group.Peer, entries []group.Entry) bool {
	return !slices.ContainsFunc(entries, func(e group.Entry) bool { return !l.reads(p, e.Payload) })
}

// outgoing is a run of a source's deltas to send.
type outgoing struct {
	group.DeltaRun
	s     *source
	check bool
	sum   uint32
}

// checked adds a check of the source's content to broadcast deltas if one is due.
func (l *Log) checked(g outgoing) outgoing {
	if s := g.s; l.checkDue(s) {
		g.check, g.sum = true, s.digest.Fold()
		s.lastClaim, s.lastClaimAt = s.pos, l.g.Now
	}
	return g
}

// sendGroups sends groups in frames of bounded size, to p or, if p is nil, to all peers.
func (l *Log) sendGroups(groups []outgoing, p *group.Peer) {
	for len(groups) > 0 {
		var body []byte
		var named []*source
		var checks []group.Check
		n := 0
		for n < len(groups) && len(body) < l.g.Opt.PageBytes {
			body = groups[n].Append(body)
			named = append(named, groups[n].s)
			if groups[n].check {
				checks = append(checks, group.Check{Group: n, Sum: groups[n].sum})
			}
			n++
		}
		b := append(group.DeltasHead(l.g.Frame(group.KindDelta), l.name, l.version, n), body...)
		b = group.AppendChecks(l.number(p, named).Append(b), checks)
		if p == nil {
			l.spread(b)
		} else {
			l.g.Send(p, group.Live, l.idx, b)
		}
		groups = groups[n:]
	}
}
