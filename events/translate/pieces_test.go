package translate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// hybrid is an engine with full attention and, in blocks of a quarter of the size, windows.
type hybrid struct {
	rng    *rand.Rand
	kind   string
	window uint32 // 0: the whole prompt is needed
	sparse bool   // for windows, only the part that a prompt needs is kept
	names  map[string]block.EngineHash
	copies [2]map[block.EngineHash]int // by group
	all    [2][]block.EngineHash       // a name for each copy
}

const (
	hybridBlock = 64
	hybridPiece = 16
)

// name is the hash of a prompt.
func (h *hybrid) name(prompt []uint32) block.EngineHash {
	key := fmt.Sprint(prompt)
	if h.names[key] == 0 {
		h.names[key] = block.EngineHash(len(h.names) + 1)
	}
	return h.names[key]
}

// hit is how many tokens of a prompt would be reused.
func (h *hybrid) hit(prompt []uint32) (best int) {
	for end := hybridBlock; end < len(prompt) && h.copies[0][h.name(prompt[:end])] > 0; end += hybridBlock {
		from, held := 0, true
		if h.window > 0 {
			from = max(0, end-int(blocksOf(h.window, hybridPiece))*hybridPiece)
		}
		for at := end; at > from && held; at -= hybridPiece {
			held = h.copies[1][h.name(prompt[:at])] > 0
		}
		if held {
			best = end
		}
	}
	return best
}

// serve stores the part of a prompt after its hit.
func (h *hybrid) serve(prompt []uint32) (events []decode.Event) {
	from, to := h.hit(prompt), len(prompt)/hybridBlock*hybridBlock
	if from == to {
		return nil
	}
	for group, size := range []int{hybridBlock, hybridPiece} {
		e := decode.Event{Kind: decode.BlockStored, Group: int32(group), BlockSize: uint32(size), SpecKind: []byte("full_attention"), Tokens: prompt[from:to]}
		if from > 0 {
			e.HasParent, e.Parent = true, h.name(prompt[:from])
		}
		if group == 1 {
			e.SpecKind, e.Window = []byte(h.kind), h.window
		}
		for end := from + size; end <= to; end += size {
			if group == 1 && h.sparse && end <= to-int(blocksOf(h.window, hybridPiece))*hybridPiece {
				continue
			}
			n := h.name(prompt[:end])
			e.Hashes = append(e.Hashes, n)
			h.copies[group][n]++
			h.all[group] = append(h.all[group], n)
		}
		events = append(events, e)
	}
	if tail := len(prompt) / hybridPiece * hybridPiece; tail > to { // an entry within a block
		at := []decode.Event{{Kind: decode.BlockStored, BlockSize: hybridPiece, SpecKind: []byte("full_attention"), Tokens: prompt[tail-hybridPiece : tail],
			HasParent: true, Parent: h.name(prompt[:tail-hybridPiece]), Hashes: []block.EngineHash{h.name(prompt[:tail])}}}
		events = append(at, events...)
	}
	if h.rng.IntN(2) == 0 { // groups are in any order
		last := len(events) - 1
		events[last], events[0] = events[0], events[last]
	}
	return events
}

// evict removes copies from either group.
func (h *hybrid) evict(n int) (events []decode.Event) {
	for range n {
		g := h.rng.IntN(2)
		if len(h.all[g]) == 0 {
			continue
		}
		i := h.rng.IntN(len(h.all[g]))
		n := h.all[g][i]
		h.all[g] = append(h.all[g][:i], h.all[g][i+1:]...)
		h.copies[g][n]--
		events = append(events, decode.Event{Kind: decode.BlockRemoved, Group: int32(g), Hashes: []block.EngineHash{n}})
	}
	return events
}

// TestPiecesLaw: for an engine whose windows have smaller blocks than its full attention, the
// prediction equals the reuse to the token, after any evictions, and also if prompts diverge within
// a block. If a window ends within a block, the prediction may be lower.
func TestPiecesLaw(t *testing.T) {
	root := testHasher().Root(block.Scope{Space: block.SpaceTokens, Model: "model"})
	hits := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		kinds := []hybrid{
			{kind: "sliding_window", window: 40}, {kind: "sliding_window", window: 40, sparse: true},
			{kind: "sliding_window", window: 64}, {kind: "sliding_window", window: 64, sparse: true},
			{kind: "sliding_window_mla", window: 128}, {kind: "sliding_window_mla", window: 128, sparse: true},
			{kind: "sliding_window", window: 100}, {kind: "full_attention"}, {kind: "chunked_local_attention"},
		}
		h := kinds[rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")]
		h.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 9))
		h.names, h.copies = map[string]block.EngineHash{}, [2]map[block.EngineHash]int{{}, {}}
		r := newRig(Options{})
		var prompts [][]uint32
		for op := range 60 {
			var prompt []uint32
			if len(prompts) > 0 && h.rng.IntN(5) > 0 {
				old := prompts[h.rng.IntN(len(prompts))]
				prompt = append(prompt, old[:1+h.rng.IntN(len(old))]...)
			}
			for range 1 + h.rng.IntN(3*hybridBlock) {
				prompt = append(prompt, h.rng.Uint32N(50))
			}
			prompt = prompt[:min(len(prompt), 8*hybridBlock)]
			prompts = append(prompts, prompt)
			if h.rng.IntN(20) == 0 {
				r.apply(decode.Event{Kind: decode.AllBlocksCleared})
				h.copies, h.all = [2]map[block.EngineHash]int{{}, {}}, [2][]block.EngineHash{}
			}
			r.apply(append(h.evict(h.rng.IntN(6)), h.serve(prompt)...)...)
			for range 4 {
				probe := prompts[h.rng.IntN(len(prompts))]
				var runs [1]block.Run
				r.index.Match(block.Query{Root: root, Bytes: appendIDs(nil, probe)}, []block.EndpointID{testSource.Endpoint}, runs[:])
				got, want := int(runs[0].Total()), h.hit(probe)
				if got > want || got < want && h.window != 100 {
					t.Fatalf("%+v, operation %d: %d tokens predicted of %d, %d there", h.kind, op, got, len(probe), want)
				}
				if got > 0 {
					hits[fmt.Sprint(h.kind, h.window, h.sparse)]++
				}
			}
		}
		for len(h.all[0])+len(h.all[1]) > 0 {
			r.apply(h.evict(1)...)
		}
		n, _ := r.index.Digest(testSource)
		if l := r.tr.groups.list; n != 0 || r.tr.pieced != 0 || len(l) > 1 && len(l[1].pieces.at)+len(l[1].pieces.blocks) > 0 {
			t.Fatalf("of an empty cache %d names, %d pieces are left", n, r.tr.pieced)
		}
	})
	if len(hits) < 9 {
		t.Errorf("hits only of %v", hits)
	}
}

// TestPiecesAreBounded: a stream of pieces in ever new blocks keeps at most the maximum of pieces,
// and predicts nothing for the others.
func TestPiecesAreBounded(t *testing.T) {
	r := newRig(Options{})
	r.tr.pieced = maxPieces - 6 // simulates that many stored pieces
	for i := range 100 {
		base, name := decode.Event{Kind: decode.BlockStored, BlockSize: 32, SpecKind: []byte("full_attention"), Tokens: make([]uint32, 32)}, block.EngineHash(10*i+1)
		base.Tokens[0], base.Hashes = uint32(i), []block.EngineHash{name}
		small := base
		small.Group, small.BlockSize, small.SpecKind, small.Window = 1, 16, []byte("sliding_window"), 32
		small.Hashes = []block.EngineHash{name + 1, name}
		r.apply(base, small)
	}
	p := r.tr.groups.list[1].pieces
	if r.tr.pieced > maxPieces || len(p.at) > 4 || len(p.blocks) > 2 {
		t.Errorf("%d pieces, %d blocks", len(p.at), len(p.blocks))
	}
	if r.tr.stats.Skipped[SkipLimit] == 0 {
		t.Error("none was left out")
	}
	if rule := r.tr.groups.list[1].rule; rule.Kind != block.RuleState {
		t.Errorf("rule %+v", rule)
	}
}

// TestPiecesWithoutBlockSize: a store without a block size, of a group with pieces, is skipped.
func TestPiecesWithoutBlockSize(t *testing.T) {
	r := newRig(Options{})
	base := decode.Event{Kind: decode.BlockStored, BlockSize: 32, SpecKind: []byte("full_attention"), Tokens: make([]uint32, 32), Hashes: []block.EngineHash{1}}
	small := decode.Event{Kind: decode.BlockStored, Group: 1, BlockSize: 16, SpecKind: []byte("sliding_window"), Window: 32, Tokens: make([]uint32, 32), Hashes: []block.EngineHash{2, 1}}
	r.apply(base, small)
	small.BlockSize, small.SpecKind = 0, nil
	r.apply(small)
	if n := r.tr.stats.Skipped[SkipMisaligned]; n != 1 {
		t.Errorf("%d stores skipped as misaligned, want 1", n)
	}
}
