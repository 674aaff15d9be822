package indexer

import (
	"math"
	"math/bits"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
)

// maxLanes bounds the lanes of one walk.
const maxLanes = 8

// lane is one path through the trie that matches the prompt's text. Engines with other block sizes,
// offload tiers with larger chunks, and engines that tokenize generated text differently have
// separate paths.
type lane struct {
	last  *node     // the block before at
	key   block.Key // of last
	rest  []byte    // the prompt behind at
	cuts  cuts
	at    progress
	set   uint32      // holder set of last
	begun bool        // set is the set of a block
	empty int         // blocks without text so far
	next  branchTo    // the block that a fork chose for this lane
	alive []runner    // sources that hold last and the whole prompt before it, by slot
	spare []runner    // memory of the next alive
	rules []ruleState // of the runners whose source has rules
}

// branchTo is a child of a lane's last block; node is nil for none.
type branchTo struct {
	node *node
	key  block.Key
	cuts cuts
}

// runner is a source in a lane.
type runner struct {
	slot  uint32
	reach int32 // place in walk.reach
	rules int32 // place in lane.rules + 1, 0 for none
	tier  block.Tier
}

// reach is the part of the prompt that a source holds, over all lanes.
type reach struct {
	slot   uint32
	cand   int32
	lanes  uint8                // in which it runs, as bits
	tier   [maxLanes]block.Tier // its tier in each of these
	ruled  bool                 // its groups have rules: best counts, and each lane by itself
	cut    bool
	tokens [block.NumTiers]int32 // up to at
	at     int32                 // tokens up to which it is known to hold the prompt
	bytes  int32                 // where its run ended; valid where lanes is 0
	blocks int32
	best   block.Run
}

// fork holds the children of a node that match the text: nearly always one.
type fork struct {
	n    int
	cut  bool // a child is non-canonical
	node [maxFork]*node
	key  [maxFork]block.Key
}

const maxFork = maxLanes // children to follow

func (f *fork) reset() { f.n, f.cut = 0, false }

func (f *fork) add(n *node, key block.Key) {
	if f.n < maxFork {
		f.node[f.n], f.key[f.n] = n, key
		f.n++
		f.cut = f.cut || n.apart()
	}
}

// drop takes child i off.
func (f *fork) drop(i int) {
	f.n--
	f.node[i], f.key[i] = f.node[f.n], f.key[f.n]
}

// maxEmpty bounds the blocks without text in one lane: those within images, audio and video.
const maxEmpty = 1 << 16

// walk follows q from root, in one lane per tokenization, until no candidate holds the next block.
// The lane that is least advanced continues first, so that all lanes together determine the blocks
// of a source up to that position.
func (x *Index) walk(w *walk, root uint32, q block.Query) {
	l := &w.lanes[0]
	l.begin(x.nodes.at(root), q.Root, q.Bytes, cutsOf(&q))
	w.active, w.forked = 1, false
	slots := x.slots.Load()
	for w.active != 0 {
		i, until := w.lowest()
		x.follow(w, i, until, slots, q)
	}
}

func (l *lane) begin(last *node, key block.Key, rest []byte, c cuts) {
	l.last, l.key, l.rest, l.cuts = last, key, rest, c
	l.at, l.set, l.begun, l.empty, l.next = progress{}, 0, false, 0, branchTo{}
	l.alive, l.rules = l.alive[:0], l.rules[:0]
}

// leave drops references to the prompt.
func (l *lane) leave() { l.rest, l.cuts, l.next = nil, cuts{}, branchTo{} }

// lowest returns the least advanced lane, and the position of the next one.
func (w *walk) lowest() (lowest int, until int32) {
	if w.active&(w.active-1) == 0 {
		return bits.TrailingZeros8(w.active), math.MaxInt32
	}
	least := int32(math.MaxInt32)
	until = math.MaxInt32
	for m := w.active; m != 0; m &= m - 1 {
		i := bits.TrailingZeros8(m)
		switch at := w.lanes[i].at.tokens; {
		case at < least:
			lowest, least, until = i, at, least
		case at < until:
			until = at
		}
	}
	return lowest, until
}

// follow advances lane i until it passes until, forks or ends.
func (x *Index) follow(w *walk, i int, until int32, slots *lockfree.Vector[slotOwner], q block.Query) {
	l := &w.lanes[i]
	for l.at.tokens <= until {
		if w.running == 0 && w.covered < l.at.tokens {
			w.end(i, q) // no source holds the prompt up to here
			return
		}
		n := l.next.node
		if n != nil {
			l.key, l.cuts, l.next.node = l.next.key, l.next.cuts, nil
		} else if n = x.step(w, l); l.next.node != nil {
			return // forked
		}
		if n == nil {
			w.end(i, q)
			return
		}
		length, tokens := n.length.Load(), int32(n.tokens())
		if length == 0 {
			if l.empty++; l.empty > maxEmpty {
				w.end(i, q)
				return
			}
		}
		if s := n.set.Load(); s != l.set || !l.begun {
			members := x.sets.Get(s)
			w.change(i, members, slots)
			if len(l.rules) > 0 {
				l.noteHolders(members, tokens)
			}
			l.set, l.begun = s, true
		}
		l.rest = l.rest[length:]
		l.at.blocks++
		l.at.bytes += int32(length)
		l.at.tokens += tokens
		l.last = n
	}
}

// step returns the lane's next block, and advances its key and cuts. If several children match the
// text, it returns nil: they continue this lane and new lanes.
func (x *Index) step(w *walk, l *lane) *node {
	h := x.o.Hasher.Words()
	first := l.last.first.Load()
	if first == 0 {
		l.at.cut = false
		return nil
	}
	if first&branchBit == 0 && l.cuts.ends == nil {
		if n := x.nodes.at(first); n.next.Load() == 0 { // an only child
			return l.only(h, n)
		}
	}
	f := &w.fork
	f.reset()
	x.children(h, l.last, l.key, l.rest, f)
	l.at.cut = f.cut
	if l.cuts.ends != nil {
		x.keepCut(h, f, l)
	} else {
		for i := f.n - 1; f.cut && i >= 0; i-- {
			if f.node[i].apart() {
				f.drop(i)
			}
		}
	}
	switch f.n {
	case 0:
		return nil
	case 1:
		l.key = f.key[0]
		if l.cuts.ends != nil {
			l.cuts, _ = l.cuts.fits(f.node[0])
		}
		return f.node[0]
	}
	w.branch(l, f)
	return nil
}

// only is step where the last block has one child.
func (l *lane) only(h block.Words, n *node) *node {
	l.at.cut = false
	length := int(n.length.Load())
	if length > len(l.rest) {
		return nil
	}
	key := h.Child(l.key, l.rest[:length])
	if n.key.Load() != uint64(key) {
		return nil
	}
	if n.apart() {
		l.at.cut = true
		return nil
	}
	l.key = key
	return n
}

// branch starts lanes for the other children of a fork, as far as there is room.
func (w *walk) branch(l *lane, f *fork) {
	to := func(i int) branchTo {
		next := branchTo{node: f.node[i], key: f.key[i], cuts: l.cuts}
		if l.cuts.ends != nil {
			next.cuts, _ = l.cuts.fits(f.node[i])
		}
		return next
	}
	w.forked = true
	for i := 1; i < f.n && w.active != math.MaxUint8; i++ {
		free := bits.TrailingZeros8(^w.active)
		w.active |= 1 << free
		m := &w.lanes[free]
		m.begin(l.last, l.key, l.rest, l.cuts)
		m.at, m.empty, m.next = l.at, l.empty, to(i)
	}
	l.next = to(0)
}

// change continues with the runners of lane i that hold its next block, and with runners that join
// from other lanes. All lists are sorted by slot.
func (w *walk) change(i int, s *lockfree.Set, slots *lockfree.Vector[slotOwner]) {
	l := &w.lanes[i]
	if len(l.rules) > 0 {
		l.settle(l.at)
	}
	joins := l.at.blocks == 0 || w.forked
	kept, a := l.alive[:0], 0
	if joins {
		kept, l.spare = l.spare[:0], l.alive
	}
	for _, m := range s.Members {
		slot := m >> lockfree.TierBits
		for a < len(l.alive) && l.alive[a].slot < slot {
			w.leave(i, &l.alive[a])
			a++
		}
		tier := block.Tier(lockfree.BestTier(m))
		switch {
		case a < len(l.alive) && l.alive[a].slot == slot:
			r := l.alive[a]
			if a++; r.tier != tier {
				w.move(i, &r, tier)
			}
			kept = append(kept, r)
		case a == len(l.alive) && !joins:
			l.alive = kept
			return
		case joins:
			if r, ok := w.join(i, slot, tier, slots); ok {
				kept = append(kept, r)
			}
		}
	}
	for ; a < len(l.alive); a++ {
		w.leave(i, &l.alive[a])
	}
	l.alive = kept
}

// join makes a source that holds the prompt up to lane i's position a runner of the lane, and
// returns it.
func (w *walk) join(i int, slot uint32, tier block.Tier, slots *lockfree.Vector[slotOwner]) (r runner, ok bool) {
	l := &w.lanes[i]
	for int(slot) >= len(w.bySlot) {
		w.bySlot = append(w.bySlot, make([]int32, int(slot)+1-len(w.bySlot))...)
	}
	at := w.bySlot[slot] - 1
	switch {
	case l.at.blocks == 0 && int(slot) < slots.Len():
		owner := slots.At(int(slot))
		ep := owner.source.Endpoint
		if !owner.live || int(ep) >= len(w.index) || w.index[ep] == 0 {
			return r, false
		}
		if at < 0 {
			w.reach = append(w.reach, reach{slot: slot, cand: w.index[ep] - 1, ruled: len(owner.rules) > 0})
			at = int32(len(w.reach)) - 1
			w.bySlot[slot] = at + 1
		}
		r = runner{slot: slot, reach: at, tier: tier}
		if len(owner.rules) > 0 {
			r.rules = l.follow(owner.rules)
		}
	case at < 0 || w.reach[at].ruled || !w.holds(&w.reach[at], l.at):
		return r, false
	default:
		r = runner{slot: slot, reach: at, tier: tier}
	}
	s := &w.reach[at]
	w.account(s, l.at.tokens)
	s.lanes |= 1 << i
	s.tier[i] = tier
	w.running++
	return r, true
}

// holds reports whether a source holds the prompt up to a place.
func (w *walk) holds(s *reach, at progress) bool {
	if s.lanes == 0 {
		return s.at >= at.tokens && s.bytes >= at.bytes
	}
	for m := s.lanes; m != 0; m &= m - 1 {
		l := &w.lanes[bits.TrailingZeros8(m)]
		if l.at.tokens >= at.tokens && l.at.bytes >= at.bytes {
			return true
		}
	}
	return false
}

// account counts the tokens up to a position in the best tier of the source's lanes. No lane is
// less advanced.
func (w *walk) account(s *reach, to int32) {
	if s.lanes == 0 || to <= s.at {
		return
	}
	best := block.NumTiers
	for m := s.lanes; m != 0; m &= m - 1 {
		best = min(best, s.tier[bits.TrailingZeros8(m)])
	}
	s.tokens[best] += to - s.at
	s.at = to
}

// move notes that a runner's blocks are in another tier from here on.
func (w *walk) move(i int, r *runner, tier block.Tier) {
	l := &w.lanes[i]
	if r.rules != 0 {
		l.rules[r.rules-1].count(l.at.tokens, r.tier)
	}
	s := &w.reach[r.reach]
	w.account(s, l.at.tokens)
	s.tier[i], r.tier = tier, tier
}

// leave ends a runner of lane i where the lane is.
func (w *walk) leave(i int, r *runner) {
	l, s := &w.lanes[i], &w.reach[r.reach]
	w.running--
	if r.rules != 0 {
		if best := &l.rules[r.rules-1].best; best.Better(&s.best) {
			s.best = *best
		}
		s.lanes &^= 1 << i
		return
	}
	before := s.at
	w.account(s, l.at.tokens)
	s.lanes &^= 1 << i
	if s.at > before || s.blocks < l.at.blocks {
		s.bytes, s.blocks, s.cut = l.at.bytes, l.at.blocks, l.at.cut
	}
	w.covered = max(w.covered, s.at)
}

// end ends lane i and its runners.
func (w *walk) end(i int, q block.Query) {
	l := &w.lanes[i]
	l.toEnd(q)
	for k := range l.alive {
		w.leave(i, &l.alive[k])
	}
	l.alive = l.alive[:0]
	l.leave()
	w.active &^= 1 << i
}

// report enters the runs of all sources.
func (w *walk) report(dst []block.Run) {
	for i := range w.reach {
		s := &w.reach[i]
		w.bySlot[s.slot] = 0
		run := block.Run{Blocks: s.blocks, Bytes: s.bytes, Tokens: s.tokens, Cut: s.cut}
		if s.ruled {
			run = s.best
		}
		if len(w.ranks) > 0 {
			w.ranks[s.cand].add(run.Total())
		}
		if d := &dst[s.cand]; run.Better(d) {
			*d = run
		}
	}
}

// place is where BlockEnds resumes if a path does not lead to the run's end.
type place struct {
	branchTo
	from int32 // bytes before the block
	ends int   // of dst up to there
}

// BlockEnds appends to dst the byte positions at which the blocks of a run end, a run of q returned
// by Match. A block within an image has no text: it ends where the previous one does. It appends
// nothing if the index has changed since Match.
func (x *Index) BlockEnds(q block.Query, run block.Run, dst []int32) []int32 {
	w := x.scratch.Get().(*walk)
	c := x.epoch.Enter(w.shard)
	defer func() {
		w.lanes[0].leave()
		x.epoch.Leave(c)
		x.scratch.Put(w)
	}()
	root := x.table.Find(uint64(q.Root))
	if root == 0 {
		return dst
	}
	l, begun := &w.lanes[0], len(dst)
	l.begin(x.nodes.at(root), q.Root, q.Bytes, cutsOf(&q))
	w.active = 1
	var other [4 * maxLanes]place
	n, steps := 0, int(run.Blocks)*maxLanes
	for at := int32(0); ; steps-- {
		if int32(len(dst)-begun) == run.Blocks && at == run.Bytes {
			return dst
		}
		var next *node
		if steps > 0 && at <= run.Bytes && int32(len(dst)-begun) < run.Blocks {
			next = x.step(w, l)
		}
		if next == nil && l.next.node != nil { // a fork: remember all but the first
			next = l.next.node
			for m := w.active &^ 1; m != 0 && n < len(other); m &= m - 1 {
				m := &w.lanes[bits.TrailingZeros8(m)]
				other[n] = place{m.next, at, len(dst)}
				m.leave()
				n++
			}
			w.active = 1
			l.key, l.cuts, l.next.node = l.next.key, l.next.cuts, nil
		}
		if next == nil {
			if n--; n < 0 {
				return dst[:begun]
			}
			p := &other[n]
			next, l.key, l.cuts, at, dst = p.node, p.key, p.cuts, p.from, dst[:p.ends]
		}
		at += int32(next.length.Load())
		l.last, l.rest = next, q.Bytes[at:]
		dst = append(dst, at)
	}
}
