package logs

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// fleet is the log of one of so many members that know of so many sources, each of which
// another one reads, up to the same position with the same content.
func fleet(members, sources int) (*Log, []string) {
	g := group.New(group.Options{Self: group.Member{ID: "m00", Boot: 1}, Share: group.SharePartitioned})
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{Owned: true})
	names := make([]string, sources)
	for i := range names {
		names[i] = fmt.Sprintf("10.0.%03d.%03d:8000/0", i/256, i%256)
	}
	l.SetSources(names)
	for i := 1; i < members; i++ {
		p := g.Add(group.Member{ID: fmt.Sprintf("m%02d", i), Boot: 2})
		l.AddPeer(p)
		p.Up, p.Minor, p.Heard = true, group.MinorChecks, 1
		l.SetStated(p, 1)
		l.PeerUp(p)
	}
	l.Tick()
	for i, p := range g.Peers {
		m := &group.Digests{Full: true, Stamp: 1}
		for j, s := range l.order {
			m.Claims = append(m.Claims, group.Claim{Source: []byte(s.name), Pos: Position{Inc: 1, Next: 1}, Reading: j%(members-1) == i})
		}
		l.takeDigest(p, m)
	}
	for _, s := range l.order {
		l.take(s, Delta{Source: s.name, Inc: 1, First: 0, Last: 0})
	}
	l.Tick()
	return l, names
}

// BenchmarkSources looks at 10,000 sources among 30 members: at rest, and after 180 of them have
// moved, as many as do in a quarter of a second where each engine writes every 14 s; with what is
// kept of peers' claims, and with a look at each of them.
func BenchmarkSources(b *testing.B) {
	for _, kept := range []bool{true, false} {
		for _, moved := range []int{0, 180} {
			b.Run(fmt.Sprintf("kept=%v/moved=%d", kept, moved), func(b *testing.B) {
				l, _ := fleet(30, 10_000)
				var dst []SourceView
				next := uint64(1)
				for b.Loop() {
					for i := range moved {
						s := l.order[i*50]
						g := &group.DeltaRun{Inc: 1, Entries: []group.Entry{{First: next, Last: next}}}
						l.enter(s)
						l.mergeGroup(l.g.Peers[i%29], s, g, false, nil)
						l.leave(s)
					}
					next++
					if !kept {
						l.regrouped++
					}
					dst = l.Sources(dst[:0])
				}
			})
		}
	}
}

// BenchmarkCompare compares each member with what is known here, as a status does.
func BenchmarkCompare(b *testing.B) {
	l, _ := fleet(30, 10_000)
	for b.Loop() {
		for _, p := range l.g.Peers {
			l.Compare(p)
		}
	}
}

// naive is what all peers' claims of a source come to, by a look at each of them.
func (l *Log) naive(s *source) word {
	kept := s.word
	s.word = word{}
	w := *l.wordOf(s)
	s.word = kept
	return w
}

// TestWordIsKept changes whatever a view of a source follows from: what is kept of peers' claims
// is what a look at all of them comes to, each time, and is seldom made anew.
func TestWordIsKept(t *testing.T) {
	made, views := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l, names := fleet(2+int(seed%4), 20)
		for step := range uint64(600) {
			p, s := l.g.Peers[rng.IntN(len(l.g.Peers))], l.sources[names[rng.IntN(20)]]
			what := ""
			switch n := rng.IntN(10); {
			case n == 0:
				what = change(rng, l, names, step)
			case n == 1:
				zones := map[string]string{s.name: "a"}
				l.SetZones(zones)
				what = "zones of " + s.name
			default:
				what = l.move(rng, p, s, step)
			}
			if rng.IntN(2) == 0 {
				l.Tick()
			}
			for _, s := range l.order {
				if s.word.made != l.regrouped || s.word.inc != s.pos.Inc {
					made++
				}
				views++
				if got, want := *l.wordOf(s), l.naive(s); got != want {
					t.Fatalf("seed %d, step %d, %s: of %s %+v is kept, %+v is claimed", seed, step, what, s.name, got, want)
				}
			}
		}
	}
	t.Logf("%d of %d words were made", made, views)
	if made > views/3 {
		t.Errorf("%d of %d words were made anew", made, views)
	}
}

// move has p tell of s in one of the ways that there are.
func (l *Log) move(rng *rand.Rand, p *group.Peer, s *source, stamp uint64) string {
	h := l.of(p).claims[s.slot].pos
	at := Position{Inc: max(1, h.Inc) + uint64(rng.IntN(20)/19), Next: h.Next + uint64(rng.IntN(3)), Lost: h.Lost}
	switch rng.IntN(4) {
	case 0:
		l.enter(s)
		defer l.leave(s)
		l.hear(p, s, &group.Claim{Source: []byte(s.name), Pos: Position{Inc: at.Inc, Next: at.Next - min(at.Next, uint64(rng.IntN(2)))}, Reading: rng.IntN(3) > 0}, stamp)
		return p.ID + " claims " + s.name
	case 1:
		var nick [group.TipNick]byte
		copy(nick[:], s.nick(s.pos.Inc)[1:])
		l.takeTips(p, &group.Tips{Tips: []group.Tip{{Nick: nick, Next: at.Next}}})
		return p.ID + " tips " + s.name
	case 2:
		l.Append(Delta{Source: s.name, Inc: max(1, s.pos.Inc), First: s.pos.Next, Last: s.pos.Next})
		return s.name + " moves"
	}
	l.enter(s)
	defer l.leave(s)
	g := &group.DeltaRun{Inc: at.Inc, Entries: []group.Entry{{First: at.Next, Last: at.Next}}}
	l.mergeGroup(p, s, g, false, nil)
	return p.ID + " sends of " + s.name
}
