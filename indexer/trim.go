package indexer

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
	var gone []entry
	s.names.each(func(g *segment) {
		for i := range g.slots {
			if e := g.slots[i]; e.meta != 0 && beyond[e.node] {
				gone = append(gone, e)
			}
		}
	})
	hashes := make([]EngineHash, 0, len(gone))
	for i := range gone {
		e := &gone[i]
		s.names.remove(*e)
		x.letGo(s, e)
		hashes = append(hashes, e.hash)
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
	for _, m := range x.sets.get(set).members {
		if m>>tierBits == slot {
			return true
		}
	}
	return false
}
