package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// Stage prepares new content that replaces a source's content atomically. Match does not see it
// before. It must be used by one goroutine at a time. Other writers of the index wait for at most
// some thousand blocks.
type Stage struct {
	x    *Index
	s    *source // nil when it is over
	most int     // blocks that are announced
}

// Stage begins new content for a source, of about blocks blocks as announced by a peer. Memory is
// reserved for at most four times the received number. Exactly one of Commit and Discard must
// follow.
func (x *Index) Stage(name block.Source, blocks int) *Stage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return &Stage{x, x.newSource(name, names.New(), true), min(blocks, x.o.MaxSourceBlocks)}
}

// stageStep is the number of blocks applied before other writers may proceed: a third of a
// millisecond's work.
const stageStep = 2048

// Apply performs the operations of d in order, as Index.Apply does.
func (t *Stage) Apply(d *block.Delta) (sum ApplyStats) {
	t.s.names = t.s.names.Ahead(t.most) // outside of the lock: only a stage looks at its names
	for ops := d.Ops; len(ops) > 0; {
		n, blocks := 0, 0
		for n < len(ops) && blocks < stageStep {
			blocks += int(ops[n].N)
			n++
		}
		sum.add(t.step(&block.Delta{Ops: ops[:n], Blocks: d.Blocks, Hashes: d.Hashes}))
		ops = ops[n:]
	}
	return sum
}

func (t *Stage) step(d *block.Delta) ApplyStats {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.x.perform(&t.s, d)
}

// Digest returns the value of Index.Digest after Commit.
func (t *Stage) Digest() (count, xor uint64) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return uint64(t.s.names.Len()), t.s.xor
}

// Commit replaces the source's content. A walk sees either the old or the new content. Its duration
// does not depend on the source's size.
func (t *Stage) Commit() {
	x, s := t.x, t.s
	x.mu.Lock()
	defer x.mu.Unlock()
	// At the size limit, blocks that a snapshot could not include may be missing.
	s.over = s.over || s.names.Len() >= x.o.MaxSourceBlocks
	s.staged = false
	old := x.sources[s.name]
	next := x.slots.Load().With(int(s.slot), slotOwner{source: s.name, live: true, rules: s.rules})
	if old == nil {
		x.slots.Store(next)
		x.enter(s)
	} else {
		x.slots.Store(next.With(int(old.slot), slotOwner{source: s.name})) // both at once
		x.sources[s.name] = s
		x.show(s.name.Endpoint, 0, one(s.over)-one(old.over))
		x.inter(old)
	}
	x.reclaim()
	t.s = nil
}

// Discard drops the new content. It may be called after the stage has ended.
func (t *Stage) Discard() {
	if t.s == nil {
		return
	}
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.x.clear(t.s)
	t.x.reclaim()
	t.s = nil
}
