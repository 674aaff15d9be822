package logs

import (
	"encoding/binary"
	"maps"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// A nick stands for a source and its incarnation in live deltas, to members that
// said that they stand in it: a zero, 4 bytes of the hash of the name and 3 of that of
// the incarnation. The group's incarnation is 0 then. Names are often longer than what
// is said of them.
const nickLen = 8

func (s *source) nick(inc uint64) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, nickLen), s.hash<<8)
	v := group.Mix(inc)
	b[5], b[6], b[7] = byte(v), byte(v>>8), byte(v>>16)
	return b
}

// nameSources makes the table of sources. Those whose nicks are alike have none.
func (l *Log) nameSources() {
	t := &table{byName: maps.Clone(l.sources), byNick: make(map[uint32]*source, len(l.order))}
	for _, s := range l.order {
		if _, twice := t.byNick[uint32(s.hash)]; twice {
			t.byNick[uint32(s.hash)] = nil
			continue
		}
		t.byNick[uint32(s.hash)] = s
	}
	l.table.Store(t)
}

// nickAfter is how long after an incarnation was claimed its nick is used to members that
// said nothing of it. One that has not heard of it yet asks for what it misses.
const nickAfter = time.Second

// hasNick reports whether p can be told of s, in an incarnation, by its nick.
func (l *Log) hasNick(p *group.Peer, s *source, inc uint64) bool {
	knows := l.of(p).claims[s.slot].pos.Inc == inc ||
		(numbers(p) && l.of(p).full && s.told.Inc == inc && l.g.Now-s.begunAt > nickAfter)
	return p.Minor >= group.MinorNicks && knows && l.table.Load().byNick[uint32(s.hash)] == s
}

// deltasFor returns what is to be pushed of s, in the form for p; for all peers when
// p is nil.
func (l *Log) deltasFor(p *group.Peer, s *source) outgoing {
	g := group.DeltaRun{Source: []byte(s.name), Inc: s.pushInc, Entries: s.push}
	for _, q := range l.g.Peers {
		if (p == nil || p == q) && !l.hasNick(q, s, s.pushInc) {
			return outgoing{DeltaRun: g, s: s}
		}
	}
	g.Source, g.Inc = s.nick(s.pushInc), 0
	return outgoing{DeltaRun: g, s: s}
}

// find returns the source that a group of live deltas is of, perhaps; nil when it names
// none that is known here. completes tells.
func (t *table) find(g *group.DeltaRun) *source {
	if g.Inc != 0 {
		return t.byName[string(g.Source)]
	}
	if len(g.Source) != nickLen || g.Source[0] != 0 {
		return nil
	}
	return t.byNick[binary.LittleEndian.Uint32(g.Source[1:])]
}

// completes gives a group that names s by its nick its incarnation; false when the
// nick is of another one. The caller holds the lock of s.
func (s *source) completes(g *group.DeltaRun) bool {
	if g.Inc != 0 {
		return true
	}
	if s.pos.Inc == 0 || string(s.nick(s.pos.Inc)) != string(g.Source) {
		return false
	}
	g.Inc = s.pos.Inc
	return true
}
