package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Set holds the logs of one member.
type Set struct {
	g    *group.Group
	List []*Log // in order of registration
	in   inbox
}

// inbox holds decoded messages, reused for every frame.
type inbox struct {
	deltas group.Deltas
	digest group.Digests
	ask    group.Ask
	answer group.RangeReply
	page   group.PageReply
	missed group.Missed
	tips   group.Tips
}

// NewSet returns an empty set.
func NewSet(g *group.Group) *Set { return &Set{g: g} }

// Find returns the log with this name, or nil.
func (set *Set) Find(name []byte) *Log {
	for _, l := range set.List {
		if l.name == string(name) {
			return l
		}
	}
	return nil
}

// Deliver decodes a frame of live deltas into m and merges the deltas that need only the locks of
// their sources. It is safe for concurrent use, and must be followed by Receive with the same m. It
// returns when Tick has work because of this frame.
func (set *Set) Deliver(now time.Duration, r group.Reader, m *group.Deltas) (due time.Duration, ok bool) {
	if m.Decode(r) != nil {
		return group.Never, false
	}
	l := set.Find(m.Name)
	if l == nil {
		return group.Never, false
	}
	return l.Deliver(now, m), true
}

// Receive handles a frame of a kind that concerns logs and returns the index of its state. deltas
// is the result of Deliver, or nil.
func (set *Set) Receive(p *group.Peer, kind byte, r group.Reader, deltas *group.Deltas) (state int, err error) {
	name, err := r.Name()
	if err != nil {
		return 0, err
	}
	l := set.Find(name)
	if l == nil {
		return set.g.UnknownState(), nil
	}
	in := &set.in
	switch kind {
	case group.KindDelta, group.KindRelay:
		if deltas == nil { // Deliver was not called
			if deltas, err = &in.deltas, in.deltas.Decode(r); err == nil {
				l.Deliver(l.g.Now, deltas)
			}
		}
		if err == nil {
			l.takeDeltas(p, deltas)
		}
		if err == nil && kind == group.KindRelay {
			l.passOn(p, deltas.Version, r.B)
		}
	case group.KindDigest:
		if err = in.digest.Decode(r); err == nil {
			l.takeDigest(p, &in.digest)
		}
	case group.KindMissed:
		if err = in.missed.Decode(r); err == nil {
			l.takeMissed(p, &in.missed)
		}
	case group.KindTips:
		if err = in.tips.Decode(r); err == nil {
			l.takeTips(p, &in.tips)
		}
	case group.KindRangeAsk, group.KindPageAsk:
		if err = in.ask.Decode(r); err == nil {
			l.takeAsk(p, kind, &in.ask)
		}
	case group.KindRangeReply:
		if err = in.answer.Decode(r); err == nil {
			l.takeRangeReply(p, &in.answer)
		}
	case group.KindPageReply:
		if err = in.page.Decode(r); err == nil {
			l.takePageReply(p, &in.page)
		}
	}
	if err != nil {
		return 0, err
	}
	return l.idx, nil
}

func (l *Log) takeDeltas(p *group.Peer, m *group.Deltas) {
	t, understood, checks := l.table.Load(), true, m.Checks
	m.Each(func(i int, g *group.DeltaRun) {
		var check *group.Check
		if len(checks) > 0 && checks[0].Group == i {
			check, checks = &checks[0], checks[1:]
		}
		s := t.find(g)
		if s == nil || s.gone {
			l.g.Refuse(group.RefusedSource)
			return
		}
		l.enter(s)
		defer l.leave(s)
		if !s.completes(g) {
			l.g.Refuse(group.RefusedSource)
			understood = false
			return
		}
		l.mergeGroup(p, s, g, m.Done[i], check)
	})
	if understood { // otherwise the frame counts as missed
		l.came(p, m.Number)
	}
}

func (l *Log) takeAsk(p *group.Peer, kind byte, m *group.Ask) {
	s := l.sources[string(m.Source)]
	if s == nil {
		l.g.Refuse(group.RefusedSource)
	} else {
		l.enter(s)
		defer l.leave(s)
	}
	switch {
	case !p.Link:
	case kind == group.KindRangeAsk:
		l.answerRange(p, s, m)
	default:
		l.answerPage(p, s, m)
	}
}

func (l *Log) takeRangeReply(p *group.Peer, m *group.RangeReply) {
	switch s := l.answered(p, m.ID); {
	case s == nil:
	case s.load.snapshot || string(m.Deltas.Source) != s.name:
		l.g.Refuse(group.RefusedAnswer)
	default:
		l.enter(s)
		defer l.leave(s)
		l.takeRange(p, s, m)
	}
}

func (l *Log) takePageReply(p *group.Peer, m *group.PageReply) {
	switch s := l.answered(p, m.ID); {
	case s == nil:
	case string(m.Source) != s.name:
		l.g.Refuse(group.RefusedAnswer)
	default:
		l.enter(s)
		defer l.leave(s)
		l.takePage(s, m)
	}
}

// answered returns the source whose load waits for p's answer id, or nil.
func (l *Log) answered(p *group.Peer, id uint64) *source {
	s := l.loads[id]
	if s == nil || s.load.p != p {
		l.g.Stats.LateAnswers++
		return nil
	}
	return s
}
