package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
)

// walk is the scratch memory of one Match.
type walk struct {
	shard uint32
	index []int32 // by EndpointID: candidate number + 1
	alive []runner
	at    progress
	rules []grip  // of the runners whose source has rules
	ranks []ranks // by candidate; empty when no candidate has several
}

// ranks are those of a candidate: how many there are, how many runs have ended, the
// tokens of all of these and of the shortest.
type ranks struct{ n, ended, sum, least int32 }

// runner is a source whose run is not over.
type runner struct {
	slot   uint32
	cand   int32
	tier   block.Tier
	since  int32 // tokens walked when tier began
	rules  int32 // place in walk.rules + 1, 0 for none
	tokens [block.NumTiers]int32
}

// progress is how far the walk has come.
type progress struct {
	blocks, bytes, tokens int32
	cut                   bool // a non-canonical block is next
}

// Match fills dst[i] with the leading run of q that candidates[i] holds: its
// longest prefix of consecutive blocks, each counted in the best tier that
// holds it. An endpoint with several ranks gets the run of its best rank, and by how much
// less is to be expected of any of them. dst
// must be as long as candidates. Match does not allocate, never waits for
// writers, and may be called concurrently.
func (x *Index) Match(q block.Query, candidates []block.EndpointID, dst []block.Run) {
	clear(dst)
	if len(q.Bytes) == 0 || len(candidates) == 0 {
		return
	}
	w := x.scratch.Get().(*walk)
	c := x.epoch.Enter(w.shard)
	if root := x.table.Find(uint64(q.Root)); root != 0 && x.nodes.at(root).key.Load() == uint64(q.Root) {
		w.prepare(candidates, x.shown.Load())
		x.walk(w, root, q, dst)
		w.expect(dst)
		w.forget(candidates)
	}
	x.epoch.Leave(c)
	x.scratch.Put(w)
}

func (w *walk) prepare(candidates []block.EndpointID, v *shown) {
	w.alive, w.at, w.rules = w.alive[:0], progress{}, w.rules[:0]
	w.ranks = w.ranks[:0]
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

// several notes that candidate i has n ranks.
func (w *walk) several(i, of int, n int32) {
	for len(w.ranks) < of {
		w.ranks = append(w.ranks, ranks{n: 1})
	}
	w.ranks[i].n = n
}

// expect says of candidates with several ranks what is to be expected of any of them.
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

// maxEmpty bounds the blocks without text of their own in one walk: those within images,
// sounds and videos.
const maxEmpty = 1 << 16

// walk follows q down from root until no candidate holds the next block.
func (x *Index) walk(w *walk, root uint32, q block.Query, dst []block.Run) {
	h, rest, key := x.o.Hasher.Words(), q.Bytes, q.Root
	slots := x.slots.Load()
	parent, set := x.nodes.at(root), uint32(0)
	empty, tokens := 0, cutsOf(&q)
	for first := true; ; first = false {
		n, cut := x.step(h, parent, &key, rest, &tokens)
		w.at.cut = cut
		if n == nil || n.apart() {
			break
		}
		length := n.length.Load()
		if length == 0 {
			if empty++; empty > maxEmpty {
				break
			}
		}
		if s := n.set.Load(); s != set || first {
			if s == 0 {
				break
			}
			if first {
				w.begin(x.sets.Get(s), slots)
			} else {
				w.change(x.sets.Get(s), dst)
			}
			if len(w.rules) > 0 {
				w.grasp(x.sets.Get(s), int32(n.tokens()))
			}
			if len(w.alive) == 0 {
				break
			}
			set = s
		}
		rest = rest[length:]
		w.at.blocks++
		w.at.bytes += int32(length)
		w.at.tokens += int32(n.tokens())
		parent = n
	}
	w.toEnd(q, parent)
	for i := range w.alive {
		w.finish(&w.alive[i], dst)
	}
}

// fork holds the children of one node that begin a text: nearly always one.
// Two cuttings of one text can both be there, when one of them holds generated
// tokens that are not those of the text.
type fork struct {
	n    int
	cut  bool // a child is non-canonical
	node [maxFork]*node
	key  [maxFork]block.Key
}

const (
	maxFork   = 4  // cuttings that are looked at
	lookahead = 32 // blocks by which cuttings are compared
)

func (f *fork) add(n *node, key block.Key) {
	if f.n < maxFork {
		f.node[f.n], f.key[f.n] = n, key
		f.n++
		f.cut = f.cut || n.apart()
	}
}

// step returns the child of parent that begins rest, and moves key to it, and c where the
// tokens of the prompt are known: then it holds the next ones. It reports whether a child
// that begins rest is non-canonical.
func (x *Index) step(h block.Words, parent *node, key *block.Key, rest []byte, c *cuts) (n *node, cut bool) {
	if c.ends != nil {
		return x.stepCut(h, parent, key, rest, c)
	}
	var f fork
	x.children(h, parent, *key, rest, &f)
	best := 0
	switch {
	case f.n == 0:
		return nil, false
	case f.n > 1:
		best = x.choose(h, &f, rest)
	}
	*key = f.key[best]
	return f.node[best], f.cut
}

// choose prefers a cutting that is the text's own tokenization, as far as is
// known, then the one that goes on for longest.
func (x *Index) choose(h block.Words, f *fork, rest []byte) int {
	best, most := 0, -1
	for i := range f.n {
		depth := 0
		if !f.node[i].apart() {
			depth = 1 + x.depth(h, f.node[i], f.key[i], rest[f.node[i].length.Load():])
		}
		if depth > most {
			best, most = i, depth
		}
	}
	return best
}

// depth follows the first cutting of each block that is not non-canonical.
func (x *Index) depth(h block.Words, n *node, key block.Key, rest []byte) int {
	for depth := range lookahead {
		var f fork
		x.children(h, n, key, rest, &f)
		i := 0
		for i < f.n && f.node[i].apart() {
			i++
		}
		if i == f.n {
			return depth
		}
		n, key = f.node[i], f.key[i]
		rest = rest[n.length.Load():]
	}
	return lookahead
}

// children finds the children of parent that begin rest.
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

// begin enters the candidates among the holders of the first block.
func (w *walk) begin(s *lockfree.Set, slots *lockfree.Vector[slotOwner]) {
	for _, m := range s.Members {
		slot := m >> lockfree.TierBits
		if int(slot) >= slots.Len() {
			continue
		}
		owner := slots.At(int(slot))
		if !owner.live {
			continue
		}
		ep := owner.source.Endpoint
		if int(ep) < len(w.index) && w.index[ep] != 0 {
			w.alive = append(w.alive, runner{slot: slot, cand: w.index[ep] - 1, tier: block.Tier(lockfree.BestTier(m))})
			if len(owner.rules) > 0 {
				w.follow(owner.rules)
			}
		}
	}
}

// change goes on with the runners that are in s too. Both lists are sorted by slot.
func (w *walk) change(s *lockfree.Set, dst []block.Run) {
	if len(w.rules) > 0 {
		w.settle(w.at)
	}
	kept, j := 0, 0
	for i := range w.alive {
		r := &w.alive[i]
		for j < len(s.Members) && s.Members[j]>>lockfree.TierBits < r.slot {
			j++
		}
		if j == len(s.Members) || s.Members[j]>>lockfree.TierBits != r.slot {
			w.finish(r, dst)
			continue
		}
		if t := block.Tier(lockfree.BestTier(s.Members[j])); t != r.tier {
			r.tokens[r.tier] += w.at.tokens - r.since
			r.tier, r.since = t, w.at.tokens
		}
		w.alive[kept] = *r
		kept++
	}
	w.alive = w.alive[:kept]
}

// finish reports a run that ends here.
func (w *walk) finish(r *runner, dst []block.Run) {
	r.tokens[r.tier] += w.at.tokens - r.since
	run := block.Run{Blocks: w.at.blocks, Bytes: w.at.bytes, Tokens: r.tokens, Cut: w.at.cut}
	if r.rules != 0 {
		run = w.rules[r.rules-1].best
	}
	if len(w.ranks) > 0 {
		w.ranks[r.cand].add(run.Total())
	}
	if d := &dst[r.cand]; run.Better(d) {
		*d = run
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

// Ends appends to dst the byte positions at which the blocks of q end that
// Match walks, up to limit bytes. Runs end at such positions. A block within an image has
// no text: it ends where the one before it does.
func (x *Index) BlockEnds(q block.Query, limit int32, dst []int32) []int32 {
	w := x.scratch.Get().(*walk)
	c := x.epoch.Enter(w.shard)
	defer func() {
		x.epoch.Leave(c)
		x.scratch.Put(w)
	}()
	root := x.table.Find(uint64(q.Root))
	if root == 0 {
		return dst
	}
	parent, rest, key, at := x.nodes.at(root), q.Bytes, q.Root, int32(0)
	tokens := cutsOf(&q)
	for empty := 0; empty <= maxEmpty; {
		n, _ := x.step(x.o.Hasher.Words(), parent, &key, rest, &tokens)
		if n == nil {
			break
		}
		length := int32(n.length.Load())
		if at+length > limit {
			break
		}
		if length == 0 {
			empty++
		}
		at += length
		rest = rest[length:]
		dst = append(dst, at)
		parent = n
	}
	return dst
}
