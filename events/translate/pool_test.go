package translate

import (
	"flag"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer"
)

var poolOps = flag.Int("pool.ops", 20_000, "operations of the law test of counts")

const poolBlock = 16

// pool is an engine's pool of blocks by vLLM's rules: physical blocks with one hash
// each; a freed block stays a hit until it is taken for something else, oldest first;
// a removal is announced for each physical block that had a hash.
type pool struct {
	rng    *rand.Rand
	free   []int          // physical blocks, those to be taken first in front
	hash   []uint64       // by physical block; 0: none
	copies map[uint64]int // physical blocks by hash
	out    []decode.Event
}

func newPool(rng *rand.Rand, n int) *pool {
	p := &pool{rng: rng, hash: make([]uint64, n), copies: map[uint64]int{}}
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

func chainOf(prompt []uint32) (out []uint64) {
	parent := uint64(0)
	for i := 0; i+poolBlock <= len(prompt); i += poolBlock {
		parent = hashOf(parent, prompt[i:i+poolBlock])
		out = append(out, parent)
	}
	return out
}

// hit is the number of leading blocks that are cached; one token is always computed.
func (p *pool) hit(prompt []uint32) (n int) {
	for _, h := range chainOf(prompt) {
		if p.copies[h] == 0 || (n+1)*poolBlock > len(prompt)-1 {
			break
		}
		n++
	}
	return n
}

// run serves a prompt: a report of what is reused if wanted, new blocks, and copies of
// held ones when the cache is not read.
func (p *pool) run(prompt []uint32, report, skip bool) {
	chain, n := chainOf(prompt), 0
	if !skip {
		n = p.hit(prompt)
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

func (p *pool) evict(b int) {
	h := p.hash[b]
	if h == 0 {
		return
	}
	p.hash[b] = 0
	if p.copies[h]--; p.copies[h] == 0 {
		delete(p.copies, h)
	}
	p.out = append(p.out, decode.Event{Kind: decode.BlockRemoved, Group: 0, Hashes: []indexer.EngineHash{indexer.EngineHash(h)}})
}

func (p *pool) store(prompt []uint32, chain []uint64, from, to int) {
	e := decode.Event{Kind: decode.BlockStored, Group: 0, BlockSize: poolBlock, Tokens: prompt[from*poolBlock : to*poolBlock]}
	if from > 0 {
		e.HasParent, e.Parent = true, indexer.EngineHash(chain[from-1])
	}
	for _, h := range chain[from:to] {
		e.Hashes = append(e.Hashes, indexer.EngineHash(h))
	}
	p.out = append(p.out, e)
}

// TestPoolLaw: whatever is asked for and evicted, the index holds what the engine's pool
// holds, and predicts what it reuses. Requests that make full reports, and ones that read
// no cache and so make second copies in the same shape, change nothing of that.
func TestPoolLaw(t *testing.T) {
	reports, copies := 0, 0
	law := func(t interface{ Fatalf(string, ...any) }, seed uint64, ops int) {
		rng := rand.New(rand.NewPCG(seed, 7))
		p, r := newPool(rng, 60+rng.IntN(200)), newRig(Options{})
		root := testHasher().Root(indexer.Scope{Space: indexer.SpaceTokens, Model: "model"})
		var prompts [][]uint32
		for op := range ops {
			var prompt []uint32
			if len(prompts) > 0 && rng.IntN(4) > 0 { // goes on from an earlier one
				old := prompts[rng.IntN(len(prompts))]
				prompt = append(prompt, old[:1+rng.IntN(len(old))]...)
			}
			for range 1 + rng.IntN(6*poolBlock) {
				prompt = append(prompt, rng.Uint32N(50))
			}
			prompt = prompt[:min(len(prompt), 20*poolBlock)]
			if len(prompts) < 30 {
				prompts = append(prompts, prompt)
			} else {
				prompts[rng.IntN(len(prompts))] = prompt
			}
			report, skip := rng.IntN(10) < 3, rng.IntN(100) < 15
			q := indexer.Query{Root: root, Bytes: appendIDs(nil, prompt)}
			if report && !skip {
				r.tr.Expect(q)
			}
			p.out = nil
			p.run(prompt, report, skip)
			if skip {
				copies++
			}
			r.apply(p.out...)
			if n, _ := r.index.Digest(testSource); int(n) != len(p.copies) {
				t.Fatalf("seed %d, operation %d: %d blocks known, %d there", seed, op, n, len(p.copies))
			}
			probe := prompts[rng.IntN(len(prompts))]
			runs := make([]indexer.Run, 1)
			r.index.Match(indexer.Query{Root: root, Bytes: appendIDs(nil, probe)}, []indexer.EndpointID{testSource.Endpoint}, runs)
			if got, want := min(int(runs[0].Total()), (len(probe)-1)/poolBlock*poolBlock), p.hit(probe)*poolBlock; got != want {
				t.Fatalf("seed %d, operation %d: %d tokens predicted, %d there", seed, op, got, want)
			}
		}
		reports += int(r.tr.Stats().Reports)
	}
	rapid.Check(t, func(t *rapid.T) { law(t, rapid.Uint64().Draw(t, "seed"), 60) })
	for seed := range uint64(4) {
		law(t, seed, *poolOps/4)
	}
	t.Logf("%d full reports, %d requests that read no cache", reports, copies)
	if reports == 0 || copies == 0 {
		t.Error("neither reports nor copies were tried")
	}
}
