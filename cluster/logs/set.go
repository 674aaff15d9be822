package logs

import (
	"github.com/grapevine-epp/grapevine/cluster/group"
	"github.com/grapevine-epp/grapevine/cluster/wire"
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
	var l *Log
	switch kind {
	case wire.KindDelta:
		l, err = set.onDeltas(p, r)
	case wire.KindDigest:
		l, err = set.onDigest(p, r)
	case wire.KindRangeAsk, wire.KindPageAsk:
		l, err = set.onAsk(p, kind, r)
	case wire.KindRangeReply:
		l, err = set.onRangeReply(p, r)
	case wire.KindPageReply:
		l, err = set.onPageReply(p, r)
	}
	switch {
	case err != nil:
		return 0, err
	case l == nil:
		return set.g.UnknownState(), nil
	}
	return l.idx, nil
}

func (set *Set) onDeltas(p *group.Peer, r wire.Reader) (*Log, error) {
	m := &set.in.deltas
	if err := m.Decode(r); err != nil {
		return nil, err
	}
	l := set.Find(m.Name)
	if l == nil {
		return nil, nil
	}
	m.Each(func(g *wire.Group) {
		s := l.sources[string(g.Source)]
		if s == nil || g.Inc == 0 {
			set.g.Refuse(group.RefusedSource)
			return
		}
		l.mergeGroup(p, s, g)
	})
	return l, nil
}

func (set *Set) onDigest(p *group.Peer, r wire.Reader) (*Log, error) {
	m := &set.in.digest
	if err := m.Decode(r); err != nil {
		return nil, err
	}
	l := set.Find(m.Name)
	if l != nil {
		l.takeDigest(p, m)
	}
	return l, nil
}

func (set *Set) onAsk(p *group.Peer, kind byte, r wire.Reader) (*Log, error) {
	m := &set.in.ask
	if err := m.Decode(r); err != nil {
		return nil, err
	}
	l := set.Find(m.Name)
	if l == nil {
		return nil, nil
	}
	s := l.sources[string(m.Source)]
	if s == nil {
		set.g.Refuse(group.RefusedSource)
	}
	switch {
	case !p.Link:
	case kind == wire.KindRangeAsk:
		l.answerRange(p, s, m)
	default:
		l.answerPage(p, s, m)
	}
	return l, nil
}

func (set *Set) onRangeReply(p *group.Peer, r wire.Reader) (*Log, error) {
	m := &set.in.answer
	if err := m.Decode(r); err != nil {
		return nil, err
	}
	l := set.Find(m.Name)
	if l == nil {
		return nil, nil
	}
	switch s := l.answered(p, m.ID); {
	case s == nil:
	case s.load.snapshot || string(m.Deltas.Source) != s.name:
		set.g.Refuse(group.RefusedAnswer)
	default:
		l.takeRange(p, s, m)
	}
	return l, nil
}

func (set *Set) onPageReply(p *group.Peer, r wire.Reader) (*Log, error) {
	m := &set.in.page
	if err := m.Decode(r); err != nil {
		return nil, err
	}
	l := set.Find(m.Name)
	if l == nil {
		return nil, nil
	}
	switch s := l.answered(p, m.ID); {
	case s == nil:
	case string(m.Source) != s.name:
		set.g.Refuse(group.RefusedAnswer)
	default:
		l.takePage(s, m)
	}
	return l, nil
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
