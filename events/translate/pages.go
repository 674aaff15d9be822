package translate

import (
	"github.com/grapevine-epp/grapevine/indexer/block"

	"github.com/grapevine-epp/grapevine/events/decode"
)

// Limits of merging.
const (
	maxUnit  = 16      // tokens of the largest unit into which pages are merged
	maxPages = 8 << 20 // pages per stream
)

// pages merges engine blocks that are smaller than a unit (SGLang's default
// page is one token) into units of k pages, counted from the start of each
// chain. See DESIGN.md for the invariants.
type pages struct {
	k     int    // pages per unit
	size  uint32 // tokens per page
	group uint8
	units []unit // 0 stands for the start of a chain
	free  uint32 // first of the unused units, linked by nextFork
	table map[block.EngineHash]page
}

// page is the position of a page: bits 0-3 are its offset in the unit, followed by seven bits of
// copies per tier.
type page struct {
	unit uint32
	bits uint32
}

const copiesMask = 0x7f

func (p page) off() int { return int(p.bits & 15) }

func (p page) copies(t block.Tier) uint32 { return p.bits >> (4 + 7*t) & copiesMask }

func (p page) with(t block.Tier, copies uint32) page {
	p.bits = p.bits&^(copiesMask<<(4+7*t)) | min(copies, copiesMask)<<(4+7*t)
	return p
}

// unit is a sequence of k pages. Pages below baseOff belong to the unit base, from which this one
// branches.
type unit struct {
	from     block.Key              // parent key: of the previous unit, or of the root
	parent   block.EngineHash       // name of the previous unit
	key      block.Key              // once complete
	name     block.EngineHash       // hash of the last page, once complete
	mix      block.Key              // of its pages' extra keys, 0 for none
	prev     uint32                 // previous unit; a hint that may be stale
	base     uint32                 // unit that owns the page before baseOff, 0 for none
	forks    uint32                 // first of the units that branch from this one
	nextFork uint32                 // next of base's forks, or next unused unit
	bytes    uint32                 // length of the text, once complete
	mask     [block.NumTiers]uint16 // pages present, by tier
	own      uint8                  // own pages in the table
	filled   uint8
	baseOff  uint8
	root     bool
	flags    block.Flags
	tokens   [maxUnit]uint32
}

// cursor is a position in a chain: after off pages of a unit.
type cursor struct {
	unit uint32
	off  int
}

// placePages stores an event of pages. It returns false if the parent is unknown.
func (t *Translator) placePages(e *decode.Event, tier block.Tier, k int) bool {
	if t.pages == nil {
		t.pages = &pages{
			k: k, size: e.BlockSize, group: groupOf(e),
			units: make([]unit, 1), table: make(map[block.EngineHash]page),
		}
	}
	p := t.pages
	if p.size != e.BlockSize || p.group != groupOf(e) || len(p.table)+len(e.Hashes) > maxPages {
		t.stats.Skipped[SkipLimit]++
		return true
	}
	var at cursor
	if parent, ok := p.table[e.Parent]; ok && e.HasParent {
		at = cursor{parent.unit, parent.off() + 1}
	} else if e.HasParent && e.Parent != 0 {
		return false
	}
	for i, h := range e.Hashes {
		pg, known := p.table[h]
		switch {
		case !known:
			at = p.extend(t, e, at, i)
			pg = page{unit: at.unit, bits: uint32(at.off - 1)}
		case !p.follows(t, e, at, pg):
			t.stats.Skipped[SkipCollision]++
			return true
		}
		at = cursor{pg.unit, pg.off() + 1}
		p.add(t, h, pg, tier)
	}
	return true
}

// add counts one more copy of a page in a tier.
func (p *pages) add(t *Translator, h block.EngineHash, pg page, tier block.Tier) {
	n := pg.copies(tier)
	p.table[h] = pg.with(tier, n+1)
	if n == 0 {
		p.set(t, pg.unit, pg.off(), tier, true)
	}
}

// follows reports whether a known page is the one after at. If engines omit adapters from their
// hashes, one hash can name two pages.
func (p *pages) follows(t *Translator, e *decode.Event, at cursor, pg page) bool {
	u := &p.units[pg.unit]
	switch {
	case at.unit == 0:
		return pg.off() == 0 && u.root && u.from == t.root(e)
	case at.off == p.k:
		return pg.off() == 0 && !u.root && u.from == p.units[at.unit].key
	default:
		return pg.off() == at.off && (pg.unit == at.unit || u.base == at.unit && int(u.baseOff) == at.off)
	}
}

// extend adds page i of e after at and returns the position after it.
func (p *pages) extend(t *Translator, e *decode.Event, at cursor, i int) cursor {
	switch {
	case at.unit == 0:
		id := p.alloc()
		p.units[id] = unit{from: t.root(e), root: true}
		at = cursor{id, 0}
	case at.off == p.k:
		id := p.alloc()
		before := &p.units[at.unit]
		p.units[id] = unit{from: before.key, parent: before.name, prev: at.unit}
		at = cursor{id, 0}
	case at.off != int(p.units[at.unit].filled):
		at.unit = p.fork(at)
	}
	u := &p.units[at.unit]
	size := int(p.size)
	copy(u.tokens[at.off*size:], e.Tokens[i*size:(i+1)*size])
	for _, k := range e.Extra {
		if int(k.Block) == i {
			u.mix = t.mixExtra(u.mix, e, k, u.root && at.off == 0)
		}
	}
	u.filled++
	u.own++
	at.off++
	if at.off == p.k {
		p.complete(t, u, e.Hashes[i])
	}
	return at
}

// complete sets the name and key of a full unit.
func (p *pages) complete(t *Translator, u *unit, name block.EngineHash) {
	before := p.textBefore(t, u)
	start := len(t.text)
	ids := u.tokens[:p.k*int(p.size)]
	var known bool
	u.name = name
	u.key, known = t.child(u.from, ids)
	u.bytes = uint32(len(t.text) - start)
	if t.judges && known && !t.opt.Canonical(before, ids, t.text[start:]) {
		u.flags |= block.FlagNonCanonical
		t.stats.NonCanonical++
	}
	if u.mix != 0 {
		t.text = appendIDs(t.text[:0], []uint32{uint32(u.mix), uint32(u.mix >> 32)})
		u.key = t.opt.Hasher.Child(u.key, t.text)
	}
}

// textBefore puts the text of the unit before u into t.text, for Canonical.
func (p *pages) textBefore(t *Translator, u *unit) []byte {
	t.text = append(t.text[:0], 0)[:0]
	if u.root || !t.judges {
		return t.text
	}
	before := &p.units[u.prev]
	if before.name != u.parent || before.key != u.from {
		return nil
	}
	text, ok := t.opt.Vocabulary.AppendTokens(t.text, before.tokens[:p.k*int(p.size)])
	if !ok {
		return nil
	}
	t.text = text
	return text
}

// fork starts a unit that shares the pages before at.
func (p *pages) fork(at cursor) uint32 {
	id := p.alloc()
	base := &p.units[at.unit]
	u := unit{
		from: base.from, parent: base.parent, root: base.root, prev: base.prev, mix: base.mix, tokens: base.tokens,
		base: at.unit, baseOff: uint8(at.off), filled: uint8(at.off), nextFork: base.forks,
	}
	for tier := range u.mask {
		u.mask[tier] = base.mask[tier] & (1<<at.off - 1)
	}
	base.forks = id
	p.units[id] = u
	return id
}

func (p *pages) alloc() uint32 {
	if id := p.free; id != 0 {
		p.free = p.units[id].nextFork
		return id
	}
	p.units = append(p.units, unit{})
	return uint32(len(p.units) - 1)
}

// whole is the mask of a unit with all its pages.
func (p *pages) whole() uint16 { return uint16(1<<p.k - 1) }

// held returns, as bits, the tiers in which a unit counts as held. These are the tiers with all its
// pages. If there are none, it is the tier that completes them, starting from the fastest. A unit
// half of which has moved to the host is therefore held in the host tier, and the chain does not
// break there.
func (p *pages) held(u *unit) uint8 {
	var all uint16
	var tiers uint8
	for tier, mask := range u.mask {
		all |= mask
		if mask == p.whole() || tiers == 0 && all == p.whole() {
			tiers |= 1 << tier
		}
	}
	return tiers
}

// set records that a page was added to a tier or removed, for its unit and units that branch after
// it, and stores and removes units accordingly.
func (p *pages) set(t *Translator, id uint32, off int, tier block.Tier, on bool) {
	u := &p.units[id]
	was := p.held(u)
	if on {
		u.mask[tier] |= 1 << off
	} else {
		u.mask[tier] &^= 1 << off
	}
	if is := p.held(u); is != was {
		p.update(t, u, is&^was, was&^is)
	}
	for f := u.forks; f != 0; f = p.units[f].nextFork {
		if off < int(p.units[f].baseOff) {
			p.set(t, f, off, tier, on)
		}
	}
}

// update stores a unit in some tiers and then removes it from others, so that a unit that moves is
// never missing.
func (p *pages) update(t *Translator, u *unit, stored, removed uint8) {
	for tier := range block.NumTiers {
		if stored&(1<<tier) != 0 {
			p.emit(t, u, tier)
		}
	}
	for tier := range block.NumTiers {
		if removed&(1<<tier) != 0 {
			t.stats.Removed++
			t.list(block.OpRemove, tier, p.group, []block.EngineHash{u.name})
		}
	}
}

// emit stores a whole unit, joined with the previous operation if it follows it.
func (p *pages) emit(t *Translator, u *unit, tier block.Tier) {
	d := t.out
	t.stats.Stored++
	n, blocks := len(d.Ops), len(d.Blocks)
	d.Blocks = append(d.Blocks, block.StoredBlock{
		Hash: u.name, Key: u.key, Bytes: u.bytes, Tokens: uint32(p.k) * p.size, Flags: u.flags,
	})
	if n > 0 && !u.root && blocks > 0 {
		op := &d.Ops[n-1]
		if op.Kind == block.OpStore && op.Tier == tier && op.Group == p.group &&
			int(op.First+op.N) == blocks && d.Blocks[blocks-1].Hash == u.parent {
			op.N++
			return
		}
	}
	d.Ops = append(d.Ops, block.Op{
		Kind: block.OpStore, Tier: tier, Group: p.group, Root: u.root, From: u.from, Parent: u.parent,
		First: uint32(blocks), N: 1,
	})
}

// move counts copies of known pages in a tier, and returns the hashes that are not pages, in the
// memory of hashes.
func (p *pages) move(t *Translator, hashes []block.EngineHash, tier block.Tier) []block.EngineHash {
	rest := hashes[:0]
	for _, h := range hashes {
		if pg, ok := p.table[h]; ok {
			p.add(t, h, pg, tier)
		} else {
			rest = append(rest, h)
		}
	}
	return rest
}

// keepUnits is the capacity kept by an empty table of pages.
const keepUnits = 1 << 14

// remove removes one copy of each known page from a tier, and returns the hashes that are not
// pages, in the memory of hashes.
func (p *pages) remove(t *Translator, hashes []block.EngineHash, tier block.Tier) []block.EngineHash {
	rest := hashes[:0]
	for _, h := range hashes {
		pg, ok := p.table[h]
		if !ok {
			rest = append(rest, h)
			continue
		}
		p.drop(t, h, pg, tier)
	}
	if len(p.table) == 0 {
		if cap(p.units) > keepUnits {
			p.units = nil
		}
		p.units, p.free = append(p.units[:0], unit{}), 0
	}
	return rest
}

func (p *pages) drop(t *Translator, h block.EngineHash, pg page, tier block.Tier) {
	n := pg.copies(tier)
	if n == 0 {
		return
	}
	if pg = pg.with(tier, n-1); n == 1 {
		p.set(t, pg.unit, pg.off(), tier, false)
	}
	if pg.bits>>4 != 0 {
		p.table[h] = pg
		return
	}
	delete(p.table, h)
	p.release(pg.unit)
}

// release removes one page from a unit, and frees the unit if it has no own pages left.
func (p *pages) release(id uint32) {
	u := &p.units[id]
	if u.own--; u.own > 0 {
		return
	}
	if u.base != 0 {
		link := &p.units[u.base].forks
		for *link != id {
			link = &p.units[*link].nextFork
		}
		*link = u.nextFork
	}
	for f := u.forks; f != 0; { // branches are independent from now on
		next := p.units[f].nextFork
		p.units[f].base, p.units[f].nextFork = 0, 0
		f = next
	}
	p.units[id] = unit{nextFork: p.free}
	p.free = id
}
