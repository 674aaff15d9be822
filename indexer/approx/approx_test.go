package approx

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

const second = int64(time.Second)

// chainOf returns n keys below a unique root.
func chainOf(a *Index, name string, n int) []block.Key {
	h := a.opts.Hasher
	return a.Keys(block.Query{Root: h.Root(block.Scope{Space: block.SpaceChunks, Model: name}), Bytes: make([]byte, n*a.opts.ChunkBytes)}, nil)
}

func matchOne(a *Index, keys []block.Key, ep block.EndpointID, notBefore int64) int {
	var run [1]block.Run
	a.Match(keys, []block.EndpointID{ep}, []int64{notBefore}, run[:])
	return int(run[0].Blocks)
}

func TestKeys(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	a := New(Options{Hasher: h, ChunkBytes: 4, MaxChunks: 3})
	root := h.Root(block.Scope{Space: block.SpaceChunks, Model: "m"})
	first := h.Child(root, []byte("aaaa"))
	second := h.Child(first, []byte("bbbb"))
	third := h.Child(second, []byte("cccc"))
	for _, c := range []struct {
		in   string
		want []block.Key
	}{
		{"", nil},
		{"aaa", nil},
		{"aaaa", []block.Key{first}},
		{"aaaabbbbc", []block.Key{first, second}},
		{"aaaabbbbccccdddd", []block.Key{first, second, third}},
	} {
		got := a.Keys(block.Query{Root: root, Bytes: []byte(c.in)}, []block.Key{42})
		if got[0] != 42 || !slices.Equal(got[1:], c.want) {
			t.Errorf("%q: %x, want %x", c.in, got[1:], c.want)
		}
	}
}

func TestRun(t *testing.T) {
	a := New(Options{MaxEndpoints: 8})
	keys := chainOf(a, "m", 10)
	a.Record(2, keys[:6], second)
	a.Record(5, keys, second)
	runs := slices.Repeat([]block.Run{{Blocks: 99}}, 4)
	a.Match(keys, []block.EndpointID{5, 1, 2, 1 << 20}, nil, runs)
	want := []block.Run{
		{Blocks: 10, Bytes: 2560, Tokens: [block.NumTiers]int32{640}},
		{},
		{Blocks: 6, Bytes: 1536, Tokens: [block.NumTiers]int32{384}},
		{},
	}
	if !slices.Equal(runs, want) {
		t.Errorf("%+v, want %+v", runs, want)
	}
	a.Record(6, []block.Key{keys[0], keys[1], 0, keys[2]}, second)
	if n := a.Len(6); n != 2 {
		t.Errorf("%d chunks of a prompt that ends after 2", n)
	}
	a.Record(7, []block.Key{keys[0], keys[1], keys[0]}, second)
	if n := a.Len(7); n != 2 {
		t.Errorf("%d chunks of 2 that come twice", n)
	}
	a.Record(1<<20, keys, second) // not tracked, and no panic
	a.SetCapacity(1<<20, 1)
	a.Truncate(1<<20, keys, 0)
	a.Forget(1 << 20)
	if n := a.Len(1 << 20); n != 0 {
		t.Errorf("%d chunks of an endpoint that is not tracked", n)
	}
}

// A speculative look-up counts only the entries of the last seconds.
func TestNotBefore(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	a := New(Options{})
	keys := chainOf(a, "m", 8)
	a.Record(1, keys, start)
	a.Record(1, keys[:3], start+10*second)
	a.Record(1, keys[:5], start+5*second) // late news from a peer
	for _, c := range []struct {
		notBefore int64
		want      int
	}{
		{math.MinInt64, 8}, {0, 8}, {start, 8}, {start + second, 5}, {start + 5*second, 5},
		{start + 6*second, 3}, {start + 10*second, 3}, {start + 11*second, 0}, {math.MaxInt64, 0},
	} {
		if got := matchOne(a, keys, 1, c.notBefore); got != c.want {
			t.Errorf("not before %+d s: %d chunks, want %d", (c.notBefore-start)/second, got, c.want)
		}
	}
}

// Clocks that begin at 0, or lie before the first time recorded, work too.
func TestClockOrigins(t *testing.T) {
	for _, start := range []int64{0, -5 * second, second, 1 << 57, math.MaxInt64 / 2} {
		a := New(Options{})
		keys := chainOf(a, "m", 4)
		a.Record(0, keys, start)
		a.Record(1, keys, start-100*second)
		if got := matchOne(a, keys, 0, start); got != 4 {
			t.Errorf("start %d: %d chunks", start, got)
		}
		if got := matchOne(a, keys, 1, start-second); got != 0 {
			t.Errorf("start %d: %d chunks of the past", start, got)
		}
		if got := matchOne(a, keys, 1, start-100*second); got != 4 {
			t.Errorf("start %d: %d chunks at their own time", start, got)
		}
	}
}

func TestLongPrompt(t *testing.T) {
	a := New(Options{ChunkBytes: 16, CapacityBytes: 16 * 10})
	keys := chainOf(a, "m", 30)
	a.Record(3, keys, second)
	if n, run := a.Len(3), matchOne(a, keys, 3, 0); n != 10 || run != 10 {
		t.Errorf("%d chunks held, run of %d; want the first 10", n, run)
	}
	a.SetCapacity(3, 16*4+15)
	if n, run := a.Len(3), matchOne(a, keys, 3, 0); n != 4 || run != 4 {
		t.Errorf("%d chunks held, run of %d; want the first 4", n, run)
	}
	a.SetCapacity(3, -1)
	a.Record(3, keys, second)
	if n := a.Len(3); n != 0 {
		t.Errorf("%d chunks held without capacity", n)
	}
	a.Forget(3)
	a.Record(3, keys, second)
	if n := a.Len(3); n != 10 {
		t.Errorf("%d chunks held after Forget, want the default capacity", n)
	}
}

// model is the law: per endpoint a list, least recent first.
type model struct {
	cap  map[block.EndpointID]int
	held map[block.EndpointID][]modelEntry
}

type modelEntry struct {
	key  block.Key
	unit int64
}

func (m *model) index(ep block.EndpointID, key block.Key) int {
	return slices.IndexFunc(m.held[ep], func(e modelEntry) bool { return e.key == key })
}

func (m *model) record(ep block.EndpointID, keys []block.Key, now int64) {
	keys = keys[:min(len(keys), m.cap[ep])]
	for _, key := range slices.Backward(keys) {
		e := modelEntry{key, now >> stampShift}
		if i := m.index(ep, key); i >= 0 {
			e.unit = max(e.unit, m.held[ep][i].unit)
			m.held[ep] = slices.Delete(m.held[ep], i, i+1)
		}
		m.held[ep] = append(m.held[ep], e)
	}
	m.fit(ep)
}

func (m *model) fit(ep block.EndpointID) {
	m.held[ep] = m.held[ep][max(0, len(m.held[ep])-m.cap[ep]):]
}

func (m *model) truncate(ep block.EndpointID, keys []block.Key) {
	m.held[ep] = slices.DeleteFunc(m.held[ep], func(e modelEntry) bool { return slices.Contains(keys, e.key) })
}

func (m *model) run(ep block.EndpointID, keys []block.Key, notBefore int64) int {
	for i, key := range keys {
		at := m.index(ep, key)
		if at < 0 || m.held[ep][at].unit < notBefore>>stampShift {
			return i
		}
	}
	return len(keys)
}

// Index equals its model, for any sequence of calls and any capacities.
func TestModel(t *testing.T) {
	const endpoints, chunk, capacity = 6, 4, 20
	rapid.Check(t, func(t *rapid.T) {
		a := New(Options{ChunkBytes: chunk, MaxEndpoints: endpoints, CapacityBytes: capacity * chunk})
		m := &model{cap: map[block.EndpointID]int{}, held: map[block.EndpointID][]modelEntry{}}
		candidates := make([]block.EndpointID, endpoints)
		for i := range candidates {
			candidates[i] = block.EndpointID(i)
			m.cap[block.EndpointID(i)] = capacity
		}
		prompt := rapid.SliceOfN(rapid.SampledFrom([]string{"aaaa", "bbbb"}), 0, 12)
		draw := func() []block.Key {
			b := bytes.Join(toBytes(prompt.Draw(t, "prompt")), nil)
			return a.Keys(block.Query{Root: 1, Bytes: b}, nil)
		}
		endpoint := rapid.Custom(func(t *rapid.T) block.EndpointID {
			return block.EndpointID(rapid.IntRange(0, endpoints-1).Draw(t, "ep"))
		})
		at := rapid.Int64Range(0, 20*second)
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				ep, keys, now := endpoint.Draw(t, "ep"), draw(), at.Draw(t, "now")
				a.Record(ep, keys, now)
				m.record(ep, keys, now)
			},
			"truncate": func(t *rapid.T) {
				ep, keys, from := endpoint.Draw(t, "ep"), draw(), rapid.IntRange(-1, 40).Draw(t, "from")
				a.Truncate(ep, keys, from)
				m.truncate(ep, keys[min(len(keys), max(from, 0)/chunk):])
			},
			"capacity": func(t *rapid.T) {
				ep, n := endpoint.Draw(t, "ep"), rapid.IntRange(0, 30).Draw(t, "chunks")
				a.SetCapacity(ep, n*chunk)
				m.cap[ep] = n
				m.fit(ep)
			},
			"forget": func(t *rapid.T) {
				ep := endpoint.Draw(t, "ep")
				a.Forget(ep)
				m.held[ep], m.cap[ep] = nil, capacity
			},
			"": func(t *rapid.T) {
				keys := draw()
				runs, notBefore := make([]block.Run, endpoints), make([]int64, endpoints)
				for i := range notBefore {
					notBefore[i] = at.Draw(t, "notBefore")
				}
				a.Match(keys, candidates, notBefore, runs)
				for i, ep := range candidates {
					if want := m.run(ep, keys, notBefore[i]); int(runs[i].Blocks) != want {
						t.Fatalf("endpoint %d: run of %d, want %d", ep, runs[i].Blocks, want)
					}
					if got, want := a.Len(ep), len(m.held[ep]); got != want {
						t.Fatalf("endpoint %d: %d chunks, want %d", ep, got, want)
					}
				}
			},
		})
	})
}

func toBytes(parts []string) [][]byte {
	out := make([][]byte, len(parts))
	for i, p := range parts {
		out[i] = []byte(p)
	}
	return out
}

// Many endpoints are added and removed on few chunks, so that holder lists pass through every
// class. At the end nothing is left.
func TestManyHolders(t *testing.T) {
	const endpoints = 700
	a := New(Options{MaxEndpoints: endpoints})
	keys := chainOf(a, "m", 5)
	rng := rand.New(rand.NewPCG(6, 6))
	held := make([]int, endpoints)
	check := func() {
		runs := make([]block.Run, 1)
		for ep, want := range held {
			a.Match(keys, []block.EndpointID{block.EndpointID(ep)}, nil, runs)
			if int(runs[0].Blocks) != want {
				t.Fatalf("endpoint %d: run of %d, want %d", ep, runs[0].Blocks, want)
			}
		}
	}
	for _, ep := range rng.Perm(endpoints) {
		held[ep] = 1 + rng.IntN(5)
		a.Record(block.EndpointID(ep), keys[:held[ep]], second)
	}
	check()
	full := a.MemoryBytes()
	for i, ep := range rng.Perm(endpoints) {
		a.Forget(block.EndpointID(ep))
		held[ep] = 0
		if i%100 == 0 {
			check()
		}
	}
	check()
	for i := range a.shards {
		if n := a.shards[i].used; n != 0 {
			t.Errorf("shard %d: %d chunks without a holder", i, n)
		}
	}
	for ep := range held {
		a.Record(block.EndpointID(ep), keys, second)
		held[ep] = 5
	}
	check()
	if got := a.MemoryBytes(); got > 2*full {
		t.Errorf("%d bytes at first, %d after all came back", full, got)
	}
}

// At a capacity that is always too small, the index is as full as permitted, and prompts are always
// complete from their start.
func TestCapacityKeepsPrefixes(t *testing.T) {
	const capacity = 300
	a := New(Options{ChunkBytes: 16, CapacityBytes: capacity * 16})
	rng := rand.New(rand.NewPCG(8, 8))
	parent := map[block.Key]block.Key{}
	buf := make([]byte, 40*16)
	for i := range 3000 {
		for c := range 40 {
			buf[c*16] = byte(rng.IntN(1 + c/4)) // prompts that fork repeatedly
		}
		keys := a.Keys(block.Query{Root: 1, Bytes: buf[:16*(1+rng.IntN(40))]}, nil)
		for j := 1; j < len(keys); j++ {
			parent[keys[j]] = keys[j-1]
		}
		a.Record(0, keys, int64(i)*second)
		if run := matchOne(a, keys, 0, 0); run != len(keys) {
			t.Fatalf("prompt %d: run of %d right after recording %d", i, run, len(keys))
		}
		if n := a.Len(0); n > capacity || i > 2000 && n != capacity {
			t.Fatalf("prompt %d: %d chunks held, capacity %d", i, n, capacity)
		}
		if i%400 != 399 {
			continue
		}
		for key, above := range parent {
			if matchOne(a, []block.Key{key}, 0, 0) == 1 && matchOne(a, []block.Key{above}, 0, 0) == 0 {
				t.Fatalf("prompt %d: a chunk is held without the one before it", i)
			}
		}
	}
}

func TestConcurrent(t *testing.T) {
	const endpoints = 16
	a := New(Options{ChunkBytes: 16, MaxEndpoints: endpoints, CapacityBytes: 16 * 200})
	prompts := make([][]block.Key, 8)
	for i := range prompts {
		prompts[i] = chainOf(a, string(rune('a'+i)), 20+10*i)
	}
	candidates := make([]block.EndpointID, endpoints)
	for i := range candidates {
		candidates[i] = block.EndpointID(i)
	}
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			runs := make([]block.Run, endpoints)
			for i := range 400 {
				keys, ep := prompts[rng.IntN(len(prompts))], block.EndpointID(rng.IntN(endpoints))
				a.Match(keys, candidates, nil, runs)
				for _, r := range runs {
					if r.Blocks < 0 || int(r.Blocks) > len(keys) {
						t.Errorf("run of %d of %d", r.Blocks, len(keys))
					}
				}
				switch rng.IntN(20) {
				case 0:
					a.Truncate(ep, keys, rng.IntN(16*len(keys)))
				case 1:
					a.Forget(ep)
				case 2:
					a.SetCapacity(ep, 16*rng.IntN(300))
				case 3:
					a.MemoryBytes()
				default:
					a.Record(ep, keys, int64(i)*second)
				}
			}
		})
	}
	wg.Wait()
	for _, ep := range candidates {
		a.Forget(ep)
		if n := a.Len(ep); n != 0 {
			t.Errorf("endpoint %d: %d chunks after Forget", ep, n)
		}
	}
	for i := range a.shards {
		if n := a.shards[i].used; n != 0 {
			t.Errorf("shard %d: %d chunks without a holder", i, n)
		}
	}
}

// The figure that the documentation of MemoryBytes gives.
func TestMemory(t *testing.T) {
	a := New(Options{CapacityBytes: 1 << 30})
	const n = 200_000
	for i := range n / 100 {
		a.Record(block.EndpointID(i%4), chainOf(a, string(rune(0x4e00+i)), 100), second)
	}
	per := float64(a.MemoryBytes()) / n
	t.Logf("%.1f bytes for each entry", per)
	if per < 50 || per > 80 {
		t.Errorf("%.1f bytes for each entry, want 50 to 80", per)
	}
}
