package logs

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// fleet is the log of one of so many members that know of so many sources, each of which
// another one reads, up to the same position with the same content.
func fleet(members, sources int) (*Log, []string) {
	g := group.New(group.Options{Self: group.Member{ID: "m00", Boot: 1}, Share: group.SharePartitioned})
	l := NewSet(g).New("index", 1, sums{}, LogOptions{Owned: true})
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

// BenchmarkCaughtUp asks 10,000 sources for whether all are known as far as a peer knew them, and
// one, somewhere in the middle, is not: each frame and tick of a member that joins does.
func BenchmarkCaughtUp(b *testing.B) {
	for name, ask := range map[string]func(*Log, *group.Peer) bool{"kept": (*Log).CaughtUp, "naive": (*Log).naivelyCaughtUp} {
		b.Run(name, func(b *testing.B) {
			l, _ := fleet(2, 10_000)
			p := l.g.Peers[0]
			l.of(p).target[l.order[5000].slot].Next = 100
			for b.Loop() {
				if ask(l, p) {
					b.Fatal("caught up")
				}
			}
		})
	}
}

// BenchmarkCompare compares each member with what is known here, as a status does; with what is kept
// of that, and with a look at each claim.
func BenchmarkCompare(b *testing.B) {
	for name, compare := range map[string]func(*Log, *group.Peer) PeerLogView{"kept": (*Log).Compare, "naive": (*Log).naivelyCompared} {
		b.Run(name, func(b *testing.B) {
			l, _ := fleet(30, 10_000)
			for b.Loop() {
				for _, p := range l.g.Peers {
					compare(l, p)
				}
			}
		})
	}
}

// BenchmarkMemory has a log of 10,000 sources among 3 and among 30 members, and says what it holds.
func BenchmarkMemory(b *testing.B) {
	for _, members := range []int{3, 30} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			held := func() float64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return float64(m.HeapAlloc) / 1e6
			}
			for b.Loop() {
				before := held()
				l, _ := fleet(members, 10_000)
				l.g.Drain()
				l.Settled()
				b.ReportMetric(held()-before, "MB")
				runtime.KeepAlive(l)
			}
		})
	}
}

// BenchmarkStatus does all of a status that depends on how many sources there are.
func BenchmarkStatus(b *testing.B) {
	l, _ := fleet(30, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		l.Look(&group.Held{}, func(*SourceView) {})
		for _, p := range l.g.Peers {
			l.Compare(p)
		}
	}
}

// naivelyCompared is Compare with a look at every source.
func (l *Log) naivelyCompared(p *group.Peer) PeerLogView {
	v := PeerLogView{Name: l.name, Behind: l.of(p).lacks}
	for _, s := range l.order {
		h := &l.of(p).claims[s.slot]
		if h.reading {
			v.Reading++
		}
		if !h.pos.Known() || h.pos.Inc != s.pos.Inc || !h.hasDigest {
			continue
		}
		mine, ok := s.digest, true
		if h.pos.Next != s.pos.Next {
			mine, ok = s.ring.digestAt(h.pos.Next)
		}
		if ok && !h.holds(mine) {
			v.Differ++
		}
	}
	return v
}

// naive is what all peers' claims of a source come to, by a look at each of them.
func (l *Log) naive(s *source) word {
	kept := s.word
	s.word = word{}
	w := *l.wordOf(s)
	s.word = kept
	return w
}

// naivelyCaughtUp is CaughtUp with a look at every source.
func (l *Log) naivelyCaughtUp(p *group.Peer) bool {
	pl := l.of(p)
	if pl.version == 0 || !pl.full {
		return pl.version == 0
	}
	for _, s := range l.order {
		if s.slot >= len(pl.target) {
			continue
		}
		t := pl.target[s.slot]
		t.Lost = max(t.Lost, pl.claims[s.slot].pos.Lost)
		if pos := s.pos; t.Inc > pos.Inc || (t.Inc == pos.Inc && (t.Next > pos.Next || t.Lost < pos.Lost)) {
			return false
		}
	}
	return true
}

// TestWordIsKept changes whatever a view of a source follows from: what is kept of peers' claims
// is what a look at all of them comes to, each time, and is seldom made anew. So is whether this
// member has caught up with a peer, and what it is to claim.
func TestWordIsKept(t *testing.T) {
	made, words, caught, asked, differ, reading := 0, 0, 0, 0, 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l, names := fleet(2+int(seed%4), 20)
		l.g.Opt.RingDeltas = 1 + int(seed%5)
		for step := range uint64(600) {
			p, s := l.g.Peers[rng.IntN(len(l.g.Peers))], l.sources[names[rng.IntN(20)]]
			var what string
			switch rng.IntN(10) {
			case 0:
				what = change(rng, l, names, step)
			case 1:
				what = l.comeAgain(rng, p, s, step)
			default:
				what = l.move(rng, p, s, step)
			}
			if rng.IntN(2) == 0 {
				l.Tick()
			}
			for _, s := range l.order {
				if s.tell != slices.Contains(l.telling, s) {
					t.Fatalf("seed %d, step %d, %s: %s is to be claimed: %v", seed, step, what, s.name, s.tell)
				}
			}
			if d := l.g.Now; len(l.telling) > 20 || len(l.telling) > 0 && l.nextDigest > d+l.g.Opt.Digest {
				t.Fatalf("seed %d, step %d, %s: %d of 20 sources are claimed after %v", seed, step, what, len(l.telling), l.nextDigest-d)
			}
			for _, p := range l.g.Peers {
				if got, want := l.CaughtUp(p), l.naivelyCaughtUp(p); got != want {
					t.Fatalf("seed %d, step %d, %s: caught up with %s is %v, and not %v", seed, step, what, p.ID, got, want)
				} else if got {
					caught++
				}
				asked++
				got, want := l.Compare(p), l.naivelyCompared(p)
				if got != want {
					t.Fatalf("seed %d, step %d, %s: compared with %s it is %+v, and not %+v", seed, step, what, p.ID, got, want)
				}
				differ, reading = differ+got.Differ, reading+got.Reading
			}
			for _, s := range l.order {
				if s.word.made != l.regrouped || s.word.inc != s.pos.Inc {
					made++
				}
				words++
				if got, want := *l.wordOf(s), l.naive(s); got != want {
					t.Fatalf("seed %d, step %d, %s: of %s %+v is kept, %+v is claimed", seed, step, what, s.name, got, want)
				}
			}
			var views []SourceView
			l.Look(&group.Held{}, func(v *SourceView) { views = append(views, *v) })
			if all := l.Sources(nil); !slices.Equal(views, all) {
				t.Fatalf("seed %d, step %d, %s: looks show %+v and not %+v", seed, step, what, views, all)
			}
		}
	}
	t.Logf("%d of %d words were made; %d times of %d caught up; %d sources differ, %d are read", made, words, caught, asked, differ, reading)
	if caught == 0 || caught == asked || differ == 0 || reading == 0 {
		t.Errorf("caught up with others %d times of %d; %d sources differ, %d are read", caught, asked, differ, reading)
	}
	if made > words/3 {
		t.Errorf("%d of %d words were made anew", made, words)
	}
}

// comeAgain has p go and come, and know a little more of some sources than this member, which may
// have lost some of s.
func (l *Log) comeAgain(rng *rand.Rand, p *group.Peer, s *source, stamp uint64) string {
	l.SetZones(map[string]string{s.name: "a"})
	p.Up = false
	l.PeerDown(p)
	p.Up = true
	l.PeerUp(p)
	if rng.IntN(4) == 0 {
		l.Lose(s.name, max(1, s.pos.Inc), s.pos.Next+1)
	}
	m := &group.Digests{Full: true, Stamp: stamp}
	for _, s := range l.order {
		at := Position{Inc: max(1, s.pos.Inc), Next: s.pos.Next, Lost: s.pos.Lost}
		if rng.IntN(40) == 0 {
			at.Next++
		}
		m.Claims = append(m.Claims, group.Claim{Source: []byte(s.name), Pos: at, Digest: s.digest})
	}
	l.takeDigest(p, m)
	return p.ID + " comes again, and " + s.name + " is in a zone"
}

// move has p tell of s in one of the ways that there are.
func (l *Log) move(rng *rand.Rand, p *group.Peer, s *source, stamp uint64) string {
	h := l.of(p).claims[s.slot].pos
	at := Position{Inc: max(1, h.Inc) + uint64(rng.IntN(20)/19), Next: h.Next + uint64(rng.IntN(3)), Lost: h.Lost}
	payload := []byte{byte(rng.IntN(50) / 49)} // who has another one holds another content
	switch rng.IntN(5) {
	case 0:
		l.enter(s)
		defer l.leave(s)
		cl := group.Claim{Source: []byte(s.name), Pos: Position{Inc: at.Inc, Next: at.Next - min(at.Next, uint64(rng.IntN(2)))}, Reading: rng.IntN(3) > 0}
		if d, ok := s.ring.digestAt(cl.Pos.Next); ok && rng.IntN(20) > 0 {
			cl.Digest = d
		} else {
			cl.Digest = s.digest
		}
		l.hear(p, s, &cl, stamp)
		return p.ID + " claims " + s.name
	case 1:
		var nick [group.TipNick]byte
		copy(nick[:], s.nick(s.pos.Inc)[1:])
		l.takeTips(p, &group.Tips{Tips: []group.Tip{{Nick: nick, Next: at.Next}}})
		return p.ID + " tips " + s.name
	case 2:
		l.Append(Delta{Source: s.name, Inc: max(1, s.pos.Inc), First: s.pos.Next, Last: s.pos.Next, Payload: payload})
		return s.name + " moves"
	case 3:
		l.enter(s)
		defer l.leave(s)
		l.endLoad(s)
		back := min(s.pos.Next, uint64(rng.IntN(3)))
		s.load = &load{p: p, snap: Position{Inc: max(1, s.pos.Inc), Next: s.pos.Next - back, Lost: s.pos.Lost}, heal: true, stage: staged{l.store.(sums), s.name, Digest{Count: stamp}}}
		s.load.digest = Digest{Count: stamp}
		l.loading++
		l.commit(s)
		return s.name + " is another one"
	}
	l.enter(s)
	defer l.leave(s)
	g := &group.DeltaRun{Inc: at.Inc, Entries: []group.Entry{{First: at.Next, Last: at.Next, Payload: payload}}}
	var check *group.Check
	if rng.IntN(2) == 0 {
		check = &group.Check{Sum: s.digest.Fold()}
	}
	l.mergeGroup(p, s, g, false, check)
	return p.ID + " sends of " + s.name
}
