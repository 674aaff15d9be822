package indexer

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// storedChain makes n blocks of size bytes below root, and the delta that stores them.
func storedChain(h block.Hasher, root block.Key, seed uint64, n, size int) ([]byte, block.Delta) {
	r := rand.New(rand.NewPCG(seed, 1))
	text := make([]byte, n*size)
	for i := 0; i+8 <= len(text); i += 8 {
		binary.LittleEndian.PutUint64(text[i:], r.Uint64())
	}
	d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: uint32(n)}}}
	key := root
	for i := range n {
		key = h.Child(key, text[i*size:(i+1)*size])
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(seed<<20 + uint64(i)), Key: key, Bytes: uint32(size), Tokens: 16})
	}
	return text, d
}

func TestNonCanonicalBlockEndsTheWalk(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(block.Scope{})
	text, d := storedChain(h, root, 1, 5, 8)
	d.Blocks[3].Flags = block.FlagNonCanonical
	x.Apply(block.Source{}, &d)
	dst := make([]block.Run, 1)
	x.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{0}, dst)
	if dst[0].Blocks != 3 {
		t.Errorf("got %d blocks, want 3", dst[0].Blocks)
	}
	if key, ok := x.Lookup(block.Source{}, d.Blocks[4].Hash); !ok || key != d.Blocks[4].Key {
		t.Error("the block below a non-canonical one is lost")
	}
}

// Sources that tokenized one text differently do not affect each other's runs, for any order of
// stores, in a list of children and at a branch point.
func TestJudgementsAreKeptApart(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	root := h.Root(block.Scope{})
	text, plain := storedChain(h, root, 1, 6, 8)
	_, judged := storedChain(h, root, 1, 6, 8)
	judged.Blocks[3].Flags = block.FlagNonCanonical
	for _, siblings := range []int{0, 2 * branchAt} {
		for _, first := range []block.EndpointID{0, 1} {
			x := New(Options{Hasher: h})
			for i := range siblings {
				_, d := storedChain(h, plain.Blocks[2].Key, uint64(100+i), 2, 8)
				d.Ops[0] = block.Op{Kind: block.OpStore, From: plain.Blocks[2].Key, Parent: plain.Blocks[2].Hash, N: 2}
				x.Apply(block.Source{}, &block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: 3}}, Blocks: plain.Blocks[:3]})
				x.Apply(block.Source{}, &d)
			}
			deltas := [...]*block.Delta{&plain, &judged}
			x.Apply(block.Source{Endpoint: first}, deltas[first])
			x.Apply(block.Source{Endpoint: 1 - first}, deltas[1-first])
			dst := make([]block.Run, 2)
			q := block.Query{Root: root, Bytes: text}
			if x.Match(q, []block.EndpointID{0, 1}, dst); dst[0].Blocks != 6 || dst[1].Blocks != 3 || dst[0].Cut || !dst[1].Cut {
				t.Errorf("%d siblings, endpoint %d first: got %+v", siblings, first, dst)
			}
			x.RemoveEndpoint(0)
			if x.Match(q, []block.EndpointID{0, 1}, dst); dst[1].Blocks != 3 || !dst[1].Cut {
				t.Errorf("%d siblings, the judged alone: got %+v", siblings, dst[1])
			}
			x.RemoveEndpoint(1)
			if s := x.Stats(); s.Nodes != 0 || s.Entries != 0 || s.Branches != 0 {
				t.Errorf("left: %+v", s)
			}
		}
	}
}

// Below a block and its non-canonical twin, the same keys are different blocks,
// at branch points too.
func TestBranchesBelowTwins(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	root := h.Root(block.Scope{})
	for _, first := range []block.EndpointID{0, 1} {
		x := New(Options{Hasher: h})
		var texts [][]byte
		for i := range 2 * branchAt {
			text, top := storedChain(h, root, 1, 1, 8)
			tail, d := storedChain(h, top.Blocks[0].Key, uint64(100+i), 2, 8)
			texts = append(texts, append(text, tail...))
			d.Ops[0].Root, d.Ops[0].Parent = false, top.Blocks[0].Hash
			for _, ep := range []block.EndpointID{first, 1 - first} {
				top.Blocks[0].Flags = block.Flags(ep) * block.FlagNonCanonical
				x.Apply(block.Source{Endpoint: ep}, &top)
				if st := x.Apply(block.Source{Endpoint: ep}, &d); st.Stored != 2 {
					t.Fatalf("got %+v", st)
				}
			}
		}
		if n := x.Stats().Nodes; n != 1+2*(1+2*len(texts)) {
			t.Errorf("%d nodes", n)
		}
		for _, gone := range []block.EndpointID{1, 0} {
			dst := make([]block.Run, 2)
			for i, text := range texts {
				if x.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{0, 1}, dst); dst[0].Blocks != 3 || dst[1].Blocks != 0 {
					t.Errorf("text %d: got %+v", i, dst)
				}
			}
			x.RemoveEndpoint(gone)
		}
		if s := x.Stats(); s.Nodes != 0 || s.Branches != 0 || x.table.Len() != 0 {
			t.Errorf("left: %+v", s)
		}
	}
}

// A second copy of a block counts with the first, however it is judged: a
// removal of one must leave the other.
func TestFirstJudgementStands(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(block.Scope{})
	text, d := storedChain(h, root, 1, 3, 8)
	_, judged := storedChain(h, root, 1, 3, 8)
	judged.Blocks[1].Flags = block.FlagNonCanonical
	x.Apply(block.Source{}, &d)
	x.Apply(block.Source{}, &judged)
	x.Apply(block.Source{}, removal(&d))
	dst := make([]block.Run, 1)
	if x.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{0}, dst); dst[0].Blocks != 3 {
		t.Errorf("got %+v", dst[0])
	}
	if x.Apply(block.Source{}, removal(&d)); x.Stats().Nodes != 0 {
		t.Errorf("left: %+v", x.Stats())
	}
}

func TestLimitsRefuseAndCount(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x, root := New(Options{Hasher: h, MaxSourceBlocks: 10}), h.Root(block.Scope{})
	_, d := storedChain(h, root, 1, 25, 8)
	if st := x.Apply(block.Source{}, &d); st.Stored != 10 || st.Refused != 15 {
		t.Errorf("got %+v", st)
	}
	orphan := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Parent: 99, From: 5, N: 1}}, Blocks: d.Blocks[:1]}
	if st := x.Apply(block.Source{}, &orphan); st.UnknownParent != 1 {
		t.Errorf("got %+v", st)
	}
}

// Readers must see a chain that is never changed, whole, while the rest of the index churns.
func TestReadersDuringChurn(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(block.Scope{Model: "m"})
	text, d := storedChain(h, root, 1, 64, 64)
	stable := block.Source{Endpoint: 3}
	x.Apply(stable, &d)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 9))
			for !stop.Load() {
				s := block.Source{Endpoint: block.EndpointID(4 + r.IntN(3)), Rank: uint16(w)}
				_, c := storedChain(h, root, 2+r.Uint64N(50), 1+r.IntN(60), 64)
				x.Apply(s, &c)
				x.Apply(s, &d)
				rm := block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: uint32(len(c.Blocks))}}}
				for i := len(c.Blocks) - 1; i >= 0; i-- {
					rm.Hashes = append(rm.Hashes, c.Blocks[i].Hash)
				}
				x.Apply(s, &rm)
				if r.IntN(10) == 0 {
					x.RemoveEndpoint(s.Endpoint)
				}
			}
		})
	}
	eps, dst := []block.EndpointID{3, 4, 5, 6}, make([]block.Run, 4)
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		x.Match(block.Query{Root: root, Bytes: text}, eps, dst)
		if dst[0].Blocks != 64 || dst[0].Tokens[block.TierGPU] != 1024 {
			t.Errorf("a reader saw %+v", dst[0])
			break
		}
		for _, r := range dst[1:] {
			if r.Blocks > 64 || int32(16)*r.Blocks != r.Total() || 64*r.Blocks != r.Bytes {
				t.Errorf("a reader saw %+v", r)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
}

// Many entries under one engine hash must cost memory in proportion, not a directory that doubles.
func TestOneHashForEverything(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(block.Scope{})
	_, d := storedChain(h, root, 1, 3000, 8)
	for i := range d.Blocks {
		d.Blocks[i].Hash = 42
	}
	x.Apply(block.Source{}, &d)
	if st := x.Stats(); st.Entries != 3000 || st.Bytes > 4<<20 {
		t.Errorf("got %+v", st)
	}
	x.Apply(block.Source{}, &block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: 1}}, Hashes: []block.EngineHash{42}})
	if st := x.Stats(); st.Entries != 0 || st.Nodes != 0 {
		t.Errorf("after the removal: %+v", st)
	}
}
