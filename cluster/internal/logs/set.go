package logs

import (
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/wire"
)

// Set is the logs of one member.
type Set struct {
	g    *group.Group
	List []*Log // in order of registration
	in   inbox
}

// inbox holds decoded messages, reused from frame to frame.
type inbox struct {
	deltas wire.Deltas
	digest wire.Digests
	ask    wire.Ask
	answer wire.RangeReply
	page   wire.PageReply
}

// NewSet returns a set without logs.
func NewSet(g *group.Group) *Set { return &Set{g: g} }

// Find returns the log of a name, or nil.
func (set *Set) Find(name []byte) *Log {
	for _, l := range set.List {
		if l.name == string(name) {
			return l
		}
	}
	return nil
}

// Receive handles a frame of the kinds that concern logs, and returns the
// index of the state that it belongs to.
func (set *Set) Receive(p *group.Peer, kind byte, r wire.Reader) (state int, err error) {
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
	case wire.KindDelta:
		if err = in.deltas.Decode(r); err == nil {
			l.takeDeltas(p, &in.deltas)
		}
	case wire.KindDigest:
		if err = in.digest.Decode(r); err == nil {
			l.takeDigest(p, &in.digest)
		}
	case wire.KindRangeAsk, wire.KindPageAsk:
		if err = in.ask.Decode(r); err == nil {
			l.takeAsk(p, kind, &in.ask)
		}
	case wire.KindRangeReply:
		if err = in.answer.Decode(r); err == nil {
			l.takeRangeReply(p, &in.answer)
		}
	case wire.KindPageReply:
		if err = in.page.Decode(r); err == nil {
			l.takePageReply(p, &in.page)
		}
	}
	if err != nil {
		return 0, err
	}
	return l.idx, nil
}

func (l *Log) takeDeltas(p *group.Peer, m *wire.Deltas) {
	m.Each(func(g *wire.Group) {
		s := l.sourceOf(g)
		if s == nil {
			l.g.Refuse(group.RefusedSource)
			return
		}
		l.mergeGroup(p, s, g)
	})
}

func (l *Log) takeAsk(p *group.Peer, kind byte, m *wire.Ask) {
	s := l.sources[string(m.Source)]
	if s == nil {
		l.g.Refuse(group.RefusedSource)
	}
	switch {
	case !p.Link:
	case kind == wire.KindRangeAsk:
		l.answerRange(p, s, m)
	default:
		l.answerPage(p, s, m)
	}
}

func (l *Log) takeRangeReply(p *group.Peer, m *wire.RangeReply) {
	switch s := l.answered(p, m.ID); {
	case s == nil:
	case s.load.snapshot || string(m.Deltas.Source) != s.name:
		l.g.Refuse(group.RefusedAnswer)
	default:
		l.takeRange(p, s, m)
	}
}

func (l *Log) takePageReply(p *group.Peer, m *wire.PageReply) {
	switch s := l.answered(p, m.ID); {
	case s == nil:
	case string(m.Source) != s.name:
		l.g.Refuse(group.RefusedAnswer)
	default:
		l.takePage(s, m)
	}
}

// answered finds the source whose load an answer of p belongs to; nil for
// answers that nobody waits for.
func (l *Log) answered(p *group.Peer, id uint64) *source {
	s := l.loads[id]
	if s == nil || s.load.p != p {
		l.g.Stats.LateAnswers++
		return nil
	}
	return s
}
