package logs

import (
	"encoding/binary"
	"maps"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// A nick replaces the name and incarnation of a source in live deltas, for members known to be in
// that incarnation. It is a zero byte, 4 bytes of the name's hash and 3 bytes of the incarnation's
// hash. The group's incarnation field is then 0. Names are often longer than the deltas themselves.
const nickLen = 8

func (s *source) nick(inc uint64) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, nickLen), s.hash<<8)
	v := group.Mix(inc)
	b[5], b[6], b[7] = byte(v), byte(v>>8), byte(v>>16)
	return b
}

// nameSources builds the table of sources. Sources with colliding nicks have none.
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

// nickAfter is the time after the claim of an incarnation at which its nick is used for members
// that have not confirmed it. A member that missed the claim requests it.
const nickAfter = time.Second

// hasNick reports whether p can resolve the nick of s in incarnation inc.
func (l *Log) hasNick(p *group.Peer, s *source, inc uint64) bool {
	knows := l.of(p).claims[s.slot].pos.Inc == inc ||
		(numbers(p) && l.of(p).full && s.lastClaim.Inc == inc && l.g.Now-s.begunAt > nickAfter)
	return p.Minor >= group.MinorNicks && knows && l.table.Load().byNick[uint32(s.hash)] == s
}

// deltasFor returns the deltas of s to push, in p's form, or in the form for all peers if p is nil.
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

// find returns the source that a group of live deltas may belong to, or nil. completes confirms it.
func (t *table) find(g *group.DeltaRun) *source {
	if g.Inc != 0 {
		return t.byName[string(g.Source)]
	}
	if len(g.Source) != nickLen || g.Source[0] != 0 {
		return nil
	}
	return t.byNick[binary.LittleEndian.Uint32(g.Source[1:])]
}

// completes sets the incarnation of a group that uses a nick. It returns false if the nick is for
// another incarnation. The caller holds the lock of s.
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
