package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/internal/names"

	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
)

// Trim makes a source let go of the blocks of q that lie beyond keep bytes, as
// far as it is thought to hold them, and returns the engine hashes that it let
// go of. It is the answer to an engine that reports fewer cached tokens than
// were predicted. It costs a scan of the source's blocks and holds up writers
// meanwhile; readers go on.
func (x *Index) Trim(name Source, q Query, keep int) []EngineHash {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sources[name]
	if s == nil {
		return nil
	}
	beyond := x.heldBeyond(s, q, keep)
	if len(beyond) == 0 {
		return nil
	}
	var gone []names.Entry
	s.names.Where(func(e *names.Entry) {
		if beyond[e.Node] {
			gone = append(gone, *e)
		}
	})
	hashes := make([]EngineHash, 0, len(gone))
	for i := range gone {
		e := &gone[i]
		s.names.Remove(*e)
		x.letGo(s, e)
		hashes = append(hashes, EngineHash(e.Hash))
	}
	x.reclaim()
	return hashes
}

// heldBeyond walks q and returns the nodes that end beyond keep and that s holds.
func (x *Index) heldBeyond(s *source, q Query, keep int) map[uint32]bool {
	root := x.table.find(uint64(q.Root))
	if root == 0 {
		return nil
	}
	nodes := map[uint32]bool{}
	id, key, rest := root, q.Root, q.Bytes
	for {
		n, _ := x.step(x.o.Hasher, x.nodes.at(id), &key, rest)
		if n == nil {
			return nodes
		}
		id = x.child(x.nodes.at(id), uint64(key), n.apart())
		rest = rest[n.length.Load():]
		if len(q.Bytes)-len(rest) > keep && x.slotIn(n.set.Load(), s.slot) {
			nodes[id] = true
		}
	}
}

func (x *Index) slotIn(set, slot uint32) bool {
	for _, m := range x.sets.Get(set).Members {
		if m>>lockfree.TierBits == slot {
			return true
		}
	}
	return false
}
