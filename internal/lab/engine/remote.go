package engine

// This file implements prompts that one engine computes for another: blocks that outlive their
// request, and prompts with blocks of another engine.

// hold keeps the blocks of an ended sequence.
func (e *Engine) hold(s *seq) {
	if e.kept == nil {
		e.kept = map[uint64]*seq{}
	}
	e.kept[s.ID] = s
}

// HeldBlocks returns the physical blocks that are kept for an ended request, nil when none
// are.
func (e *Engine) HeldBlocks(id uint64) []int32 {
	if s := e.kept[id]; s != nil {
		return s.blocks
	}
	return nil
}

// Release frees the blocks of an ended request that was submitted with Hold. It returns false if
// the request has none.
func (e *Engine) Release(id uint64) bool {
	s := e.kept[id]
	if s == nil {
		return false
	}
	e.settle()
	delete(e.kept, id)
	e.giveBack(s)
	e.recycle(s)
	e.blocked = false
	return true
}

// Cached returns how many leading blocks of a chain of names are in the prefix cache.
func (e *Engine) Cached(names []Hash) (n int) {
	if e.cfg.NoPrefixCache {
		return 0
	}
	for n < len(names) {
		if _, ok := e.pool.lookup(names[n]); !ok {
			break
		}
		n++
	}
	return n
}
