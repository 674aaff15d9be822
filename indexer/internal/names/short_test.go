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
