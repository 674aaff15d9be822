package vocab

import "encoding/binary"

// pieceTable finds the id of a token by its bytes: open addressing over a
// power of two, the bytes themselves live in the vocabulary's blob.
type pieceTable struct {
	slots []uint32 // id+1, 0 = empty
	tags  []uint8  // high hash bits, so that most misses touch no blob
	mask  uint32
	blob  []byte
	offs  []uint32
}

func newPieceTable(blob []byte, offs []uint32, ids []uint32) *pieceTable {
	size := uint32(16)
	for uint64(size) < uint64(len(ids))*2 {
		size *= 2
	}
	t := &pieceTable{
		slots: make([]uint32, size), tags: make([]uint8, size), mask: size - 1,
		blob: blob, offs: offs,
	}
	for _, id := range ids {
		piece := blob[offs[id]:offs[id+1]]
		h := hashBytes(piece)
		for i := uint32(h) & t.mask; ; i = (i + 1) & t.mask {
			if t.slots[i] == 0 {
				t.slots[i], t.tags[i] = id+1, uint8(h>>56)
				break
			}
			if o := t.slots[i] - 1; string(blob[offs[o]:offs[o+1]]) == string(piece) {
				break // the first id keeps the bytes
			}
		}
	}
	return t
}

// find returns the id whose bytes are piece.
func (t *pieceTable) find(piece []byte) (uint32, bool) {
	h := hashBytes(piece)
	tag := uint8(h >> 56)
	for i := uint32(h) & t.mask; ; i = (i + 1) & t.mask {
		s := t.slots[i]
		if s == 0 {
			return 0, false
		}
		if t.tags[i] == tag {
			a, b := t.offs[s-1], t.offs[s]
			if int(b-a) == len(piece) && string(t.blob[a:b]) == string(piece) {
				return s - 1, true
			}
		}
	}
}

// hashBytes is a quick non-cryptographic hash for short pieces; the table's contents are read from
// a trusted file and look-ups cannot add to it.
func hashBytes(p []byte) uint64 {
	const k0, k1 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(p)) * k0
	for len(p) >= 8 {
		h = mix(h ^ binary.LittleEndian.Uint64(p)*k1)
		p = p[8:]
	}
	var tail uint64
	switch {
	case len(p) >= 4:
		tail = uint64(binary.LittleEndian.Uint32(p)) | uint64(binary.LittleEndian.Uint32(p[len(p)-4:]))<<32
	case len(p) >= 2:
		tail = uint64(p[0]) | uint64(p[1])<<8 | uint64(p[len(p)-1])<<16
	case len(p) == 1:
		tail = uint64(p[0])
	}
	return mix(h ^ tail*k1)
}

func mix(h uint64) uint64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>29
}

// noMerge is the rank of a pair that does not merge.
const noMerge = ^uint32(0)

// pairTable maps a pair of ids to the merge's rank and the merged id.
type pairTable struct {
	keys []uint64 // left<<32|right, ^0 = empty
	vals []uint64 // rank<<32|id
	mask uint64
}

const emptyPair = ^uint64(0)

func newPairTable(n int) *pairTable {
	size := uint64(16)
	for size < uint64(n)*2 {
		size *= 2
	}
	t := &pairTable{keys: make([]uint64, size), vals: make([]uint64, size), mask: size - 1}
	for i := range t.keys {
		t.keys[i] = emptyPair
	}
	return t
}

// put sets a merge; the caller has sized the table. The last of two equal pairs wins, as in the
// reference implementation's map.
func (t *pairTable) put(left, right, rank, id uint32) {
	key := uint64(left)<<32 | uint64(right)
	i := mix(key*0x9e3779b97f4a7c15) & t.mask
	for t.keys[i] != emptyPair && t.keys[i] != key {
		i = (i + 1) & t.mask
	}
	t.keys[i], t.vals[i] = key, uint64(rank)<<32|uint64(id)
}

// find returns the rank of the pair and the merged id, or noMerge.
func (t *pairTable) find(left, right uint32) (rank, id uint32) {
	key := uint64(left)<<32 | uint64(right)
	i := mix(key*0x9e3779b97f4a7c15) & t.mask
	for {
		switch t.keys[i] {
		case key:
			return uint32(t.vals[i] >> 32), uint32(t.vals[i])
		case emptyPair:
			return noMerge, 0
		}
		i = (i + 1) & t.mask
	}
}
