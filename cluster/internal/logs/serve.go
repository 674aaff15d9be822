package logs

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// answerRange sends the requested deltas. If they are gone, it sends a snapshot that is better than
// the requester's position, or a refusal if there is none.
func (l *Log) answerRange(p *group.Peer, s *source, m *group.Ask) {
	reply := group.RangeReply{Name: m.Name, Version: l.version, ID: m.ID, Status: group.StatusGone}
	reply.Deltas.Source = m.Source
	if s == nil || !s.pos.Known() || m.At.Inc > s.pos.Inc {
		l.sendRange(p, &reply)
		return
	}
	at := m.At
	if at.Inc < s.pos.Inc {
		at = Position{Inc: s.pos.Inc}
	}
	reply.Pos, reply.Deltas.Inc = s.pos, s.pos.Inc
	entries, ok := s.ring.from(at.Next)
	ok = ok && l.reads(p, entries[0].Payload)
	switch {
	case at.Next == s.pos.Next:
		reply.Status = group.StatusOK
	case ok:
		reply.Status = group.StatusOK
		size := 0
		for _, e := range entries {
			if size > 0 && (size+len(e.Payload) > l.g.Opt.PageBytes || !l.reads(p, e.Payload)) {
				break
			}
			size += len(e.Payload) + 4
			reply.Deltas.Entries = append(reply.Deltas.Entries, e.Entry)
		}
	case at.Next < s.pos.Next && (m.Force || s.pos.Lost <= at.Lost):
		m.At, m.Snap, m.Page = at, Position{}, 0
		l.answerPage(p, s, m)
		return
	}
	l.sendRange(p, &reply)
}

func (l *Log) sendRange(p *group.Peer, m *group.RangeReply) {
	l.g.Send(p, group.Bulk, l.idx, m.Append(l.g.Frame(group.KindRangeReply)))
}

// asker waits for the first page of a snapshot that is being made.
type asker struct {
	p     *group.Peer
	id    uint64
	until time.Duration
}

// answerPage sends one page of a snapshot. A request without a snapshot position gets the first
// page of a recent snapshot, or of a new one once it is made.
func (l *Log) answerPage(p *group.Peer, s *source, m *group.Ask) {
	var sn *snap
	status := uint64(group.StatusGone)
	switch {
	case s == nil || !s.pos.Known():
	case m.Snap.Known():
		sn = l.heldSnap(s, m.Snap)
	case !m.Force && m.At.Inc == s.pos.Inc && m.At.Lost < s.pos.Lost:
		// The requester has lost less. It may not have noticed yet that this snapshot would lose
		// data.
	default:
		if sn = l.recentSnap(s); sn == nil {
			status = group.StatusBusy
		}
	}
	switch {
	case sn == nil:
		l.sendPage(p, &group.PageReply{Name: m.Name, Source: m.Source, ID: m.ID, Status: status, Snap: m.Snap, Page: m.Page, Bytes: s.overSize()})
	case sn.made == 0:
		sn.askers = slices.DeleteFunc(sn.askers, func(a asker) bool { return a.p == p })
		sn.askers = append(sn.askers, asker{p, m.ID, l.g.Now + l.g.Opt.AskTimeout*3/4})
	default:
		l.servePage(p, sn, m.ID, m.Page)
	}
}

// overSize is the size of the last snapshot if it was too large; otherwise 0.
func (s *source) overSize() uint64 {
	if s == nil {
		return 0
	}
	return uint64(s.snapSize)
}

func (l *Log) servePage(p *group.Peer, sn *snap, id, page uint64) {
	sn.used = l.g.Now
	reply := group.PageReply{
		Name: []byte(l.name), Source: []byte(sn.s.name), ID: id, Snap: sn.pos, Digest: sn.digest,
		Page: page, Pages: uint64(len(sn.pages)), Bytes: uint64(sn.bytes), Status: group.StatusOK,
	}
	switch {
	case page < reply.Pages:
		reply.Payload = sn.pages[page]
		l.g.Stats.PagesServed++
		sn.taken = page+1 == reply.Pages
	case page > 0:
		reply.Status = group.StatusGone
	}
	l.sendPage(p, &reply)
}

// sendWait answers that a snapshot is being made and should be requested again soon. The position
// in the answer marks this; older members read the answer as a plain busy.
func (l *Log) sendWait(a asker, sn *snap, at Position) {
	l.sendPage(a.p, &group.PageReply{
		Name: []byte(l.name), Source: []byte(sn.s.name), ID: a.id, Status: group.StatusBusy, Snap: at,
	})
}

func (l *Log) sendPage(p *group.Peer, m *group.PageReply) {
	m.Version = l.version
	l.g.Send(p, group.Bulk, l.idx, m.Append(l.g.Frame(group.KindPageReply)))
}
