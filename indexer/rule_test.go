package indexer

import (
	"math/rand/v2"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// groupsModel is a naive model of an engine with several cache groups: by group, the texts that end
// with a cached block.
type groupsModel struct {
	rules []block.Rule
	held  [4]map[string]int
}

const modelBlock = 4

// reuses returns the number of blocks of text that the engine reuses.
func (m *groupsModel) reuses(text string) (best int) {
	at := func(group, blocks int) bool { return m.held[group][text[:blocks*modelBlock]] > 0 }
	run := func(group, blocks int) (n int) { // consecutive blocks that end there
		for ; blocks-n > 0 && at(group, blocks-n); n++ {
		}
		return n
	}
	for p := 1; p*modelBlock < len(text) && at(0, p); p++ {
		ok := true
		for _, r := range m.rules {
			n := run(int(r.Group), p)
			switch r.Kind {
			case block.RuleAll:
				ok = ok && n == p
			case block.RuleWindow:
				ok = ok && (n == p || n*modelBlock >= int(r.Need))
			case block.RuleState:
				ok = ok && n > 0
			}
		}
		if ok {
			best = p
		}
	}
	return best
}

// TestRuleLaw: a run ends where the rules of all groups are satisfied, for any stores and removals,
// and any time at which rules are set. A snapshot gives the same result.
func TestRuleLaw(t *testing.T) {
	found := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 15))
		m := &groupsModel{}
		for g := uint8(1); g < 4; g++ {
			m.rules = append(m.rules, block.Rule{
				Group: g, Kind: block.RuleKind(rng.IntN(int(block.RuleNever))), Size: modelBlock, Need: uint32(rng.IntN(4)+1) * modelBlock,
			})
		}
		for g := range m.held {
			m.held[g] = map[string]int{}
		}
		x := New(Options{Hasher: block.NewHasher(block.Seed{1})})
		src, root := block.Source{Endpoint: 2}, x.o.Hasher.Root(block.Scope{Model: "m"})
		other := block.Source{Endpoint: 3} // full attention, with random content
		tell := rng.IntN(200)
		for op := range 400 {
			if op == tell {
				var d block.Delta
				for _, r := range m.rules {
					d.Hashes = append(d.Hashes, r.Word())
				}
				d.Ops = []block.Op{{Kind: block.OpMove, Group: block.GroupRules, N: uint32(len(d.Hashes))}}
				x.Apply(src, &d)
			}
			text := ruleText(rng)
			storeText(x, src, root, text, 0)
			for p := modelBlock; p <= len(text); p += modelBlock {
				m.held[0][text[:p]]++
			}
			if rng.IntN(2) == 0 {
				storeText(x, other, root, text, 0)
			}
			for g := uint8(1); g < 4; g++ {
				for p := modelBlock; p <= len(text); p += modelBlock {
					if rng.IntN(4) > 0 {
						m.held[g][text[:p]]++
						x.Apply(src, &block.Delta{Ops: []block.Op{{Kind: block.OpMove, Group: g, N: 1}}, Hashes: []block.EngineHash{hashOf(text[:p])}})
					}
				}
			}
			m.evict(rng, x, src)
			if op < tell {
				continue
			}
			probe := ruleText(rng)
			want := m.reuses(probe)
			check := func(x *Index, what string) {
				runs := make([]block.Run, 1)
				x.Match(block.Query{Root: root, Bytes: []byte(probe)}, []block.EndpointID{2}, runs)
				if int(runs[0].Blocks) != want || int(runs[0].Bytes) != want*modelBlock || int(runs[0].Total()) != want*modelBlock {
					t.Fatalf("%s, seed %d, operation %d, %q: %+v, want %d blocks; rules %+v", what, seed, op, probe, runs[0], want, m.rules)
				}
			}
			check(x, "index")
			if found += want; op%100 == 99 {
				check(copyOf(t, x, src), "snapshot")
			}
		}
	}
	if found < 1000 {
		t.Errorf("%d blocks found", found)
	}
}

func ruleText(rng *rand.Rand) string {
	text := make([]byte, modelBlock*(1+rng.IntN(8))+rng.IntN(2))
	for i := range text {
		text[i] = 'a' + byte(rng.IntN(9)/8)
	}
	return string(text)
}

func storeText(x *Index, src block.Source, root block.Key, text string, group uint8) {
	d, key := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, Group: group}}}, root
	for p := modelBlock; p <= len(text); p += modelBlock {
		key = x.o.Hasher.Child(key, []byte(text[p-modelBlock:p]))
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: hashOf(text[:p]), Key: key, Bytes: modelBlock, Tokens: modelBlock})
	}
	d.Ops[0].N = uint32(len(d.Blocks))
	x.Apply(src, &d)
}

// evict removes some copies of blocks, separately for each group.
func (m *groupsModel) evict(rng *rand.Rand, x *Index, src block.Source) {
	for g := range m.held {
		for text, n := range m.held[g] {
			if rng.IntN(6) > 0 {
				continue
			}
			if m.held[g][text]--; n == 1 {
				delete(m.held[g], text)
			}
			x.Apply(src, &block.Delta{Ops: []block.Op{{Kind: block.OpRemove, Group: uint8(g), N: 1}}, Hashes: []block.EngineHash{hashOf(text)}})
		}
	}
}

// copyOf returns an index filled with a snapshot of a source.
func copyOf(t *testing.T, x *Index, src block.Source) *Index {
	t.Helper()
	next := New(x.o)
	v, stage := x.View(src, 1<<20), next.Stage(src, 0)
	defer v.Close()
	for more := true; more; {
		var d block.Delta
		var err error
		if more, err = v.Next(&d, 16); err != nil {
			t.Fatal(err)
		}
		stage.Apply(&d)
	}
	n, xor := stage.Digest()
	if wantN, want := x.Digest(src); n != wantN || xor != want {
		t.Fatalf("a snapshot has %d blocks, digest %x; its source %d, %x", n, xor, wantN, want)
	}
	stage.Commit()
	return next
}
