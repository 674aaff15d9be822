package indexer

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// naiveIndex is a naive index: maps of strings.
type naiveIndex struct {
	held map[block.Source]map[heldEntry]int
}

type heldEntry struct {
	path string // the bytes from the root, with block boundaries
	hash block.EngineHash
	tier block.Tier
	grp  uint8
}

func (m *naiveIndex) set(s block.Source) map[heldEntry]int {
	if m.held[s] == nil {
		m.held[s] = map[heldEntry]int{}
	}
	return m.held[s]
}

// run returns the longest run of an endpoint over the blocks, as (blocks, tokens by tier), and the
// mean deficit of its ranks.
func (m *naiveIndex) run(ep block.EndpointID, ranks int32, root block.Key, blocks [][]byte) block.Run {
	var best block.Run
	var sum, counted, least int32
	for s, held := range m.held {
		if s.Endpoint != ep {
			continue
		}
		var r block.Run
		path := fmt.Sprint(root)
		for _, b := range blocks {
			path += "|" + string(b)
			tier := block.NumTiers
			for e := range held {
				if e.path == path && e.tier < tier {
					tier = e.tier
				}
			}
			if tier == block.NumTiers {
				break
			}
			r.Blocks++
			r.Bytes += int32(len(b))
			r.Tokens[tier] += int32(len(b))
		}
		sum += r.Total()
		if r.Blocks > 0 {
			if counted == 0 || r.Total() < least {
				least = r.Total()
			}
			counted++
		}
		if r.Bytes > best.Bytes || (r.Bytes == best.Bytes && slices.Compare(r.Tokens[:], best.Tokens[:]) > 0) {
			best = r
		}
	}
	if ranks > 1 {
		best.Missing, best.Worst = best.Total()-sum/ranks, best.Total()
		if counted == ranks {
			best.Worst -= least
		}
	}
	return best
}

// A world of few blocks, so that chains meet, branch and repeat.
type world struct {
	x    *Index
	m    *naiveIndex
	h    block.Hasher
	root block.Key
}

func (w *world) block(t *rapid.T, label string) []byte {
	n := rapid.IntRange(1, 3).Draw(t, label+" length")
	return bytes.Repeat([]byte{byte('a' + rapid.IntRange(0, 11).Draw(t, label+" byte"))}, n)
}

func (w *world) source(t *rapid.T) block.Source {
	return block.Source{Endpoint: block.EndpointID(rapid.IntRange(0, 3).Draw(t, "endpoint")), Rank: uint16(rapid.IntRange(0, 1).Draw(t, "rank"))}
}

// next returns the path below path of a block at a source. Some sources consider some blocks
// non-canonical, and no query passes those blocks.
func (w *world) next(s block.Source, path string, b []byte) (string, block.Flags) {
	path += "|" + string(b)
	if (int(b[0])+int(s.Endpoint))%5 == 0 {
		return path + "!", block.FlagNonCanonical
	}
	return path, 0
}

// hashOf gives a block the engine hash that a source would: of its path, in a small space so that hashes are shared.
func hashOf(path string) block.EngineHash {
	h := uint64(14695981039346656037)
	for i := range len(path) {
		h = (h ^ uint64(path[i])) * 1099511628211
	}
	return block.EngineHash(h)
}

func (w *world) store(t *rapid.T) {
	s := w.source(t)
	tier, grp := block.Tier(rapid.IntRange(0, 2).Draw(t, "tier")), uint8(rapid.IntRange(0, 1).Draw(t, "group"))
	held := w.m.set(s)
	op := block.Op{Kind: block.OpStore, Root: true, From: w.root, Tier: tier, Group: grp}
	path, key := fmt.Sprint(w.root), w.root
	depth := rapid.IntRange(0, 4).Draw(t, "depth")
	for range depth { // follow stored blocks, if any
		b := w.block(t, "walk")
		next, _ := w.next(s, path, b)
		found := false
		for e := range held {
			found = found || e.path == next
		}
		if !found {
			break
		}
		path, key = next, w.h.Child(key, b)
		op.Root, op.Parent, op.From = false, hashOf(path), key
	}
	d := block.Delta{}
	for range rapid.IntRange(1, 4).Draw(t, "blocks") {
		b := w.block(t, "store")
		var flags block.Flags
		path, flags = w.next(s, path, b)
		key = w.h.Child(key, b)
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: hashOf(path), Key: key, Bytes: uint32(len(b)), Tokens: uint32(len(b)), Flags: flags})
		held[heldEntry{path, hashOf(path), tier, grp}]++
	}
	op.N = uint32(len(d.Blocks))
	d.Ops = append(d.Ops, op)
	if st := w.x.Apply(s, &d); st.Stored != len(d.Blocks) {
		t.Fatalf("stored %d of %d: %+v", st.Stored, len(d.Blocks), st)
	}
}

func (w *world) remove(t *rapid.T) {
	s := w.source(t)
	held := w.m.set(s)
	var keys []heldEntry
	for e := range held {
		keys = append(keys, e)
	}
	if len(keys) == 0 {
		return
	}
	e := keys[rapid.IntRange(0, len(keys)-1).Draw(t, "entry")]
	if held[e]--; held[e] == 0 {
		delete(held, e)
	}
	w.x.Apply(s, &block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: 1, Tier: e.tier, Group: e.grp}}, Hashes: []block.EngineHash{e.hash}})
}

func (w *world) wipe(t *rapid.T) {
	s := w.source(t)
	switch rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		w.x.Apply(s, &block.Delta{Ops: []block.Op{{Kind: block.OpClear}}})
		delete(w.m.held, s)
	case 1:
		w.x.Reset(s)
		delete(w.m.held, s)
	case 2:
		w.x.RemoveEndpoint(s.Endpoint)
		delete(w.m.held, block.Source{Endpoint: s.Endpoint, Rank: 0})
		delete(w.m.held, block.Source{Endpoint: s.Endpoint, Rank: 1})
	}
}

func (w *world) check(t *rapid.T) {
	var blocks [][]byte
	var text []byte
	for range rapid.IntRange(1, 6).Draw(t, "query blocks") {
		b := w.block(t, "query")
		blocks = append(blocks, b)
		text = append(text, b...)
	}
	// The text does not determine block boundaries. If two tokenizations are stored, the walk
	// follows one. Make the boundaries unique by ending blocks where the byte changes.
	for i := 1; i < len(blocks); i++ {
		if blocks[i][0] == blocks[i-1][0] {
			return
		}
	}
	if w.ambiguous(blocks) {
		return
	}
	eps := []block.EndpointID{2, 0, 3, 1}
	dst := make([]block.Run, len(eps))
	w.x.Match(block.Query{Root: w.root, Bytes: text}, eps, dst)
	for i, ep := range eps {
		dst[i].Cut = false // depends on the blocks of other sources
		if want := w.m.run(ep, w.ranks(t, ep), w.root, blocks); dst[i] != want {
			t.Fatalf("endpoint %d, %q: got %+v, want %+v", ep, blocks, dst[i], want)
		}
	}
}

// ranks returns the number of an endpoint's ranks in the index, including all with content.
func (w *world) ranks(t *rapid.T, ep block.EndpointID) (n int32) {
	n = int32(w.x.shown.Load().at(ep).ranks)
	for s, held := range w.m.held {
		if s.Endpoint == ep && len(held) > 0 && n == 0 {
			t.Fatalf("%v holds something and is no rank", s)
		}
	}
	return n
}

// ambiguous reports whether some source stores the text of blocks cut differently.
func (w *world) ambiguous(blocks [][]byte) bool {
	path := fmt.Sprint(w.root)
	for _, b := range blocks {
		for _, held := range w.m.held {
			for e := range held {
				for n := 1; n < len(b); n++ {
					if p := path + "|" + string(b[:n]); len(e.path) >= len(p) && e.path[:len(p)] == p && (len(e.path) == len(p) || e.path[len(p)] == '|') {
						return true
					}
				}
			}
		}
		path += "|" + string(b)
	}
	return false
}

func (w *world) snapshot(t *rapid.T) {
	s := w.source(t)
	y := New(Options{Hasher: w.h})
	v := w.x.View(s, 1<<16)
	defer v.Close()
	var d block.Delta
	for more := true; more; {
		var err error
		if more, err = v.Next(&d, rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "most")); err != nil {
			t.Fatal(err)
		}
		if st := y.Apply(s, &d); st.UnknownParent+st.Refused > 0 {
			t.Fatalf("snapshot does not apply: %+v", st)
		}
	}
	an, ax := w.x.Digest(s)
	bn, bx := y.Digest(s)
	if an != bn || ax != bx || int(an) != len(w.m.set(s)) {
		t.Fatalf("snapshot digest (%d, %x), want (%d, %x); model has %d", bn, bx, an, ax, len(w.m.set(s)))
	}
}

// The index is the naive model, under any sequence of operations.
func TestIndexLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := block.NewHasher(block.Seed{7})
		w := &world{x: New(Options{Hasher: h}), m: &naiveIndex{held: map[block.Source]map[heldEntry]int{}}, h: h}
		w.root = h.Root(block.Scope{Model: "m"})
		t.Repeat(map[string]func(*rapid.T){
			"store": w.store, "store again": w.store, "remove": w.remove, "remove again": w.remove,
			"wipe": w.wipe, "match": w.check, "match again": w.check, "snapshot": w.snapshot,
		})
		for s := range w.m.held {
			w.x.Reset(s)
		}
		for range 3 {
			w.x.Reset(block.Source{})
		}
		if st := w.x.Stats(); st.Nodes != 0 || st.Entries != 0 || st.Sets != 0 || st.Branches != 0 {
			t.Fatalf("something is left: %+v", st)
		}
	})
}
