package indexer

const snapshotBlocks = 4096 // blocks in one page

// Snapshot returns deltas that, applied in order to a source that holds
// nothing, give it the present state of a source: the same blocks, counts and
// digest. Writers wait while it is made; readers do not.
func (x *Index) Snapshot(name Source) []Delta {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sources[name]
	if s == nil || s.names.n == 0 {
		return nil
	}
	d := &dump{x: x, held: map[uint32][]entry{}, sent: map[uint32]bool{}}
	s.names.each(func(g *segment) {
		for i := range g.slots {
			if e := g.slots[i]; e.meta != 0 {
				d.held[e.node] = append(d.held[e.node], e)
			}
		}
	})
	d.page()
	s.names.each(func(g *segment) {
		for i := range g.slots {
			if e := g.slots[i]; e.meta != 0 && !d.sent[e.node] {
				d.chain(e.node)
			}
		}
	})
	return d.pages
}

// dump builds the pages of a snapshot.
type dump struct {
	x     *Index
	held  map[uint32][]entry
	sent  map[uint32]bool
	path  []uint32
	pages []Delta
	cur   *Delta
	above anchor
	open  bool // the last op may be continued
}

// anchor is the place below which the next op may start: the root, or a block
// that the source holds, and the blocks since then that it does not hold.
type anchor struct {
	op    Op
	holes []uint32
}

func (d *dump) page() {
	d.pages = append(d.pages, Delta{})
	d.cur = &d.pages[len(d.pages)-1]
}

// chain sends node id and its unsent ancestors, the highest first.
func (d *dump) chain(id uint32) {
	if len(d.cur.Blocks) >= snapshotBlocks {
		d.page()
	}
	d.path = d.path[:0]
	up := id
	for {
		d.path = append(d.path, up)
		up = d.x.nodes.at(up).parent
		if d.x.nodes.at(up).parent == 0 || d.sent[up] {
			break
		}
	}
	d.above = anchor{op: Op{Kind: OpStore, From: BlockKey(d.x.nodes.at(up).key.Load()), Root: !d.sent[up]}}
	if d.sent[up] {
		d.above.op.Parent = d.held[up][0].hash
	}
	d.open = false
	for i := len(d.path) - 1; i >= 0; i-- {
		d.block(d.path[i])
	}
}

// block sends one block of a path: all its copies, or a hole.
func (d *dump) block(id uint32) {
	entries := d.held[id]
	if len(entries) == 0 {
		d.above.holes = append(d.above.holes, id)
		return
	}
	for _, e := range entries {
		for range e.count() {
			d.copy(id, e)
		}
	}
	d.open = len(entries) == 1 && entries[0].count() == 1
	d.sent[id] = true
	d.above = anchor{op: Op{Kind: OpStore, From: BlockKey(d.x.nodes.at(id).key.Load()), Parent: entries[0].hash}, holes: d.above.holes[:0]}
}

// copy sends one copy of a block, in the last op when that can be continued.
func (d *dump) copy(id uint32, e entry) {
	tier, group := e.tier(), uint8(e.meta>>8)
	if n := len(d.cur.Ops); !d.open || d.cur.Ops[n-1].Tier != tier || d.cur.Ops[n-1].Group != group {
		op := d.above.op
		op.Tier, op.Group, op.First = tier, group, uint32(len(d.cur.Blocks))
		d.cur.Ops = append(d.cur.Ops, op)
	}
	d.open = false // a second copy starts at the anchor again
	op := &d.cur.Ops[len(d.cur.Ops)-1]
	for _, h := range d.above.holes {
		d.add(op, h, 0, FlagHole)
	}
	d.add(op, id, e.hash, 0)
}

func (d *dump) add(op *Op, id uint32, h EngineHash, flags BlockFlags) {
	n := d.x.nodes.at(id)
	d.cur.Blocks = append(d.cur.Blocks, StoredBlock{
		Hash: h, Key: BlockKey(n.key.Load()), Bytes: n.length.Load(), Tokens: n.tokens(), Flags: n.flags() | flags,
	})
	op.N++
}
