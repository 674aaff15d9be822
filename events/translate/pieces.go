package translate

import (
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Bounds of pieces.
const (
	maxPer    = 64      // in a block: they are bits of a word
	maxPieces = 4 << 20 // and places of these in blocks, of one stream
	maxShared = 1 << 14 // blocks that begin with the same piece
)

// pieces follows a group whose blocks are smaller than those of the base: several of them,
// the pieces, are as long as one block of the base. The index sees no positions within
// blocks: a block is marked there as one of the group while those of its pieces are held
// that a prompt needs which goes on behind it.
//
// Engines name a piece by the hash of the prompt up to its end, as they do with blocks of
// the base. So the last piece of a block has the block's name, and shows where those just
// before it in the event belong: an engine reuses prompts up to ends of blocks only, and
// announces of a window nothing but pieces in a row up to such an end. Prompts that part
// within a block have its first pieces in common.
type pieces struct {
	per    uint32                       // pieces in a block
	need   uint64                       // those whose block is marked, as bits
	at     map[block.EngineHash]*piece  // held, or of a block of which the last is
	blocks map[block.EngineHash]*pieced // of which the last piece is held
}

// piece is a small block: how often it is held, and which blocks it is in.
type piece struct {
	copies int
	bit    uint8 // its place in these
	of     []block.EngineHash
}

// pieced is a block of pieces.
type pieced struct {
	held  uint64             // pieces, as bits
	known uint64             // pieces with a name
	names []block.EngineHash // by place
	doubt bool               // it was marked when the index may not have known its name
}

// newPieces returns the pieces of a group with blocks of size tokens, below blocks of base
// tokens; nil where one is not so many of the other. A prompt needs those within the last
// window tokens, or all where window is 0.
func newPieces(size, base, window uint32) *pieces {
	if size == 0 || base%size != 0 || base/size > maxPer {
		return nil
	}
	p := &pieces{per: base / size, at: map[block.EngineHash]*piece{}, blocks: map[block.EngineHash]*pieced{}}
	p.need = math.MaxUint64 >> (maxPer - p.per)
	if n := blocksOf(window, size); window > 0 && n < p.per {
		p.need &^= p.need >> n
	}
	return p
}

// blocksOf is how many blocks of a window must be held before a position.
func blocksOf(window, size uint32) uint32 { return (max(window, 1) - 1 + size - 1) / size }

// rule is what the marks of group n are to the index.
func (p *pieces) rule(n int, base, window uint32) block.Rule {
	r := block.Rule{Group: uint8(n), Kind: block.RuleAll, Size: base}
	if window == 0 {
		return r
	}
	r.Kind = block.RuleState
	if n := blocksOf(window, base/p.per); n > p.per {
		r.Kind, r.Need = block.RuleWindow, (n+p.per-1)/p.per*base
	}
	return r
}

// pieces handles a store or a removal of a group with pieces. Only those in the GPU's
// memory count: how pieces elsewhere are reused is not known.
func (t *Translator) pieces(e *decode.Event, l *group, tier block.Tier) {
	switch {
	case tier != block.TierGPU:
	case e.Kind == decode.BlockStored:
		t.storePieces(e, l)
	default:
		for _, h := range e.Hashes {
			t.dropPiece(l.pieces, h, groupOf(e))
		}
	}
}

// storePieces finds out to which blocks the pieces of a store belong. Those behind the
// last known end of a block, and those that are further before one than a block is long,
// are left out.
func (t *Translator) storePieces(e *decode.Event, l *group) {
	p, from := l.pieces, 0
	again := !e.HasParent && t.awaits(true) && uint64(len(e.Tokens)) == uint64(len(e.Hashes))*uint64(e.BlockSize)
	if again {
		t.text = t.textOf(t.text[:0], e)
		again = t.again(e, t.root(e), true)
	}
	if n := blocksOf(l.window, e.BlockSize); again && l.window > 0 {
		// A report names all pieces up to where the prompt is reused from. Only those that
		// the window wants are certain.
		from = max(0, len(e.Hashes)-int(n))
	}
	last := from - 1
	for end := from; end < len(e.Hashes); end++ {
		if _, ok := t.lookup(e.Hashes[end]); !ok {
			continue
		}
		t.joinPieces(p, e.Hashes[max(last, end-int(p.per))+1:end+1], groupOf(e), again)
		last = end
	}
	t.peeked(e, l, len(e.Hashes)-1-last, last >= from)
}

// peeks is after how many events a group is known to be looked up one piece further.
const peeks = 3

// peeked notes how many pieces an event has behind the last end of a block. One, not for
// tokens ahead, shows an engine that drops what it finds last (EAGLE, MTP): whether it
// finds anything depends on pieces of the next block then, which is not followed.
func (t *Translator) peeked(e *decode.Event, l *group, behind int, ends bool) {
	if behind != 1 || !ends || len(e.Lookahead) > 0 {
		return
	}
	if l.peeks++; l.peeks == peeks {
		t.groups.uneven, t.groups.due = true, true
		l.rule.Kind = block.RuleNever
	}
}

// joinPieces counts one more copy of each of the last pieces of a block, the name of which
// is that of the last of them; a report makes it one at least.
func (t *Translator) joinPieces(p *pieces, hashes []block.EngineHash, g uint8, again bool) {
	name := hashes[len(hashes)-1]
	b := p.blocks[name]
	if b == nil {
		b = &pieced{names: make([]block.EngineHash, p.per)}
		p.blocks[name] = b
	}
	doubt := b.doubt
	for i, h := range hashes {
		bit := uint8(int(p.per) - len(hashes) + i)
		c := p.at[h]
		if c == nil {
			if t.pieced >= maxPieces {
				t.stats.Skipped[SkipLimit]++
				continue
			}
			t.pieced++
			c = &piece{bit: bit}
			p.at[h] = c
		}
		if b.known&(1<<bit) == 0 && c.bit == bit {
			if t.pieced >= maxPieces || len(c.of) == maxShared {
				t.stats.Skipped[SkipLimit]++
			} else {
				t.pieced++
				b.known, b.names[bit], c.of = b.known|1<<bit, h, append(c.of, name)
				if c.copies > 0 {
					t.showPiece(p, name, bit, g, true)
				}
			}
		}
		if c.copies == 0 || !again {
			if c.copies++; c.copies == 1 {
				t.showPieces(p, c, g, true)
			}
		}
	}
	switch {
	case b.known&(1<<(p.per-1)) == 0: // no room for it
		t.part(p, name, b)
	case doubt && b.held&p.need == p.need:
		t.markPieces(block.OpRemove, g, name)
		t.markPieces(block.OpMove, g, name)
	}
	t.sure(b)
}

// sure notes that a block's mark is as it should be.
func (t *Translator) sure(b *pieced) {
	if b.doubt {
		b.doubt = false
		t.doubts--
	}
}

// markStored marks blocks of the base that are stored while their pieces are held: the
// index may not have known their names when these came.
func (t *Translator) markStored(e *decode.Event) {
	for i := range t.groups.list {
		p := t.groups.list[i].pieces
		if p == nil {
			continue
		}
		for _, h := range e.Hashes {
			if b := p.blocks[h]; b == nil || !b.doubt {
				continue
			} else if _, ok := t.lookup(h); ok {
				if t.sure(b); b.held&p.need == p.need {
					t.markPieces(block.OpRemove, uint8(i), h)
					t.markPieces(block.OpMove, uint8(i), h)
				}
			}
		}
	}
}

// showPieces notes that a piece is held, or is not, in all blocks that it is in.
func (t *Translator) showPieces(p *pieces, c *piece, g uint8, held bool) {
	for _, name := range c.of {
		t.showPiece(p, name, c.bit, g, held)
	}
}

// showPiece notes that a piece of a block is held, or is not, and marks the block.
func (t *Translator) showPiece(p *pieces, name block.EngineHash, bit, g uint8, held bool) {
	b := p.blocks[name]
	was := b.held&p.need == p.need
	if b.held &^= 1 << bit; held {
		b.held |= 1 << bit
	}
	switch is := b.held&p.need == p.need; {
	case is && !was:
		if !b.doubt { // unless it is being stored
			b.doubt = true
			t.doubts++
		}
		t.stats.Moved++
		t.markPieces(block.OpMove, g, name)
	case was && !is:
		t.stats.Removed++
		t.markPieces(block.OpRemove, g, name)
	}
}

// dropPiece counts one copy of a piece less. One that is not known may be of a block that
// was marked by whoever read the stream before.
func (t *Translator) dropPiece(p *pieces, h block.EngineHash, g uint8) {
	c := p.at[h]
	if c == nil {
		if _, ok := t.lookup(h); ok {
			t.markPieces(block.OpRemove, g, h)
		}
		return
	}
	if c.copies == 0 {
		return
	}
	if c.copies--; c.copies > 0 {
		return
	}
	t.showPieces(p, c, g, false)
	if b := p.blocks[h]; b != nil {
		t.part(p, h, b)
	}
	t.forget(p, h, c)
}

// part forgets which pieces a block has: if it is stored again, so are these.
func (t *Translator) part(p *pieces, name block.EngineHash, b *pieced) {
	delete(p.blocks, name)
	t.sure(b)
	for bit, h := range b.names {
		if b.known&(1<<bit) == 0 {
			continue
		}
		t.pieced--
		c := p.at[h]
		i := slices.Index(c.of, name)
		c.of[i] = c.of[len(c.of)-1]
		c.of = c.of[:len(c.of)-1]
		t.forget(p, h, c)
	}
}

// forget lets go of a piece that is neither held nor in a block.
func (t *Translator) forget(p *pieces, h block.EngineHash, c *piece) {
	if c.copies == 0 && len(c.of) == 0 && p.at[h] == c {
		delete(p.at, h)
		t.pieced--
	}
}

func (t *Translator) markPieces(kind block.OpKind, g uint8, h block.EngineHash) {
	t.known = append(t.known[:0], h)
	t.list(kind, block.TierGPU, g, t.known)
}

// maxEarly bounds the entries within a block that come before the first block does.
const maxEarly = 256

// early remembers what was stored when no larger block had been seen.
func (g *groups) early(e *decode.Event) {
	switch {
	case g.size == 0 || g.settled:
	case len(g.first)+len(e.Hashes) > maxEarly:
		g.first, g.settled = nil, true
	default:
		g.first = append(g.first, e.Hashes...)
	}
}

// outgrown takes out what was stored as blocks before a larger one showed that it was
// within blocks: engines have such entries of the ends of prompts.
func (t *Translator) outgrown() {
	g := &t.groups
	if g.grown = false; len(g.first) > 0 {
		t.list(block.OpRemove, block.TierGPU, uint8(g.base), g.first)
	}
	g.uneven = g.uneven || g.settled
	g.first, g.settled = nil, true
}
