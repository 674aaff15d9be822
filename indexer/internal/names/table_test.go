package names

import (
	"math/rand/v2"
	"testing"
)

// aliasModel is a naive model of aliases.
type aliasModel map[uint64]map[[2]uint32]uint32 // (node, kind) to count

func (m aliasModel) entries() int {
	n := 0
	for _, e := range m {
		n += len(e)
	}
	return n
}

// removeBoth removes a copy as the index does and reports whether table and model give the same
// result.
func removeBoth(a *Table, m aliasModel, h uint64, kind uint32) bool {
	want := false
	for k := range m[h] {
		if k[1] != kind {
			continue
		}
		want = true
		if m[h][k]--; m[h][k] == 0 {
			delete(m[h], k)
		}
	}
	var found bool
	if a.Repeats {
		found, _ = a.Lower(h, kind)
		for e := a.Unreferenced(h); e != nil; e = a.Unreferenced(h) {
			a.Remove(*e)
		}
	} else {
		_, found = a.LowerOnly(h, kind)
	}
	return found == want
}

// exact returns the entry of (hash, node, kind), or nil.
func (a *Table) exact(h uint64, node, kind uint32) *Entry {
	s, i := a.Find(h)
	for e, i := s.Next(h, i); e != nil; e, i = s.Next(h, i) {
		if e.Node == node && e.Kind() == kind {
			return e
		}
	}
	return nil
}

func (a *Table) check(t *testing.T, m aliasModel) {
	t.Helper()
	if a.n != m.entries() {
		t.Fatalf("%d entries, want %d", a.n, m.entries())
	}
	n := 0
	a.each(func(s *Segment) {
		for _, e := range s.slots {
			if e.Meta == 0 {
				continue
			}
			n++
			if m[e.Hash][[2]uint32{e.Node, e.Kind()}] != e.Count() || a.exact(e.Hash, e.Node, e.Kind()) == nil {
				t.Fatalf("%+v, want count %d", e, m[e.Hash][[2]uint32{e.Node, e.Kind()}])
			}
		}
	})
	if n != a.n {
		t.Fatalf("%d entries in segments, %d counted", n, a.n)
	}
}

// A table of names through growth, splits and removals, with hashes of one
// entry and of several, and with hashes that crowd into one segment.
func TestAliasesLaw(t *testing.T) {
	for name, c := range map[string]struct {
		hashes, nodes int
		crowd         bool
	}{
		"one entry each": {20_000, 1, false},
		"several":        {2_000, 3, false},
		"crowded":        {3_000, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(c.hashes), 1))
			hashes := make([]uint64, c.hashes)
			for i := range hashes {
				if hashes[i] = r.Uint64(); c.crowd {
					for mixHash(hashes[i])>>58 != 0 {
						hashes[i]++
					}
				}
			}
			hashes[0] = 0
			a, m := New(), aliasModel{}
			for step := range 15 * c.hashes {
				h := hashes[r.IntN(len(hashes))]
				k := [2]uint32{uint32(1 + r.IntN(c.nodes)), KindOf(uint8(r.IntN(c.nodes)), 0)}
				if fill := step/c.hashes%5 < 3; fill == (r.IntN(4) > 0) {
					if m[h] == nil {
						m[h] = map[[2]uint32]uint32{}
					}
					if fresh := a.Raise(h, k[0], k[1], false); fresh != (m[h][k] == 0) {
						t.Fatalf("step %d: fresh is %v", step, fresh)
					}
					m[h][k]++
				} else if !removeBoth(a, m, h, k[1]) {
					t.Fatalf("step %d: table and model differ on a removal", step)
				}
				if step%(2*c.hashes) == 0 {
					a.check(t, m)
				}
			}
			a.check(t, m)
		})
	}
}
