package translate

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// keepFresh is the maximum table size that a fresh keeps.
const keepFresh = 1 << 12

// fresh finds blocks of the current delta by name. Blocks are entered on the first lookup, so a
// batch costs at most one entry per block, in any order of parents.
type fresh struct {
	at   map[block.EngineHash]int
	next int // first block not entered yet
}

// reset removes all names. Blocks before next are never found.
func (f *fresh) reset(next int) {
	if f.next = next; len(f.at) > keepFresh {
		f.at = nil
	}
	clear(f.at)
}

// find returns the key of the latest block named h.
func (f *fresh) find(blocks []block.StoredBlock, h block.EngineHash) (block.Key, bool) {
	if f.at == nil && f.next < len(blocks) {
		f.at = make(map[block.EngineHash]int)
	}
	for ; f.next < len(blocks); f.next++ {
		f.at[blocks[f.next].Hash] = f.next
	}
	i, ok := f.at[h]
	if !ok {
		return 0, false
	}
	return blocks[i].Key, true
}
