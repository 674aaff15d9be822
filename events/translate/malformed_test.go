package translate

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// stranger is an engine with unusual events. Its blocks change size in mid-stream, and it clears in
// the middle of a batch and removes blocks that it never stored. It stores in unknown media, and
// under adapters with reused numbers.
type stranger struct {
	rng    *rand.Rand
	next   block.EngineHash
	chains []strangeChain
	held   map[block.EngineHash]int // copies in a tier that counts
}

// strangeChain holds the blocks of one prompt, all of one adapter.
type strangeChain struct {
	adapter int64
	tokens  []uint32
	hashes  []block.EngineHash
	ends    []int // tokens up to the end of each block
}

// hit returns how many leading tokens of a prompt of the base model any chain holds.
func (s *stranger) hit(prompt []uint32) (best int) {
	for _, c := range s.chains {
		if c.adapter != 0 {
			continue
		}
		n := 0
		for n < len(prompt) && n < len(c.tokens) && prompt[n] == c.tokens[n] {
			n++
		}
		end := 0
		for i, h := range c.hashes {
			if s.held[h] == 0 || c.ends[i] > n {
				break
			}
			end = c.ends[i]
		}
		best = max(best, end)
	}
	return best
}

// events makes a batch.
func (s *stranger) events() (out []decode.Event) {
	for range 1 + s.rng.IntN(4) {
		switch k := s.rng.IntN(20); {
		case k == 0:
			out = append(out, decode.Event{Kind: decode.AllBlocksCleared})
			clear(s.held)
		case k < 3:
			out = append(out, decode.Event{Kind: decode.BlockRemoved, Group: decode.NoGroup, Hashes: []block.EngineHash{block.EngineHash(s.rng.Uint64() | 1<<63)}})
		case k < 8 && len(s.chains) > 0:
			c := s.chains[s.rng.IntN(len(s.chains))]
			h := c.hashes[s.rng.IntN(len(c.hashes))]
			if s.held[h] > 0 {
				s.held[h]--
				out = append(out, decode.Event{Kind: decode.BlockRemoved, Group: decode.NoGroup, Hashes: []block.EngineHash{h}})
			}
		default:
			out = append(out, s.store())
		}
	}
	return out
}

func (s *stranger) store() decode.Event {
	size := []int{16, 32, 48, 20, 8, 4}[s.rng.IntN(6)]
	e := decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: uint32(size)}
	c := strangeChain{adapter: max(0, int64(s.rng.IntN(4))-1)}
	if len(s.chains) > 0 && s.rng.IntN(3) > 0 { // continue after a block of another chain
		old := s.chains[s.rng.IntN(len(s.chains))]
		at := s.rng.IntN(len(old.hashes))
		if s.held[old.hashes[at]] > 0 {
			c = strangeChain{old.adapter, append([]uint32(nil), old.tokens[:old.ends[at]]...),
				append([]block.EngineHash(nil), old.hashes[:at+1]...), append([]int(nil), old.ends[:at+1]...)}
			e.HasParent, e.Parent = true, old.hashes[at]
		}
	}
	e.HasLoraID, e.LoraID = c.adapter != 0, c.adapter
	for range 1 + s.rng.IntN(3) {
		for range size {
			id := s.rng.Uint32N(2)
			c.tokens, e.Tokens = append(c.tokens, id), append(e.Tokens, id)
		}
		s.next += 7
		c.hashes, e.Hashes = append(c.hashes, s.next), append(e.Hashes, s.next)
		c.ends = append(c.ends, len(c.tokens))
	}
	if s.rng.IntN(8) == 0 {
		e.Medium = []byte("a medium nobody knows")
		return e // ignored
	}
	for _, h := range e.Hashes {
		s.held[h]++
	}
	s.chains = append(s.chains, c)
	return e
}

// TestStrangeEngine: for an engine with unusual events, predictions never exceed the content by its
// events, and missing fields are counted.
func TestStrangeEngine(t *testing.T) {
	hits, skipped := 0, uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		s := &stranger{rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3)), held: map[block.EngineHash]int{}}
		r := newRig(Options{})
		root := testHasher().Root(block.Scope{Space: block.SpaceTokens, Model: "model"})
		for op := range 100 {
			before := len(s.chains)
			r.apply(s.events()...)
			if before == 0 && len(s.chains) == 0 {
				continue
			}
			probe := s.chains[s.rng.IntN(len(s.chains))].tokens
			var runs [1]block.Run
			r.index.Match(block.Query{Root: root, Bytes: appendIDs(nil, probe)}, []block.EndpointID{testSource.Endpoint}, runs[:])
			got, want := int(runs[0].Total()), s.hit(probe)
			if want > 0 && got == want {
				hits++
			}
			if got > want {
				t.Fatalf("operation %d: %d tokens predicted, %d there", op, got, want)
			}
		}
		skipped += r.tr.Stats().Skipped[SkipMedium]
	})
	if hits == 0 || skipped == 0 {
		t.Errorf("%d hits, %d events of unknown media", hits, skipped)
	}
	t.Logf("%d predictions equal, %d events of unknown media", hits, skipped)
}
