package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// In a large index every access to a name or a node is a cache miss. Independent misses overlap, so
// data that will be needed is read first, a window at a time.
const window = 64

// ahead holds parents looked up before the stores below them, in the same order. Any removed name
// invalidates it.
type ahead struct {
	parents []parentNode
	next    int
}

type parentNode struct {
	hash block.EngineHash
	node uint32
}

const maxAhead = 1 << 10

func (a *ahead) empty() bool { return a.next == len(a.parents) }

func (a *ahead) clear() { a.parents, a.next = a.parents[:0], 0 }

func (a *ahead) add(h block.EngineHash, node uint32) {
	if len(a.parents) < maxAhead {
		a.parents = append(a.parents, parentNode{h, node})
	}
}

// take returns the node of h if it is the next parent, and otherwise 0.
func (a *ahead) take(h block.EngineHash) uint32 {
	if a.next == len(a.parents) || a.parents[a.next].hash != h {
		return 0
	}
	a.next++
	return a.parents[a.next-1].node
}

// Parents sets keys[i] to the key of the source's block with engine hash parents[i], or to 0. It
// prefetches the data that Apply needs for stores below these parents, in this order, and for the
// given blocks. keys must have the length of parents. It is cheaper than a Lookup for each.
func (x *Index) Parents(name block.Source, parents, blocks []block.EngineHash, keys []block.Key) {
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

// reads collects names to prefetch, at most a window, and reads them in one tight loop, so that the
// processor overlaps their misses. For each it reads the line where the search begins and the one
// where it may continue.
type reads struct {
	list [window][2]*names.Entry
	n    int
}

func (r *reads) add(a *names.Table, h block.EngineHash) {
	r.list[r.n&(window-1)] = a.Lines(uint64(h))
	r.n++
}

func (r *reads) run() (sum uint32) {
	for i := range r.list[:r.n] {
		sum += r.list[i][0].Node + r.list[i][1].Node
	}
	r.n = 0
	return sum
}

// readNames reads the names of hashes, at most a window.
func (x *Index) readNames(r *reads, s *source, hashes []block.EngineHash) {
	for _, h := range hashes {
		r.add(s.names, h)
	}
	x.sink += r.run()
}

// window reads the data that stores of blocks need, and finds the keys of parents.
func (x *Index) window(s *source, parents, blocks []block.EngineHash, keys []block.Key) {
	var r reads
	x.readNames(&r, s, parents)
	x.readNames(&r, s, blocks)
	var above [window]*node
	for i, h := range parents {
		above[i] = x.nodes.at(0)
		if e := s.names.First(uint64(h)); e != nil {
			above[i] = x.nodes.at(e.Node)
			s.ahead.add(h, e.Node)
		}
	}
	for i, n := range above[:len(parents)] {
		keys[i] = block.Key(n.key.Load())
	}
}

func (x *Index) warmBlocks(s *source, blocks []block.StoredBlock) {
	var r reads
	for i := range blocks {
		r.add(s.names, blocks[i].Hash)
	}
	x.sink += r.run()
}

// warmNodes reads the nodes of entries, at most a window, and those above.
func (x *Index) warmNodes(entries []names.Entry) {
	var nodes [window]*node
	for i := range entries {
		nodes[i] = x.nodes.at(entries[i].Node)
	}
	for i, n := range nodes[:len(entries)] {
		nodes[i] = x.nodes.at(n.parent)
	}
	for _, n := range nodes[:len(entries)] {
		x.sink += n.length.Load()
	}
}

// warmOps touches the data that the first steps of operations need: the names of the parent and of
// the first block.
func (x *Index) warmOps(s *source, d *block.Delta, ops []block.Op) {
	for i := range ops {
		op := &ops[i]
		if op.Kind != block.OpStore || op.N == 0 {
			continue
		}
		x.sink += s.names.Home(uint64(d.Blocks[op.First].Hash)).Node
		if !op.Root {
			x.sink += s.names.Home(uint64(op.Parent)).Node
		}
	}
}
