package translate

import (
	"flag"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/eventtest/pool"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

var poolOps = flag.Int("pool.ops", 20_000, "operations of the law test of counts")

// TestPoolLaw: after any requests and evictions, the index equals the engine's pool, and predicts
// its reuse. Requests with full reports do not change this. Neither do requests that skip the cache
// and so store second copies in the same form.
func TestPoolLaw(t *testing.T) {
	reports, copies := 0, 0
	law := func(t interface{ Fatalf(string, ...any) }, seed uint64, ops int) {
		rng := rand.New(rand.NewPCG(seed, 7))
		p, r := pool.New(60+rng.IntN(200)), newRig(Options{})
		root := testHasher().Root(block.Scope{Space: block.SpaceTokens, Model: "model"})
		var prompts [][]uint32
		for op := range ops {
			var prompt []uint32
			if len(prompts) > 0 && rng.IntN(4) > 0 { // continue an earlier one
				old := prompts[rng.IntN(len(prompts))]
				prompt = append(prompt, old[:1+rng.IntN(len(old))]...)
			}
			for range 1 + rng.IntN(6*pool.Block) {
				prompt = append(prompt, rng.Uint32N(50))
			}
			prompt = prompt[:min(len(prompt), 20*pool.Block)]
			if len(prompts) < 30 {
				prompts = append(prompts, prompt)
			} else {
				prompts[rng.IntN(len(prompts))] = prompt
			}
			report, skip := rng.IntN(10) < 3, rng.IntN(100) < 15
			q := block.Query{Root: root, Bytes: appendIDs(nil, prompt)}
			if report && !skip {
				r.tr.Expect(q, false)
			}
			p.Run(prompt, report, skip)
			if skip {
				copies++
			}
			r.apply(p.Take()...)
			if n, _ := r.index.Digest(testSource); int(n) != p.Blocks() {
				t.Fatalf("seed %d, operation %d: %d blocks known, %d there", seed, op, n, p.Blocks())
			}
			probe := prompts[rng.IntN(len(prompts))]
			runs := make([]block.Run, 1)
			r.index.Match(block.Query{Root: root, Bytes: appendIDs(nil, probe)}, []block.EndpointID{testSource.Endpoint}, runs)
			if got, want := min(int(runs[0].Total()), (len(probe)-1)/pool.Block*pool.Block), p.Hit(probe)*pool.Block; got != want {
				t.Fatalf("seed %d, operation %d: %d tokens predicted, %d there", seed, op, got, want)
			}
		}
		reports += int(r.tr.Stats().Answered)
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

// TestPoolLawLate: for an engine that is read from the middle of its incarnation on, predictions
// never exceed its content, and reported blocks are known. There is one exception: the engine may
// have a second copy of an earlier block, which no event shows. Then the eviction of one copy
// counts as the eviction of both.
func TestPoolLawLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 8))
		p, r := pool.New(60+rng.IntN(200)), newRig(Options{})
		root := testHasher().Root(block.Scope{Space: block.SpaceTokens, Model: "model"})
		var prompts [][]uint32
		for op := range 150 {
			var prompt []uint32
			if len(prompts) > 0 && rng.IntN(4) > 0 {
				old := prompts[rng.IntN(len(prompts))]
				prompt = append(prompt, old[:1+rng.IntN(len(old))]...)
			}
			for range 1 + rng.IntN(6*pool.Block) {
				prompt = append(prompt, rng.Uint32N(50))
			}
			prompt = prompt[:min(len(prompt), 20*pool.Block)]
			if prompts = append(prompts, prompt); len(prompts) > 30 {
				prompts = prompts[1:]
			}
			q := block.Query{Root: root, Bytes: appendIDs(nil, prompt)}
			hit := p.Hit(prompt) * pool.Block
			report := rng.IntN(3) == 0
			if op >= 60 && report {
				r.tr.Expect(q, true)
			}
			p.Run(prompt, report, rng.IntN(8) == 0 && !report)
			events := p.Take()
			if op < 60 {
				continue
			}
			r.apply(events...)
			predicted := func(prompt []uint32) int {
				runs := make([]block.Run, 1)
				r.index.Match(block.Query{Root: root, Bytes: appendIDs(nil, prompt)}, []block.EndpointID{testSource.Endpoint}, runs)
				return min(int(runs[0].Total()), (len(prompt)-1)/pool.Block*pool.Block)
			}
			if got, want := predicted(prompt), p.Hit(prompt)*pool.Block; got > want || report && got < min(hit, want) && !toldAndEvicted(events) {
				t.Fatalf("operation %d: %d tokens predicted of its prompt, %d there, %d before", op, got, want, hit)
			}
			for _, probe := range prompts {
				if got, want := predicted(probe), p.Hit(probe)*pool.Block; got > want {
					t.Fatalf("operation %d: %d tokens predicted, %d there", op, got, want)
				}
			}
		}
	})
}

// toldAndEvicted reports whether a block is announced and then removed.
func toldAndEvicted(events []decode.Event) bool {
	told := map[block.EngineHash]bool{}
	for _, e := range events {
		for _, h := range e.Hashes {
			if e.Kind == decode.BlockStored {
				told[h] = true
			} else if told[h] {
				return true
			}
		}
	}
	return false
}
