package translate

import (
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Limits of pieces.
const (
	maxPer    = 64      // pieces per block: they are bits of a word
	maxPieces = 4 << 20 // pieces and their positions in blocks, per stream
	maxShared = 1 << 14 // blocks with the same first piece
)

// pieces tracks a group whose blocks are smaller than the base's. Several of these blocks, the
// pieces, span one base block. The index has no positions within blocks, so a block is marked as
// held by the group while it has all the pieces that a longer prompt needs.
//
// Engines name a piece by the hash of the prompt up to its end, like base blocks. The last piece of
// a block therefore has the block's name and locates the pieces just before it in the event: an
// engine reuses prompts only up to block ends, and announces for a window only consecutive pieces
// up to such an end. Prompts that diverge within a block share its first pieces.
type pieces struct {
	per    uint32                       // pieces in a block
	need   uint64                       // pieces required for a mark, as bits
	at     map[block.EngineHash]*piece  // held pieces, and all pieces of a block whose last piece is held
	blocks map[block.EngineHash]*pieced // blocks whose last piece is held
}

// piece is a small block with its number of copies and the blocks that contain it.
type piece struct {
	copies int
	bit    uint8 // position in those blocks
	of     []block.EngineHash
}

// pieced is a block of pieces.
type pieced struct {
	held    uint64             // held pieces, as bits
	known   uint64             // pieces with a known name, as bits
	names   []block.EngineHash // by position
	suspect bool               // marked when the index may not have known its name
}

// newPieces returns the pieces of a group with blocks of size tokens and base blocks of base
// tokens; nil if size does not divide base or is too small. A prompt needs the pieces within the
// last window tokens, or all if window is 0.
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

// blocksOf returns how many blocks before a position a window needs.
func blocksOf(window, size uint32) uint32 { return (max(window, 1) - 1 + size - 1) / size }

// rule returns the index rule for the marks of group n.
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

// pieces handles a store or a removal of a group with pieces. Only GPU memory counts: it is unknown
// how pieces in other tiers are reused.
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

// storePieces assigns the pieces of a store to blocks. Pieces after the last known block end, or
// more than a block length before one, are skipped, and so is a store without a block size.
func (t *Translator) storePieces(e *decode.Event, l *group) {
	if e.BlockSize == 0 {
		t.stats.Skipped[SkipMisaligned]++
		return
	}
	p, from := l.pieces, 0
	again := !e.HasParent && t.awaits(true) && uint64(len(e.Tokens)) == uint64(len(e.Hashes))*uint64(e.BlockSize)
	if again {
		t.text = t.textOf(t.text[:0], e)
		again = t.again(e, t.root(e), true)
	}
	if n := blocksOf(l.window, e.BlockSize); again && l.window > 0 {
		// A report names all pieces up to the reused position. Only those within the window are
		// certain.
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

// peeks is the number of events after which a group is known to need one more piece.
const peeks = 3

// peeked counts events with pieces after the last block end. A single one, without lookahead
// tokens, indicates an engine that drops the last piece found (EAGLE, MTP). Its hits then depend on
// pieces of the next block, which are not tracked.
func (t *Translator) peeked(e *decode.Event, l *group, behind int, ends bool) {
	if behind != 1 || !ends || len(e.Lookahead) > 0 {
		return
	}
	if l.peeks++; l.peeks == peeks {
		t.groups.uneven, t.groups.due = true, true
		l.rule.Kind = block.RuleNever
	}
}

// joinPieces counts one more copy of each of the last pieces of a block, which is named by the last
// one. A report sets at least one copy.
func (t *Translator) joinPieces(p *pieces, hashes []block.EngineHash, g uint8, again bool) {
	name := hashes[len(hashes)-1]
	b := p.blocks[name]
	if b == nil {
		b = &pieced{names: make([]block.EngineHash, p.per)}
		p.blocks[name] = b
	}
	doubt := b.suspect
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
	case b.known&(1<<(p.per-1)) == 0: // no room
		t.part(p, name, b)
	case doubt && b.held&p.need == p.need:
		t.markPieces(block.OpRemove, g, name)
		t.markPieces(block.OpMove, g, name)
	}
	t.sure(b)
}

// sure records that a block's mark is correct.
func (t *Translator) sure(b *pieced) {
	if b.suspect {
		b.suspect = false
		t.suspects--
	}
}

// markStored marks base blocks that are stored while their pieces are held, because the index may
// not have known their names when the pieces arrived.
func (t *Translator) markStored(e *decode.Event) {
	for i := range t.groups.list {
		p := t.groups.list[i].pieces
		if p == nil {
			continue
		}
		for _, h := range e.Hashes {
			if b := p.blocks[h]; b == nil || !b.suspect {
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

// showPieces updates a piece's state in all blocks that contain it.
func (t *Translator) showPieces(p *pieces, c *piece, g uint8, held bool) {
	for _, name := range c.of {
		t.showPiece(p, name, c.bit, g, held)
	}
}

// showPiece updates a piece's state in one block, and its mark.
func (t *Translator) showPiece(p *pieces, name block.EngineHash, bit, g uint8, held bool) {
	b := p.blocks[name]
	was := b.held&p.need == p.need
	if b.held &^= 1 << bit; held {
		b.held |= 1 << bit
	}
	switch is := b.held&p.need == p.need; {
	case is && !was:
		if !b.suspect { // unless it is being stored
			b.suspect = true
			t.suspects++
		}
		t.stats.Moved++
		t.markPieces(block.OpMove, g, name)
	case was && !is:
		t.stats.Removed++
		t.markPieces(block.OpRemove, g, name)
	}
}

// dropPiece removes one copy of a piece. An unknown piece may belong to a block that an earlier
// reader of the stream marked.
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

// part drops the pieces of a block. If the block is stored again, so are they.
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

// forget drops a piece that is neither held nor in a block.
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

// maxEarly bounds the partial entries before the first full block.
const maxEarly = 256

// early records stored blocks while no larger block has been seen.
func (g *groups) early(e *decode.Event) {
	switch {
	case g.size == 0 || g.settled:
	case len(g.first)+len(e.Hashes) > maxEarly:
		g.first, g.settled = nil, true
	default:
		g.first = append(g.first, e.Hashes...)
	}
}

// outgrown removes entries that were stored as blocks before a larger block showed them to be
// partial. Engines have such entries for the ends of prompts.
func (t *Translator) outgrown() {
	g := &t.groups
	if g.grown = false; len(g.first) > 0 {
		t.list(block.OpRemove, block.TierGPU, uint8(g.base), g.first)
	}
	g.uneven = g.uneven || g.settled
	g.first, g.settled = nil, true
}
