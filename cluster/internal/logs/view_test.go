package logs

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// fleet is a member's log in a group of that many members and sources. Another member reads each
// source, at the same position with the same content.
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
		p.Up, p.Minor, p.LastReceived = true, group.MinorChecks, 1
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

// BenchmarkSources views 10,000 sources among 30 members: at rest, and after 180 of them moved, as
// many as in a quarter second if each engine writes every 14 s. It compares cached words with
// recomputed ones.
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

// BenchmarkCaughtUp calls CaughtUp for 10,000 sources of which one in the middle is behind. A
// member that joins does this on each frame and tick.
func BenchmarkCaughtUp(b *testing.B) {
	for name, ask := range map[string]func(*Log, *group.Peer) bool{"kept": (*Log).CaughtUp, "naive": (*Log).naivelyCaughtUp} {
		b.Run(name, func(b *testing.B) {
			l, _ := fleet(2, 10_000)
			p := l.g.Peers[0]
			l.of(p).target[l.order[5000].slot].Next = 100
			for b.Loop() {
				if ask(l, p) {
					b.Fatal("CaughtUp() = true, want false")
				}
			}
		})
	}
}

// BenchmarkCompare compares each member's state with the state here, as status does, with and
// without cached results.
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

// BenchmarkMemory reports the memory of a log of 10,000 sources among 3 and among 30 members.
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

// BenchmarkStatus runs all parts of a status report that depend on the number of sources.
func BenchmarkStatus(b *testing.B) {
	l, _ := fleet(30, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		l.Look(&group.MemoryUse{}, func(*SourceView) {})
		for _, p := range l.g.Peers {
			l.Compare(p)
		}
	}
}

// naivelyCompared is Compare without cached results.
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

// naive computes the word of a source from all peers' claims.
func (l *Log) naive(s *source) word {
	kept := s.word
	s.word = word{}
	w := *l.wordOf(s)
	s.word = kept
	return w
}

// naivelyCaughtUp is CaughtUp with a loop over every source.
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

// TestWordIsKept changes all inputs of a source's view at random. The cached words always equal
// recomputed ones and are rarely recomputed. The same holds for CaughtUp and for queued claims.
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
				if s.claimQueued != slices.Contains(l.announcing, s) {
					t.Fatalf("seed %d, step %d, %s: claim for %s is queued: %v", seed, step, what, s.name, s.claimQueued)
				}
			}
			if d := l.g.Now; len(l.announcing) > 20 || len(l.announcing) > 0 && l.nextDigest > d+l.g.Opt.Digest {
				t.Fatalf("seed %d, step %d, %s: %d of 20 sources are to be claimed after %v", seed, step, what, len(l.announcing), l.nextDigest-d)
			}
			for _, p := range l.g.Peers {
				if got, want := l.CaughtUp(p), l.naivelyCaughtUp(p); got != want {
					t.Fatalf("seed %d, step %d, %s: CaughtUp(%s) = %v, want %v", seed, step, what, p.ID, got, want)
				} else if got {
					caught++
				}
				asked++
				got, want := l.Compare(p), l.naivelyCompared(p)
				if got != want {
					t.Fatalf("seed %d, step %d, %s: Compare(%s) = %+v, want %+v", seed, step, what, p.ID, got, want)
				}
				differ, reading = differ+got.Differ, reading+got.Reading
			}
			for _, s := range l.order {
				if s.word.made != l.regrouped || s.word.inc != s.pos.Inc {
					made++
				}
				words++
				if got, want := *l.wordOf(s), l.naive(s); got != want {
					t.Fatalf("seed %d, step %d, %s: word of %s is %+v, want %+v", seed, step, what, s.name, got, want)
				}
			}
			var views []SourceView
			l.Look(&group.MemoryUse{}, func(v *SourceView) { views = append(views, *v) })
			if all := l.Sources(nil); !slices.Equal(views, all) {
				t.Fatalf("seed %d, step %d, %s: Look() = %+v, want %+v", seed, step, what, views, all)
			}
		}
	}
	t.Logf("%d of %d words were made; %d times of %d caught up; %d sources differ, %d are read", made, words, caught, asked, differ, reading)
	if caught == 0 || caught == asked || differ == 0 || reading == 0 {
		t.Errorf("CaughtUp was true %d times of %d; %d sources differ, %d are read", caught, asked, differ, reading)
	}
	if made > words/3 {
		t.Errorf("%d of %d words were recomputed", made, words)
	}
}

// comeAgain makes p leave and join again, slightly ahead of this member for some sources. This
// member may have lost some of s.
func (l *Log) comeAgain(rng *rand.Rand, p *group.Peer, s *source, stamp uint64) string {
	l.SetZones(map[string]string{s.name: "a"})
	p.Up = false
	l.PeerDown(p)
	p.Up = true
	l.PeerUp(p)
	if rng.IntN(4) == 0 {
		l.MarkLost(s.name, max(1, s.pos.Inc), s.pos.Next+1)
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

// move makes p send a random claim about s.
func (l *Log) move(rng *rand.Rand, p *group.Peer, s *source, stamp uint64) string {
	h := l.of(p).claims[s.slot].pos
	at := Position{Inc: max(1, h.Inc) + uint64(rng.IntN(20)/19), Next: h.Next + uint64(rng.IntN(3)), Lost: h.Lost}
	payload := []byte{byte(rng.IntN(50) / 49)} // a member with another incarnation has other content
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
