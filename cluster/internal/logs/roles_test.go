package logs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// TestRolesAreLookedAt: a role is checked whenever its inputs change. No unchecked role would have
// changed.
func TestRolesAreLookedAt(t *testing.T) {
	looks, sources := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		g := group.New(group.Options{Self: group.Member{ID: "a", Name: "a", Boot: 1}, Share: group.SharePartitioned})
		l := NewSet(g).New("index", 1, nothing{}, LogOptions{Owned: true})
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("s%d", i))
		}
		l.SetSources(names)
		for i := range 4 {
			p := g.Add(group.Member{ID: string(rune('b' + i)), Name: string(rune('b' + i)), Boot: 2})
			l.AddPeer(p)
			l.SetStated(p, 1)
		}
		for step := range 400 {
			what := change(rng, l, names, uint64(step))
			g.Now += time.Duration(rng.IntN(120)) * time.Millisecond
			if l.rolesDirty() || g.Now >= l.nextRoles {
				if l.undivided {
					looks += len(l.order)
				} else {
					if looks += len(l.moved); g.Now >= l.nextRoles {
						looks += len(l.orphans)
					}
				}
				sources += len(l.order)
				l.assignRoles()
			}
			for _, s := range l.order {
				since := s.orphan
				r, _ := l.roleOf(s)
				s.orphan = since
				if r != s.role && !slices.Contains(l.orphans, s) {
					t.Fatalf("seed %d, step %d, %s: role of %s is %v, want %v", seed, step, what, s.name, s.role, r)
				}
			}
			if len(l.orphans) > 0 && (l.nextRoles <= g.Now || l.nextRoles > g.Now+lookAgain) {
				t.Fatalf("seed %d, step %d: orphans are checked after %v", seed, step, l.nextRoles-g.Now)
			}
		}
	}
	t.Logf("%d of %d roles were looked at", looks, sources)
	if looks > sources*2/3 {
		t.Errorf("%d of %d roles were checked: nearly all of them each time", looks, sources)
	}
}

// TestOrphansAreLookedAtTogether: when a member that read thousands of streams dies, others take
// the streams over one by one. Each is checked when that happens, and the rest periodically.
func TestOrphansAreLookedAtTogether(t *testing.T) {
	const many = 1000
	g := group.New(group.Options{Self: group.Member{ID: "a", Name: "a", Boot: 1}, Share: group.SharePartitioned})
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{Owned: true})
	var names []string
	for i := range many {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	l.SetSources(names)
	p := g.Add(group.Member{ID: "b", Name: "b", Boot: 2})
	l.AddPeer(p)
	l.SetStated(p, 1)
	p.Up = true
	l.PeerUp(p)
	l.assignRoles() // half of them are the peer's, which reads none yet
	if len(l.orphans) < many/3 {
		t.Fatalf("%d sources wait for a reader", len(l.orphans))
	}
	looks := 0
	for i, n := range names {
		g.Now += time.Millisecond
		l.Reading(n, i%2 == 0)
		if l.rolesDirty() || g.Now >= l.nextRoles {
			l.assignRoles()
			looks += len(l.looked)
		}
	}
	if most := many + many*(many/int(lookAgain/time.Millisecond)+1); looks > most {
		t.Errorf("%d role checks for %d sources, want at most %d", looks, many, most)
	}
}

// change makes one random change to the inputs of roles.
func change(rng *rand.Rand, l *Log, names []string, stamp uint64) string {
	p, s := l.g.Peers[rng.IntN(len(l.g.Peers))], l.sources[names[rng.IntN(len(names))]]
	switch n := rng.IntN(40); {
	case n == 0:
		if p.Up = !p.Up; p.Up {
			l.PeerUp(p)
		} else {
			l.PeerDown(p)
		}
		return fmt.Sprintf("%s up: %v", p.ID, p.Up)
	case n == 1:
		p.Leaving = !p.Leaving
		l.Changed()
		return p.ID + " leaves, or not"
	case n == 2: // a full digest without other sources
		l.takeDigest(p, &group.Digests{Full: true, Stamp: stamp})
		return p.ID + " claims nothing"
	case n == 3:
		l.SetSources(names[rng.IntN(5):])
		l.SetSources(names)
		return "sources come and go"
	case n < 20:
		l.Reading(s.name, rng.IntN(2) == 0)
		return "reading " + s.name
	default:
		l.enter(s)
		l.hear(p, s, &group.Claim{Source: []byte(s.name), Reading: rng.IntN(3) > 0}, stamp)
		l.leave(s)
		return p.ID + " claims to read, or not, " + s.name
	}
}
