package translate

import (
	"bytes"
	"slices"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// parking stores events whose parent is unknown until the parent arrives, they are removed, or
// newer ones need the room. The oldest are dropped first.
type parking struct {
	maxBlocks, maxBytes int
	blocks, bytes       int
	live                int         // number of fragments
	oldest              []*fragment // in order of arrival, including gone ones
	byParent            map[block.EngineHash][]*fragment
	byHash              map[block.EngineHash]*fragment // newest fragment with that block
}

// fragment is a parked event that owns its memory.
type fragment struct {
	decode.Event
	tier block.Tier
	gone bool
}

func (f *fragment) size() int {
	return 256 + 16*len(f.Hashes) + 4*len(f.Tokens) + 48*len(f.Extra)
}

// setAside parks a copy of e without blocks that are already parked: a removal finds only one copy,
// and the other must not outlive it.
func (t *Translator) setAside(e *decode.Event, tier block.Tier) {
	from, to := t.park.unparked(e.Hashes)
	if from == to {
		return
	}
	f := &fragment{Event: *e, tier: tier}
	if from > 0 || to < len(e.Hashes) {
		f.cut(from, to)
		e = &f.Event
	}
	f.Hashes, f.Tokens, f.Extra = slices.Clone(e.Hashes), slices.Clone(e.Tokens), slices.Clone(e.Extra)
	f.Lookahead = slices.Clone(e.Lookahead)
	for i := range f.Extra {
		f.Extra[i].Value = bytes.Clone(f.Extra[i].Value)
	}
	f.LoraName, f.CacheSalt = bytes.Clone(e.LoraName), bytes.Clone(e.CacheSalt)
	f.Medium, f.SpecKind, f.Locality, f.Ownership = nil, nil, nil, nil // admitted already
	t.stats.Parked += uint64(len(f.Hashes))
	p := &t.park
	if f.size() > p.maxBytes || len(f.Hashes) > p.maxBlocks {
		t.stats.Lost += uint64(len(f.Hashes))
		return
	}
	for p.blocks+len(f.Hashes) > p.maxBlocks || p.bytes+f.size() > p.maxBytes {
		t.stats.Lost += uint64(p.dropOldest())
	}
	p.add(f)
}

// unparked returns the first range of hashes that are not parked.
func (p *parking) unparked(hashes []block.EngineHash) (from, to int) {
	for from < len(hashes) && p.byHash[hashes[from]] != nil {
		from++
	}
	for to = from; to < len(hashes) && p.byHash[hashes[to]] == nil; to++ {
	}
	return from, to
}

// cut keeps the blocks from up to to.
func (f *fragment) cut(from, to int) {
	n, size := len(f.Hashes), int(f.BlockSize)
	if from > 0 {
		f.HasParent, f.Parent = true, f.Hashes[from-1]
	}
	ahead := len(f.Lookahead) / n
	f.Lookahead = f.Lookahead[ahead*from : ahead*to]
	f.Hashes, f.Tokens = f.Hashes[from:to], f.Tokens[from*size:to*size]
	f.Extra = extraFrom(f.Extra, from, to)
}

func (p *parking) add(f *fragment) {
	if p.byParent == nil {
		p.byParent = make(map[block.EngineHash][]*fragment)
		p.byHash = make(map[block.EngineHash]*fragment)
	}
	if p.live++; len(p.oldest) > 2*p.live+64 {
		p.oldest = slices.DeleteFunc(p.oldest, func(f *fragment) bool { return f.gone })
	}
	p.oldest = append(p.oldest, f)
	p.byParent[f.Parent] = append(p.byParent[f.Parent], f)
	for _, h := range f.Hashes {
		p.byHash[h] = f
	}
	p.blocks += len(f.Hashes)
	p.bytes += f.size()
}

// dropOldest drops the oldest fragment and returns its number of blocks.
func (p *parking) dropOldest() int {
	for len(p.oldest) > 0 {
		f := p.oldest[0]
		p.oldest = p.oldest[1:]
		if !f.gone {
			n := len(f.Hashes)
			p.unlink(f)
			return n
		}
	}
	return 0
}

// unlink removes f from the maps.
func (p *parking) unlink(f *fragment) {
	f.gone = true
	p.live--
	p.blocks -= len(f.Hashes)
	p.bytes -= f.size()
	for _, h := range f.Hashes {
		if p.byHash[h] == f {
			delete(p.byHash, h)
		}
	}
	siblings := slices.DeleteFunc(p.byParent[f.Parent], func(o *fragment) bool { return o == f })
	if len(siblings) == 0 {
		delete(p.byParent, f.Parent)
	} else {
		p.byParent[f.Parent] = siblings
	}
	if p.blocks == 0 {
		p.clear()
	}
}

func (p *parking) clear() {
	p.blocks, p.bytes, p.live, p.oldest, p.byParent, p.byHash = 0, 0, 0, nil, nil, nil
}

// remove removes parked hashes, with everything below them in the same fragment, and returns the
// others. The result may share memory with hashes.
func (p *parking) remove(hashes []block.EngineHash, tier block.Tier) []block.EngineHash {
	rest := hashes[:0]
	for _, h := range hashes {
		f := p.byHash[h]
		if f == nil || f.tier != tier {
			rest = append(rest, h)
			continue
		}
		i := slices.Index(f.Hashes, h)
		p.unlink(f)
		if i > 0 {
			short := &fragment{Event: f.Event, tier: f.tier}
			short.cut(0, i)
			p.add(short)
		}
	}
	return rest
}

// reported removes blocks named by a report from the parking: they are now known and are not additional
// copies. Blocks below the last one wait for the report.
func (p *parking) reported(hashes []block.EngineHash) {
	for i := 0; i < len(hashes) && p.blocks > 0; i++ {
		f := p.byHash[hashes[i]]
		if f == nil {
			continue
		}
		from := slices.Index(f.Hashes, hashes[i])
		to := from + 1
		for to < len(f.Hashes) && i+1 < len(hashes) && f.Hashes[to] == hashes[i+1] {
			to, i = to+1, i+1
		}
		p.unlink(f)
		for _, rest := range [][2]int{{0, from}, {to, len(f.Hashes)}} {
			if rest[0] < rest[1] {
				part := &fragment{Event: f.Event, tier: f.tier}
				part.cut(rest[0], rest[1])
				p.add(part)
			}
		}
	}
}

// attach stores every parked fragment whose parent is in hashes, and recursively those below.
func (t *Translator) attach(hashes []block.EngineHash) {
	p := &t.park
	if p.blocks == 0 {
		return
	}
	var ready []*fragment
	collect := func(hashes []block.EngineHash) {
		for _, h := range hashes {
			for p.blocks > 0 && len(p.byParent[h]) > 0 {
				f := p.byParent[h][0]
				p.unlink(f)
				ready = append(ready, f)
			}
		}
	}
	collect(hashes)
	for len(ready) > 0 {
		f := ready[0]
		ready = ready[1:]
		if !t.place(&f.Event, f.tier) {
			t.stats.Lost += uint64(len(f.Hashes))
			continue
		}
		t.stats.Attached += uint64(len(f.Hashes))
		collect(f.Hashes)
	}
}
