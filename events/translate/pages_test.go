package translate

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// TestPagesLaw drives a radix tree of small pages with SGLang's rules (stores of nodes, evictions
// leaf first, write-back to the host). It compares the index's matches with the tree: the leading
// tokens in whole units.
func TestPagesLaw(t *testing.T) {
	for seed := range int64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewSource(seed))
			size := []int{1, 1, 2, 4, 5}[rng.Intn(5)]
			runPagesLaw(t, rng, size)
		})
	}
}

func runPagesLaw(t *testing.T, rng *rand.Rand, size int) {
	r := newRig(Options{})
	tree := newRadix(size)
	unit := maxUnit / size * size
	for range 200 {
		switch n := rng.Intn(6); {
		case n < 4:
			r.apply(tree.insert(tree.prompt(rng))...)
		case n < 5:
			r.apply(tree.evict(rng, tree.keepHost)...)
		default:
			r.apply(tree.evictHost(rng)...)
		}
		for range 3 {
			prompt := tree.prompt(rng)
			want := tree.match(prompt) / unit * unit
			if got := r.match(prompt); got != want {
				t.Fatalf("match of %d tokens: %d, want %d", len(prompt), got, want)
			}
		}
	}
	for len(tree.pages) > 0 {
		r.apply(tree.evict(rng, false)...)
		r.apply(tree.evictHost(rng)...)
	}
	if n, _ := r.index.Digest(testSource); n != 0 || len(r.tr.pages.table) != 0 || len(r.tr.pages.units) != 1 {
		t.Errorf("%d blocks, %d pages, %d units are left of an empty tree", n, len(r.tr.pages.table), len(r.tr.pages.units))
	}
}

// match returns the leading tokens of a prompt in token space that the index
// finds.
func (r *rig) match(prompt []uint32) int {
	h := testHasher()
	root := h.Root(block.Scope{Space: block.SpaceTokens, Model: "model"})
	var runs [1]block.Run
	r.index.Match(block.Query{Root: root, Bytes: appendIDs(nil, prompt)}, []block.EndpointID{testSource.Endpoint}, runs[:])
	return int(runs[0].Total())
}

// radix is a tree of pages, each named by a hash of everything before it.
type radix struct {
	size     int
	next     block.EngineHash
	keepHost bool
	pages    map[string]*radixPage // by the tokens from the start of the chain
}

type radixPage struct {
	hash           block.EngineHash
	gpu, host      bool
	gpuKids, kids  int // pages that follow, on the GPU and anywhere
	parent, tokens string
}

func newRadix(size int) *radix {
	return &radix{size: size, next: 1, keepHost: true, pages: map[string]*radixPage{}}
}

// prompt returns one of few branching sequences of tokens.
func (x *radix) prompt(rng *rand.Rand) []uint32 {
	var out []uint32
	for range 1 + rng.Intn(6) {
		start := uint32(rng.Intn(3) * 100)
		for i := range uint32(1 + rng.Intn(30)) {
			out = append(out, start+i)
		}
	}
	return out
}

func path(tokens []uint32) string { return string(appendIDs(nil, tokens)) }

// insert brings a prompt's whole pages onto the GPU and returns the events:
// one or two for the part that is not there.
func (x *radix) insert(prompt []uint32) []decode.Event {
	known := 0
	for known+x.size <= len(prompt) {
		if p := x.pages[path(prompt[:known+x.size])]; p == nil || !p.gpu {
			break
		}
		known += x.size
	}
	e := decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: uint32(x.size)}
	if known > 0 {
		e.HasParent, e.Parent = true, x.pages[path(prompt[:known])].hash
	}
	for n := known + x.size; n <= len(prompt); n += x.size {
		e.Hashes = append(e.Hashes, x.load(path(prompt[:n]), path(prompt[:n-x.size])))
	}
	if len(e.Hashes) == 0 {
		return nil
	}
	e.Tokens = prompt[known : known+len(e.Hashes)*x.size]
	if len(e.Hashes) < 4 {
		return []decode.Event{e}
	}
	half := len(e.Hashes) / 2
	tail := e
	tail.HasParent, tail.Parent = true, e.Hashes[half-1]
	tail.Hashes, tail.Tokens = e.Hashes[half:], e.Tokens[half*x.size:]
	e.Hashes, e.Tokens = e.Hashes[:half], e.Tokens[:half*x.size]
	return []decode.Event{e, tail}
}

// load brings one page onto the GPU.
func (x *radix) load(at, parent string) block.EngineHash {
	p := x.pages[at]
	if p == nil {
		p = &radixPage{hash: x.next, parent: parent, tokens: at}
		x.next++
		x.pages[at] = p
		if up := x.pages[parent]; up != nil {
			up.kids++
		}
	}
	p.gpu = true
	if up := x.pages[parent]; up != nil {
		up.gpuKids++
	}
	return p.hash
}

// match returns the leading tokens of a prompt that the tree holds anywhere.
func (x *radix) match(prompt []uint32) int {
	n := 0
	for n+x.size <= len(prompt) && x.pages[path(prompt[:n+x.size])] != nil {
		n += x.size
	}
	return n
}

// leaf returns some page that satisfies ok, or nil.
func (x *radix) leaf(rng *rand.Rand, ok func(*radixPage) bool) *radixPage {
	var leaves []string
	for at, p := range x.pages {
		if ok(p) {
			leaves = append(leaves, at)
		}
	}
	if len(leaves) == 0 {
		return nil
	}
	slices.Sort(leaves)
	return x.pages[leaves[rng.Intn(len(leaves))]]
}

// evict removes pages from the GPU, from the end of one chain on. Some are first written to the
// host.
func (x *radix) evict(rng *rand.Rand, host bool) []decode.Event {
	onGPU := func(p *radixPage) bool { return p.gpu && p.gpuKids == 0 }
	p := x.leaf(rng, onGPU)
	host = host && rng.Intn(2) == 0
	var out []decode.Event
	e := decode.Event{Kind: decode.BlockRemoved, Group: decode.NoGroup}
	for range 1 + rng.Intn(40) {
		if p == nil || !onGPU(p) {
			break
		}
		if !p.host && (host || p.kids > 0) { // a page on the host has its parent on the host
			p.host = true
			out = append(out, decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, Medium: []byte("CPU_PINNED"), Hashes: []block.EngineHash{p.hash}})
		}
		p.gpu = false
		e.Hashes = append(e.Hashes, p.hash)
		up := x.pages[p.parent]
		if up != nil {
			up.gpuKids--
		}
		x.drop(p)
		p = up
	}
	if len(e.Hashes) == 0 {
		return nil
	}
	if rng.Intn(2) == 0 {
		slices.Reverse(e.Hashes)
	}
	return append(out, e)
}

// evictHost removes pages from the host, from the end of one chain on.
func (x *radix) evictHost(rng *rand.Rand) []decode.Event {
	onHost := func(p *radixPage) bool { return p.host && (p.gpu || p.kids == 0) }
	p := x.leaf(rng, onHost)
	e := decode.Event{Kind: decode.BlockRemoved, Group: decode.NoGroup, Medium: []byte("CPU_PINNED")}
	for range 1 + rng.Intn(40) {
		if p == nil || !onHost(p) {
			break
		}
		p.host = false
		e.Hashes = append(e.Hashes, p.hash)
		x.drop(p)
		p = x.pages[p.parent]
	}
	if len(e.Hashes) == 0 {
		return nil
	}
	return []decode.Event{e}
}

// drop deletes a page that is in no tier any more.
func (x *radix) drop(p *radixPage) {
	if p.gpu || p.host {
		return
	}
	delete(x.pages, p.tokens)
	if up := x.pages[p.parent]; up != nil {
		up.kids--
	}
}
