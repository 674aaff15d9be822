package indexer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// mixedToken is how many bytes a token of the mixed pools has.
const mixedToken = 3

// mixedHold holds the blocks of one source of a mixed pool: for each block size, tier and position,
// whether the block is cached.
type mixedHold map[[3]int]bool

// covered returns how much of the first n tokens the source holds. A token counts in the best tier
// of a block that covers it. Only blocks that agree with the query count.
func (m mixedHold) covered(n int) (run [block.NumTiers]int32) {
	for at := range n {
		best := int(block.NumTiers)
		for b := range m {
			if size, tier, first := b[0], b[1], b[2]; first <= at && at < first+size && first+size <= n {
				best = min(best, tier)
			}
		}
		if best == int(block.NumTiers) {
			break
		}
		run[best]++
	}
	return run
}

// The prediction for each endpoint equals its cache. This holds for all block sizes, tiers and
// holes of this and the other endpoints.
func TestMixedPoolLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := block.NewHasher(block.Seed{3})
		x, root := New(Options{Hasher: h}), h.Root(block.Scope{Model: "m"})
		query := make([]byte, rapid.IntRange(1, 40).Draw(t, "tokens")*mixedToken)
		for i := range query {
			query[i] = byte('a' + i*i%23)
		}
		endpoints := rapid.IntRange(1, 6).Draw(t, "endpoints")
		want := make([][block.NumTiers]int32, endpoints)
		eps := make([]block.EndpointID, endpoints)
		hash := block.EngineHash(0)
		for ep := range endpoints {
			eps[ep] = block.EndpointID(ep)
			held := mixedHold{}
			for range rapid.IntRange(1, 3).Draw(t, "cuttings") {
				size := rapid.SampledFrom([]int{1, 2, 3, 4, 6, 8, 16}).Draw(t, "size")
				tier := rapid.IntRange(0, int(block.NumTiers)-1).Draw(t, "tier")
				text := append([]byte(nil), query...)
				if differs := rapid.IntRange(0, 2*len(text)).Draw(t, "differs"); differs < len(text) {
					text[differs] = 'z'
				}
				text = append(text, "more"...)
				d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, Tier: block.Tier(tier)}}}
				key, step := root, size*mixedToken
				for at := 0; at+step <= len(text); at += step {
					key = h.Child(key, text[at:at+step])
					hash++
					d.Blocks = append(d.Blocks, block.StoredBlock{Hash: hash, Key: key, Bytes: uint32(step), Tokens: uint32(size)})
				}
				if len(d.Blocks) == 0 {
					continue
				}
				d.Ops[0].N = uint32(len(d.Blocks))
				x.Apply(block.Source{Endpoint: eps[ep]}, &d)
				same := true
				for i := range d.Blocks {
					at := i * step
					same = same && at+step <= len(query) && string(text[at:at+step]) == string(query[at:at+step])
					if rapid.IntRange(0, 9).Draw(t, "removed") == 0 {
						x.Apply(block.Source{Endpoint: eps[ep]}, &block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: 1, Tier: block.Tier(tier)}}, Hashes: []block.EngineHash{d.Blocks[i].Hash}})
					} else if same {
						held[[3]int{size, tier, at / mixedToken}] = true
					}
				}
			}
			want[ep] = held.covered(len(query) / mixedToken)
		}
		runs := make([]block.Run, endpoints)
		q := block.Query{Root: root, Bytes: query}
		x.Match(q, eps, runs)
		for ep, run := range runs {
			if run.Tokens != want[ep] || run.Bytes != run.Total()*mixedToken {
				t.Fatalf("endpoint %d: %+v predicted, %v held", ep, run, want[ep])
			}
			if ends := x.BlockEnds(q, run, nil); len(ends) != int(run.Blocks) || run.Blocks > 0 && ends[run.Blocks-1] != run.Bytes {
				t.Fatalf("endpoint %d: ends %v of %+v", ep, ends, run)
			}
		}
	})
}
