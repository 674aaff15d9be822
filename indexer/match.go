package indexer

import "github.com/grapevine-epp/grapevine/indexer/block"

// walk is the scratch memory of one Match.
type walk struct {
	shard  uint32
	index  []int32 // by EndpointID: candidate number + 1
	ranks  []ranks // by candidate; empty when no candidate has several
	reach  []reach // of the sources that hold the beginning of the prompt
	bySlot []int32 // by slot: place in reach + 1
	fork   fork

	lanes   [maxLanes]lane
	active  uint8 // lanes that go on, as bits
	forked  bool  // there was more than one lane
	running int   // runners in all lanes
	covered int32 // the most tokens at which a run has ended in a lane
}

// ranks summarizes a candidate's ranks: their number, the number of ended runs, and the sum and
// minimum of their tokens.
type ranks struct{ n, ended, sum, least int32 }

// progress is the position that a lane has reached.
type progress struct {
	blocks, bytes, tokens int32
	cut                   bool // a non-canonical block is next
}

// Match sets dst[i] to the leading run of q that candidates[i] holds: its longest prefix of
// consecutive blocks, each counted in its best tier. An endpoint with several ranks gets the run of
// its best rank, with the expected difference for any rank. dst must have the length of candidates.
// Match does not allocate, never waits for writers, and is safe for concurrent use.
func (x *Index) Match(q block.Query, candidates []block.EndpointID, dst []block.Run) {
	clear(dst)
	if len(q.Bytes) == 0 || len(candidates) == 0 {
		return
	}
	w := x.scratch.Get().(*walk)
	c := x.epoch.Enter(w.shard)
	if root := x.table.Find(uint64(q.Root)); root != 0 && x.nodes.at(root).key.Load() == uint64(q.Root) {
		w.prepare(candidates, x.shown.Load())
		x.walk(w, root, q)
		w.report(dst)
		w.expect(dst)
		w.forget(candidates)
	}
	x.epoch.Leave(c)
	x.scratch.Put(w)
}

func (w *walk) prepare(candidates []block.EndpointID, v *shown) {
	w.ranks, w.reach = w.ranks[:0], w.reach[:0]
	w.running, w.covered = 0, 0
	for i, ep := range candidates {
		for int(ep) >= len(w.index) {
			w.index = append(w.index, make([]int32, int(ep)+1-len(w.index))...)
		}
		w.index[ep] = int32(i) + 1
		if v.several == 0 {
			continue
		}
		if n := v.at(ep).ranks; n > 1 {
			w.several(i, len(candidates), int32(n))
		}
	}
}

// several records that candidate i has n ranks.
func (w *walk) several(i, of int, n int32) {
	for len(w.ranks) < of {
		w.ranks = append(w.ranks, ranks{n: 1})
	}
	w.ranks[i].n = n
}

// expect sets the expected difference for candidates with several ranks.
func (w *walk) expect(dst []block.Run) {
	for i := range w.ranks {
		r, best := &w.ranks[i], dst[i].Total()
		if r.n < 2 {
			continue
		}
		if dst[i].Missing, dst[i].Worst = best-r.sum/r.n, best; r.ended == r.n {
			dst[i].Worst -= r.least
		}
	}
}

func (w *walk) forget(candidates []block.EndpointID) {
	for _, ep := range candidates {
		w.index[ep] = 0
	}
}

// children finds the children of parent that match the beginning of rest.
func (x *Index) children(h block.Words, parent *node, key block.Key, rest []byte, f *fork) {
	first := parent.first.Load()
	if first&branchBit != 0 {
		x.branched(h, parent, key, rest, f)
		return
	}
	last, k := ^uint32(0), block.Key(0)
	for id := first; id != 0; {
		n := x.nodes.at(id)
		if length := n.length.Load(); int(length) <= len(rest) {
			if length != last {
				last, k = length, h.Child(key, rest[:length])
			}
			if n.key.Load() == uint64(k) {
				f.add(n, k)
			}
		}
		id = n.next.Load()
	}
}

func (x *Index) branched(h block.Words, parent *node, key block.Key, rest []byte, f *fork) {
	forms := x.lists.get(parent.first.Load() &^ branchBit).forms.Load()
	if forms == nil {
		return
	}
	keys := h.Ladder(key, rest)
	for _, form := range *forms {
		length, apart := form.length(), form.apart()
		if int(length) > len(rest) {
			return
		}
		k := keys.Child(int(length))
		if id := x.branchChild(parent, uint64(k), apart); id != 0 {
			if n := x.nodes.at(id); n.length.Load() == length {
				f.add(n, k)
			}
		}
	}
}

// add enters the run of one rank.
func (r *ranks) add(tokens int32) {
	if r.ended == 0 || tokens < r.least {
		r.least = tokens
	}
	r.ended++
	r.sum += tokens
}
