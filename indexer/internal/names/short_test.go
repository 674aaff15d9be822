package names

import (
	"math/rand/v2"
	"testing"
)

// sameName are hashes in pairs of one short name each.
var sameName = func() (out []uint64) {
	rng, first := rand.New(rand.NewPCG(3, 3)), map[Short]uint64{}
	for range 1 << 18 {
		h := rng.Uint64()
		if other, twice := first[shortOf(mixHash(h))]; twice {
			out = append(out, other, h)
		}
		first[shortOf(mixHash(h))] = h
	}
	return out
}()

// Short names are found in tables of every size.
func TestShortNames(t *testing.T) {
	rng, a := rand.New(rand.NewPCG(2, 1)), New()
	held := map[uint64]bool{}
	check := func(h uint64) {
		e, is := a.ByShort(shortOf(mixHash(h)))
		if is == One && (e.Hash == h) != held[h] || is == None && held[h] {
			t.Fatalf("%x (held: %v) of %d: %v %+v", h, held[h], a.n, is, e)
		}
	}
	for i := range 60_000 {
		h := rng.Uint64()
		if i < len(sameName) {
			h = sameName[i]
		}
		held[h] = a.Raise(h, uint32(i+1), KindOf(0, 0), false)
		check(h)
		check(rng.Uint64())
	}
	many := 0
	for i, h := range sameName {
		if _, is := a.ByShort(shortOf(mixHash(h))); is == Many {
			many++
		}
		if i%2 == 0 {
			continue
		}
		if _, ok := a.LowerOnly(h, KindOf(0, 0)); ok {
			delete(held, h)
		}
	}
	if many != len(sameName) {
		t.Errorf("%d of %d names of two are seen to be such", many, len(sameName))
	}
	for h := range held {
		check(h)
	}
}

// A table that was made for its entries holds them without growing.
func TestSizedTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 200, 1000, 1300, 20_000, 131_072, 500_000} {
		a := Sized(n)
		slots := a.slots
		for i := range n {
			a.Raise(r.Uint64(), uint32(i+1), taken, false)
		}
		if a.n != n || a.slots > slots+slots/50 || n > 1000 && slots*3 > 5*n {
			t.Errorf("%d entries: %d slots, then %d", n, slots, a.slots)
		}
	}
}

// A table with an announced size has space for at most four times its content.
func TestAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, most := range []int{0, 1000, 30_000, 300_000, 1 << 30} {
		a, held, rebuilt := New(), []Entry{}, 0
		for i := range 200_000 {
			if b := a.Ahead(most); b != a {
				if a, rebuilt = b, rebuilt+1; !a.Repeats {
					t.Fatal("the index has lost that a hash has two entries")
				}
			}
			e := Entry{Hash: r.Uint64(), Node: uint32(i + 1), Meta: one | KindOf(0, uint8(i%3))}
			if i%100 == 7 {
				e.Hash = held[i-1].Hash // one hash, two entries
			}
			a.Raise(e.Hash, e.Node, e.Kind(), false)
			held = append(held, e)
			if a.slots > 7*a.n+2*segmentMax {
				t.Fatalf("%d announced: %d slots for %d entries", most, a.slots, a.n)
			}
		}
		found := 0
		for _, e := range held {
			if a.Has(e.Hash, e.Node) {
				found++
			}
		}
		if found != len(held) || a.n != len(held) || !a.Repeats || rebuilt > 6 || (most > len(held)) != (rebuilt > 3) {
			t.Errorf("%d announced: %d of %d entries are found (%d counted), rebuilt %d times", most, found, len(held), a.n, rebuilt)
		}
	}
}
