package lockfree

import "math/bits"

// A member of a set is slot<<TierBits | mask of tiers.
const (
	TierBits = 4
	TierMask = 1<<TierBits - 1
)

// Set lists the sources that hold a block, sorted by slot. Sets are immutable and interned: blocks
// held by the same sources have the same set id, and a walk examines sets only where the id
// changes.
type Set struct {
	Members []uint32
	hash    uint64
}

// BestTier returns the best, which is the lowest, tier of a member.
func BestTier(member uint32) uint8 { return uint8(bits.TrailingZeros32(member&TierMask)) % TierBits }

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// Has reports whether a slot is among the members.
func (s *Set) Has(slot uint32) bool {
	low, high := 0, len(s.Members)
	for low < high {
		if mid := (low + high) / 2; s.Members[mid]>>TierBits < slot {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(s.Members) && s.Members[low]>>TierBits == slot
}

const transitionSlots = 1 << 13

// Sets holds all holder sets in use. Id 0 is the empty set. There is one writer; any number of
// readers may call Get.
type Sets struct {
	table   Table[Set]
	refs    []uint32 // number of nodes with the set
	gen     []uint32 // incremented when the id is reused
	byHash  map[uint64]uint32
	next    []uint32 // chain of equal hashes
	free    []uint32
	limbo   Limbo
	cache   []transition
	scratch []uint32
	members int
}

// transition caches the result of flipping a member bit of a set.
type transition struct {
	from, fromGen, op, to, toGen uint32
}

// Init initializes the zero value.
func (t *Sets) Init() {
	t.table.Init()
	t.byHash = map[uint64]uint32{}
	t.cache = make([]transition, transitionSlots)
	t.newID(nil, 0) // id 0: the empty set
	t.refs[0] = 1
}

// Get returns the set with an id. A reader must be inside an epoch.
func (t *Sets) Get(id uint32) *Set { return t.table.Get(id) }

// newID creates a set, reusing the memory of a reclaimed one if possible.
func (t *Sets) newID(members []uint32, hash uint64) uint32 {
	var id uint32
	if n := len(t.free); n > 0 {
		id = t.free[n-1]
		t.free = t.free[:n-1]
		t.gen[id]++
		s := t.Get(id)
		s.Members, s.hash = append(s.Members[:0], members...), hash
	} else {
		id = t.table.Add(&Set{Members: append([]uint32(nil), members...), hash: hash})
		t.refs, t.gen, t.next = append(t.refs, 0), append(t.gen, 1), append(t.next, 0)
	}
	t.members += len(members)
	return id
}

// ToggleTier returns the set that differs from set id in the tier bit of a slot. The caller updates
// references with Retain and Release.
func (t *Sets) ToggleTier(id, slot uint32, tier uint8) uint32 {
	op := slot<<2 | uint32(tier)
	h := fold(uint64(id)<<32|uint64(op), 0x9e3779b97f4a7c15)
	c := &t.cache[h%transitionSlots]
	if c.from == id && c.op == op && c.fromGen == t.gen[id] && c.toGen == t.gen[c.to] && c.toGen != 0 {
		return c.to
	}
	to := t.intern(t.flipped(t.Get(id).Members, slot, tier))
	*c = transition{from: id, fromGen: t.gen[id], op: op, to: to, toGen: t.gen[to]}
	return to
}

// flipped builds the member list in scratch memory.
func (t *Sets) flipped(old []uint32, slot uint32, tier uint8) []uint32 {
	out, bit, seen := t.scratch[:0], uint32(1)<<tier, false
	for _, m := range old {
		switch s := m >> TierBits; {
		case s == slot:
			seen = true
			if m ^= bit; m&TierMask != 0 {
				out = append(out, m)
			}
			continue
		case s > slot && !seen:
			seen = true
			out = append(out, slot<<TierBits|bit)
		}
		out = append(out, m)
	}
	if !seen {
		out = append(out, slot<<TierBits|bit)
	}
	t.scratch = out
	return out
}

func hashMembers(m []uint32) uint64 {
	h := uint64(len(m))
	for _, v := range m {
		h = fold(h^uint64(v), 0xd1b54a32d192ed03) + 1
	}
	return h
}

func (t *Sets) intern(members []uint32) uint32 {
	if len(members) == 0 {
		return 0
	}
	h := hashMembers(members)
	first := t.byHash[h]
	for id := first; id != 0; id = t.next[id] {
		if equalMembers(t.Get(id).Members, members) {
			return id
		}
	}
	id := t.newID(members, h)
	t.next[id] = first
	t.byHash[h] = id
	return id
}

func equalMembers(a, b []uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Retain counts one more node with a set.
func (t *Sets) Retain(id uint32) { t.refs[id]++ }

// Release removes a node's reference. A set without references is retired.
func (t *Sets) Release(e *Epochs, id uint32) {
	t.refs[id]--
	if t.refs[id] != 0 {
		return
	}
	s := t.Get(id)
	if t.byHash[s.hash] == id {
		if t.next[id] == 0 {
			delete(t.byHash, s.hash)
		} else {
			t.byHash[s.hash] = t.next[id]
		}
	} else {
		p := t.byHash[s.hash]
		for t.next[p] != id {
			p = t.next[p]
		}
		t.next[p] = t.next[id]
	}
	t.next[id] = 0
	t.gen[id]++ // invalidates transitions to it
	t.members -= len(s.Members)
	t.limbo.Retire(e, id)
}

// Reclaim makes ids reusable that no reader can see any more.
func (t *Sets) Reclaim(e *Epochs) {
	t.limbo.Reclaim(e, func(id uint32) { t.free = append(t.free, id) })
}

// Pending returns the number of ids that wait for readers.
func (t *Sets) Pending() int { return t.limbo.Pending() }

// Live returns the number of sets in use, including the empty set.
func (t *Sets) Live() int { return len(t.refs) - len(t.free) - t.limbo.Pending() }

// Bytes returns the memory of all sets.
func (t *Sets) Bytes() int {
	return t.table.Bytes() + cap(t.refs)*12 + t.Live()*(40+32) + t.members*4 + len(t.cache)*20
}
