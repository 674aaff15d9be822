package indexer

// In a large index every look at a name or a node is a cache miss. Misses that do
// not wait for each other overlap: so whoever knows what is going to be needed reads
// it first, a window at a time.
const window = 64

// ahead holds parents that were looked up before the stores below them are applied,
// in the same order. It is void as soon as one name is gone.
type ahead struct {
	parents []parentNode
	next    int
}

type parentNode struct {
	hash EngineHash
	node uint32
}

const maxAhead = 1 << 10

func (a *ahead) empty() bool { return a.next == len(a.parents) }

func (a *ahead) clear() { a.parents, a.next = a.parents[:0], 0 }

func (a *ahead) add(h EngineHash, node uint32) {
	if len(a.parents) < maxAhead {
		a.parents = append(a.parents, parentNode{h, node})
	}
}

// take returns the node of h if it is the next parent, else 0.
func (a *ahead) take(h EngineHash) uint32 {
	if a.next == len(a.parents) || a.parents[a.next].hash != h {
		return 0
	}
	a.next++
	return a.parents[a.next-1].node
}

// Parents sets keys[i] to the key of the block that a source knows under the engine
// hash parents[i], or to 0, and reads what Apply is going to need for stores below
// these parents, in this order, and for blocks that are going to be stored. keys must
// be as long as parents. Many at once cost less than a Lookup for each.
func (x *Index) Parents(name Source, parents, blocks []EngineHash, keys []BlockKey) {
	clear(keys)
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sources[name]
	if s == nil {
		return
	}
	for len(parents)+len(blocks) > 0 {
		p, b := min(window, len(parents)), min(window, len(blocks))
		x.window(s, parents[:p], blocks[:b], keys)
		parents, keys, blocks = parents[p:], keys[p:], blocks[b:]
	}
}

// reads collects names that are going to be needed, at most a window, to read them in
// one loop that does nothing else: only then does the processor wait for many at a time.
type reads struct {
	list [window]*entry
	n    int
}

func (r *reads) add(e *entry) {
	r.list[r.n&(window-1)] = e
	r.n++
}

func (r *reads) run() (sum uint32) {
	for _, e := range r.list[:r.n] {
		sum += e.node
	}
	r.n = 0
	return sum
}

// readNames reads the lines where the search for hashes begins, at most a window.
func (x *Index) readNames(r *reads, s *source, hashes []EngineHash) {
	for _, h := range hashes {
		r.add(s.names.home(h))
	}
	x.sink += r.run()
}

// readBehind reads the lines where the search for hashes goes on, if it does.
func (x *Index) readBehind(r *reads, s *source, hashes []EngineHash) {
	for _, h := range hashes {
		r.add(s.names.behind(h))
	}
	x.sink += r.run()
}

// window reads what stores of blocks need, and finds the keys of parents.
func (x *Index) window(s *source, parents, blocks []EngineHash, keys []BlockKey) {
	var r reads
	x.readNames(&r, s, parents)
	x.readNames(&r, s, blocks)
	x.readBehind(&r, s, blocks)
	var above [window]*node
	for i, h := range parents {
		above[i] = x.nodes.at(0)
		if e := s.names.first(h); e != nil {
			above[i] = x.nodes.at(e.node)
			s.ahead.add(h, e.node)
		}
	}
	for i, n := range above[:len(parents)] {
		keys[i] = BlockKey(n.key.Load())
	}
}

func (x *Index) warmBlocks(s *source, blocks []StoredBlock) {
	var hashes [window]EngineHash
	for i := range blocks {
		hashes[i] = blocks[i].Hash
	}
	var r reads
	x.readNames(&r, s, hashes[:len(blocks)])
	x.readBehind(&r, s, hashes[:len(blocks)])
}

// warmNodes reads the nodes of entries, at most a window, and those above.
func (x *Index) warmNodes(entries []entry) {
	var nodes [window]*node
	for i := range entries {
		nodes[i] = x.nodes.at(entries[i].node)
	}
	for i, n := range nodes[:len(entries)] {
		nodes[i] = x.nodes.at(n.parent)
	}
	for _, n := range nodes[:len(entries)] {
		x.sink += n.length.Load()
	}
}

// warmOps touches what the first steps of operations need: the names of the
// parent and of the first block.
func (x *Index) warmOps(s *source, d *Delta, ops []Op) {
	for i := range ops {
		op := &ops[i]
		if op.Kind != OpStore || op.N == 0 {
			continue
		}
		x.sink += s.names.home(d.Blocks[op.First].Hash).node
		if !op.Root {
			x.sink += s.names.home(op.Parent).node
		}
	}
}
