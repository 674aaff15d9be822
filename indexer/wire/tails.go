package wire

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// tailReach is the number of tails kept: enough to find a parent among the stores of several
// hundred concurrently decoding sequences.
const tailReach = 512

// Tails records the last blocks of the latest stores of a source, by which the short form of a
// delta names parents. It depends only on the deltas since Reset: all replicas that applied the
// same deltas since any moment agree on the tails since then. The zero value is empty. It is not
// safe for concurrent use.
type Tails struct {
	hashes []block.EngineHash // a ring once it is full
	next   int                // position of the next one
}

// Reset removes all tails, because a delta is missing before the next one.
func (t *Tails) Reset() { t.hashes, t.next = t.hashes[:0], 0 }

// Note records the tails of an applied delta.
func (t *Tails) Note(d *block.Delta) {
	for i := range d.Ops {
		if op := &d.Ops[i]; op.Kind == block.OpStore && op.N > 0 {
			t.push(d.Blocks[op.First+op.N-1].Hash)
		}
	}
}

func (t *Tails) push(h block.EngineHash) {
	if len(t.hashes) < tailReach {
		t.hashes = append(t.hashes, h)
		return
	}
	t.hashes[t.next] = h
	if t.next++; t.next == tailReach {
		t.next = 0
	}
}

// back returns the tail that is n stores back, from 1.
func (t *Tails) back(n int) (block.EngineHash, bool) {
	if n < 1 || n > len(t.hashes) {
		return 0, false
	}
	i := t.next - n
	if i < 0 {
		i += len(t.hashes)
	}
	return t.hashes[i], true
}

// find returns how many stores back a tail is, 0 if it is not within reach.
func (t *Tails) find(h block.EngineHash, reach int) int {
	for i := t.next - 1; i >= 0; i-- {
		if t.hashes[i] == h {
			return within(t.next-i, reach)
		}
	}
	for i := len(t.hashes) - 1; i >= t.next; i-- {
		if t.hashes[i] == h {
			return within(t.next-i+len(t.hashes), reach)
		}
	}
	return 0
}

func within(n, reach int) int {
	if n > reach {
		return 0
	}
	return n
}

// AppendPage appends an encoded Delta with the tails: removals, oldest first. Applied to an empty
// source it has no effect, so versions without tails can read it before the blocks of a snapshot.
func (t *Tails) AppendPage(dst []byte) []byte {
	d := block.Delta{Hashes: append(append([]block.EngineHash{}, t.hashes[t.next:]...), t.hashes[:t.next]...)}
	d.Ops = []block.Op{{Kind: block.OpRemove, N: uint32(len(d.Hashes))}}
	return AppendDelta(dst, &d)
}

// Take sets the tails from a page of AppendPage, and reports whether d is one.
func (t *Tails) Take(d *block.Delta) bool {
	if len(d.Ops) != 1 || d.Ops[0].Kind != block.OpRemove || len(d.Blocks) > 0 {
		return false
	}
	t.Reset()
	for _, h := range d.Hashes {
		t.push(h)
	}
	return true
}
