package indexer

// A holder set is a sorted list of members, one per source that holds a
// block: slot<<tierBits | mask of tiers. Sets are immutable and interned:
// blocks held by the same sources carry the same set id, and a walk looks
// closer only where the id changes.
const (
	tierBits = 4
	tierMask = 1<<tierBits - 1
)

type holderSet struct {
	members []uint32
	hash    uint64
}

// bestTier returns the best tier of a member.
func bestTier(member uint32) Tier {
	m := member & tierMask
	for t := TierGPU; t < NumTiers; t++ {
		if m&(1<<t) != 0 {
			return t
		}
	}
	return TierGPU
}

const transitionSlots = 1 << 13

type setTable struct {
	table   ptrTable[holderSet]
	refs    []uint32 // nodes that carry the set
	gen     []uint32 // bumped when the id is reused
	byHash  map[uint64]uint32
	next    []uint32 // chain of equal hashes
	free    []uint32
	limbo   limbo
	cache   []transition
	scratch []uint32
	members int
}

// transition remembers the result of adding a member bit to a set, or of removing it.
type transition struct {
	from, fromGen, op, to, toGen uint32
}

func (t *setTable) init() {
	t.table.init()
	t.byHash = map[uint64]uint32{}
	t.cache = make([]transition, transitionSlots)
	t.newID(nil, 0) // id 0: nobody
	t.refs[0] = 1
}

// get returns the set named id. A reader must be inside an epoch.
func (t *setTable) get(id uint32) *holderSet { return t.table.get(id) }

// newID makes a set, in the memory of one that no reader can see any more if
// there is one.
func (t *setTable) newID(members []uint32, hash uint64) uint32 {
	var id uint32
	if n := len(t.free); n > 0 {
		id = t.free[n-1]
		t.free = t.free[:n-1]
		t.gen[id]++
		s := t.get(id)
		s.members, s.hash = append(s.members[:0], members...), hash
	} else {
		id = t.table.add(&holderSet{members: append([]uint32(nil), members...), hash: hash})
		t.refs, t.gen, t.next = append(t.refs, 0), append(t.gen, 1), append(t.next, 0)
	}
	t.members += len(members)
	return id
}

// flip returns the set that has the tier bit of a slot flipped against set id.
// The caller moves the node's reference with retain and release.
func (t *setTable) flip(id, slot uint32, tier Tier) uint32 {
	op := slot<<2 | uint32(tier)
	h := fold(uint64(id)<<32|uint64(op), 0x9e3779b97f4a7c15)
	c := &t.cache[h%transitionSlots]
	if c.from == id && c.op == op && c.fromGen == t.gen[id] && c.toGen == t.gen[c.to] && c.toGen != 0 {
		return c.to
	}
	to := t.intern(t.flipped(t.get(id).members, slot, tier))
	*c = transition{from: id, fromGen: t.gen[id], op: op, to: to, toGen: t.gen[to]}
	return to
}

// flipped builds the member list in scratch memory.
func (t *setTable) flipped(old []uint32, slot uint32, tier Tier) []uint32 {
	out, bit, seen := t.scratch[:0], uint32(1)<<tier, false
	for _, m := range old {
		switch s := m >> tierBits; {
		case s == slot:
			seen = true
			if m ^= bit; m&tierMask != 0 {
				out = append(out, m)
			}
			continue
		case s > slot && !seen:
			seen = true
			out = append(out, slot<<tierBits|bit)
		}
		out = append(out, m)
	}
	if !seen {
		out = append(out, slot<<tierBits|bit)
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

func (t *setTable) intern(members []uint32) uint32 {
	if len(members) == 0 {
		return 0
	}
	h := hashMembers(members)
	first := t.byHash[h]
	for id := first; id != 0; id = t.next[id] {
		if equalMembers(t.get(id).members, members) {
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

func (t *setTable) retain(id uint32) { t.refs[id]++ }

// release drops a node's reference; a set that nobody carries is retired.
func (t *setTable) release(e *epochs, id uint32) {
	t.refs[id]--
	if t.refs[id] != 0 {
		return
	}
	s := t.get(id)
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
	t.gen[id]++ // transitions to it are void at once
	t.members -= len(s.members)
	t.limbo.retire(e, id)
}

func (t *setTable) reclaim(e *epochs) {
	t.limbo.reclaim(e, func(id uint32) { t.free = append(t.free, id) })
}

func (t *setTable) live() int { return len(t.refs) - len(t.free) - t.limbo.pending() }

func (t *setTable) bytes() int {
	return t.table.bytes() + cap(t.refs)*12 + t.live()*(40+32) + t.members*4 + len(t.cache)*20
}
