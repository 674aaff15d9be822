package server

import (
	"testing"
	"time"
)

// place is a position in an engine's log during one incarnation.
type place struct{ life, next uint64 }

// change is the number of cached blocks of a prompt from a time on.
type change struct {
	place
	blocks int
	at     time.Time
}

// cachedBlocks is the number of cached blocks of a prompt over time.
type cachedBlocks []change

// claim is a replica's answer about an engine, given at some instant of a period, with the
// replica's position in the engine's log before and after it.
type claim struct {
	blocks        int
	before, after place
	from, to      time.Time
}

// oneLife is the largest number of names that one incarnation may use: see package plan.
const oneLife = 1000

// reached returns the index of the last change up to a place, -1 if there is none.
func (h cachedBlocks) reached(p place) int {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].life <= p.life && p.life < h[i].life+oneLife && h[i].next <= p.next {
			return i
		}
	}
	return -1
}

// known returns the first and the last change that the replica may have applied. A log that has
// dropped a source in order to start again has no place. Until then it was at its earlier place.
func (h cachedBlocks) known(c claim) (first, last int) {
	if c.before.life == 0 {
		c.before = place{c.after.life, 0}
	}
	if c.after.life == 0 {
		return h.reached(c.before), len(h) - 1
	}
	return h.reached(c.before), h.reached(c.after)
}

// age returns how long before the claim its answer was last correct. Only the changes that the
// replica may have applied count; a number that was correct at another time or in another
// incarnation does not. If a batch is being applied, a reader may see a part of it, and half is
// true. Such an answer counts as correct until the batch is complete.
func (h cachedBlocks) age(c claim) (age time.Duration, half, ever bool) {
	first, last := h.known(c)
	if first < 0 {
		return 0, false, false
	}
	for i := first; i <= last && !h[i].at.After(c.to); i++ {
		passing := i < last && h[i].life == h[i+1].life && (c.blocks-h[i].blocks)*(c.blocks-h[i+1].blocks) < 0
		if h[i].blocks != c.blocks && !passing {
			continue
		}
		age, half, ever = 0, h[i].blocks != c.blocks, true
		if i+1 < len(h) {
			age = max(0, c.from.Sub(h[i+1].at))
		}
	}
	return age, half, ever
}

// whole returns the claim of a replica that may have applied any change.
func (c claim) whole(h cachedBlocks) claim {
	if len(h) > 0 {
		c.before, c.after = h[0].place, h[len(h)-1].place
	}
	return c
}

func TestHistory(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	life := func(n uint64) func(next uint64) place {
		return func(next uint64) place { return place{n * 100_000, next} }
	}
	a, b := life(1), life(2)
	h := cachedBlocks{
		{a(0), 0, at(0)}, {a(3), 5, at(100)}, {a(7), 3, at(200)}, {a(8), 7, at(8000)},
		{b(0), 0, at(9000)}, {b(2), 5, at(9100)},
	}
	f := func(what string, c claim, age time.Duration, half, ever bool) {
		t.Helper()
		if gotAge, gotHalf, gotEver := h.age(c); gotAge != age || gotHalf != half || gotEver != ever {
			t.Errorf("%s: %v, half %v, ever %v, want %v, %v, %v", what, gotAge, gotHalf, gotEver, age, half, ever)
		}
	}
	f("true at that instant", claim{5, a(3), a(3), at(150), at(151)}, 0, false, true)
	f("true when it began to be asked", claim{5, a(3), a(7), at(199), at(201)}, 0, false, true)
	f("what came is not there yet", claim{3, a(7), a(7), at(8050), at(8051)}, 50*time.Millisecond, false, true)
	// By its number alone this answer would match the 5 blocks of 7.8 s ago.
	f("in the middle of a batch", claim{5, a(7), a(8), at(8002), at(8003)}, 2*time.Millisecond, true, true)
	f("old content with a number that is right by accident", claim{5, a(3), a(3), at(9200), at(9201)}, 9*time.Second, false, true)
	f("a number that this content never had", claim{5, a(7), a(7), at(9200), at(9201)}, 0, false, false)
	f("a number of the life before", claim{7, b(0), b(2), at(9050), at(9051)}, 0, false, false)
	f("nothing is between two lives", claim{4, a(8), b(0), at(9001), at(9002)}, 0, false, false)
	f("a place that the engine never was at", claim{5, place{7, 3}, place{7, 3}, at(150), at(151)}, 0, false, false)
	f("before the engine held it", claim{5, b(0), b(2), at(9050), at(9060)}, 0, false, false)
	f("the name of a life that was changed once", claim{5, place{a(3).life + 1, 3}, place{a(3).life + 1, 3}, at(150), at(151)}, 0, false, true)
	f("given up while it was asked", claim{7, a(8), place{}, at(9001), at(9002)}, time.Millisecond, false, true)
	f("listed while it was asked", claim{5, place{}, b(2), at(9101), at(9102)}, 0, false, true)
	f("never listed", claim{5, place{}, place{}, at(150), at(151)}, 0, false, false)
	f("whatever was known", claim{5, place{}, place{}, at(9200), at(9201)}.whole(h), 0, false, true)
}
