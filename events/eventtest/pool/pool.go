package pool

import (
	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Block is how many tokens a block of a Pool has.
const Block = 16

// Pool is an engine's block pool by vLLM's rules. Each physical block has one hash. A freed block
// remains a hit until it is reused, oldest first. A removal is announced for each physical block
// with a hash.
type Pool struct {
	free   []int          // physical blocks, next one to use first
	hash   []uint64       // by physical block; 0: none
	copies map[uint64]int // physical blocks by hash
	out    []decode.Event
}

// New returns an empty pool of n blocks.
func New(n int) *Pool {
	p := &Pool{hash: make([]uint64, n), copies: map[uint64]int{}}
	for i := range n {
		p.free = append(p.free, i)
	}
	return p
}

// hashOf is a block's engine hash: of the chain up to it.
func hashOf(parent uint64, tokens []uint32) uint64 {
	h := parent*0x9e3779b97f4a7c15 + 0x1234567
	for _, t := range tokens {
		h = (h ^ uint64(t)) * 0xd1b54a32d192ed03
		h ^= h >> 29
	}
	return h | 1
}

// chainOf returns the hashes of the whole blocks of a prompt.
func chainOf(prompt []uint32) (out []uint64) {
	parent := uint64(0)
	for i := 0; i+Block <= len(prompt); i += Block {
		parent = hashOf(parent, prompt[i:i+Block])
		out = append(out, parent)
	}
	return out
}

// Hit returns the number of leading cached blocks; one token is always computed.
func (p *Pool) Hit(prompt []uint32) (n int) {
	for _, h := range chainOf(prompt) {
		if p.copies[h] == 0 || (n+1)*Block > len(prompt)-1 {
			break
		}
		n++
	}
	return n
}

// Run serves a prompt: a report of reused blocks if wanted, new blocks, and copies of held ones if
// the cache is not read.
func (p *Pool) Run(prompt []uint32, report, skip bool) {
	chain, n := chainOf(prompt), 0
	if !skip {
		n = p.Hit(prompt)
	}
	if report && n > 0 {
		p.store(prompt, chain, 0, n)
	}
	// Blocks that are hit are not free while the request runs.
	held := map[uint64]bool{}
	for _, h := range chain[:n] {
		held[h] = true
	}
	var kept, rest []int
	for _, b := range p.free {
		if held[p.hash[b]] {
			held[p.hash[b]] = false
			kept = append(kept, b)
		} else {
			rest = append(rest, b)
		}
	}
	want := len(chain) - n
	if want > len(rest) {
		return
	}
	taken := rest[:want:want]
	p.free = rest[want:]
	for _, b := range taken {
		p.evict(b)
	}
	for i, b := range taken {
		p.hash[b] = chain[n+i]
		p.copies[chain[n+i]]++
	}
	if want > 0 {
		p.store(prompt, chain, n, len(chain))
	}
	// Freed tail first, behind all that is free.
	for i := len(taken) - 1; i >= 0; i-- {
		p.free = append(p.free, taken[i])
	}
	for i := len(kept) - 1; i >= 0; i-- {
		p.free = append(p.free, kept[i])
	}
}

// evict reuses a block.
func (p *Pool) evict(b int) {
	h := p.hash[b]
	if h == 0 {
		return
	}
	p.hash[b] = 0
	if p.copies[h]--; p.copies[h] == 0 {
		delete(p.copies, h)
	}
	p.out = append(p.out, decode.Event{Kind: decode.BlockRemoved, Group: 0, Hashes: []block.EngineHash{block.EngineHash(h)}})
}

// store announces blocks of a prompt.
func (p *Pool) store(prompt []uint32, chain []uint64, from, to int) {
	e := decode.Event{Kind: decode.BlockStored, Group: 0, BlockSize: Block, Tokens: prompt[from*Block : to*Block]}
	if from > 0 {
		e.HasParent, e.Parent = true, block.EngineHash(chain[from-1])
	}
	for _, h := range chain[from:to] {
		e.Hashes = append(e.Hashes, block.EngineHash(h))
	}
	p.out = append(p.out, e)
}

// Blocks returns the number of distinct held blocks.
func (p *Pool) Blocks() int { return len(p.copies) }

// Take returns the events since the last Take.
func (p *Pool) Take() []decode.Event {
	out := p.out
	p.out = nil
	return out
}
