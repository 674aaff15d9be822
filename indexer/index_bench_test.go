package indexer

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// The benchmarks share one index: ten million (block, source) entries on a hundred endpoints, in
// chains of 128 blocks. A tenth of the entries has been removed and stored again in random order.
// GRAPEVINE_BENCH_ENTRIES changes the size.
const (
	benchEndpoints = 100
	benchChain     = 128
	benchBlock     = 64
)

type benchIndex struct {
	x    *Index
	h    block.Hasher
	root block.Key
	rss  float64 // bytes per entry, by the runtime's own account
}

var benchOnce = sync.OnceValue(func() *benchIndex {
	entries := 10_000_000
	if s := os.Getenv("GRAPEVINE_BENCH_ENTRIES"); s != "" {
		entries, _ = strconv.Atoi(s)
	}
	before := heap()
	h := block.NewHasher(block.Seed{1})
	b := &benchIndex{x: New(Options{Hasher: h}), h: h, root: h.Root(block.Scope{Model: "m"})}
	per := entries / benchEndpoints / benchChain
	for i := range per {
		for ep := range benchEndpoints {
			_, d := storedChain(h, b.root, uint64(ep*1_000_000+i+1), benchChain, benchBlock)
			b.x.Apply(block.Source{Endpoint: block.EndpointID(ep)}, &d)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range per * benchEndpoints / 10 {
		ep := r.IntN(benchEndpoints)
		_, d := storedChain(h, b.root, uint64(ep*1_000_000+r.IntN(per)+1), benchChain, benchBlock)
		b.x.Apply(block.Source{Endpoint: block.EndpointID(ep)}, removal(&d))
		b.x.Apply(block.Source{Endpoint: block.EndpointID(ep)}, &d)
	}
	b.rss = float64(heap()-before) / float64(b.x.Stats().Entries)
	return b
})

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// removal removes the blocks of a chain as an engine does, last first, one at a time.
func removal(d *block.Delta) *block.Delta {
	rm := &block.Delta{}
	for i := len(d.Blocks) - 1; i >= 0; i-- {
		rm.Ops = append(rm.Ops, block.Op{Kind: block.OpRemove, First: uint32(len(rm.Hashes)), N: 1})
		rm.Hashes = append(rm.Hashes, d.Blocks[i].Hash)
	}
	return rm
}

// cpuTime returns the CPU time that this process has used: other processes of
// the machine do not add to it, as they do to wall time.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStoreAndRemove reports CPU nanoseconds per stored and per removed block: the mean, and
// the lowest of all rounds.
func BenchmarkStoreAndRemove(b *testing.B) {
	bi := benchOnce()
	const n = 200
	var add, rm []*block.Delta
	for i := range n {
		_, d := storedChain(bi.h, bi.root, uint64(900_000_000+i), benchChain, benchBlock)
		add, rm = append(add, &d), append(rm, removal(&d))
	}
	var sum, least [2]time.Duration
	rounds := 0
	for b.Loop() {
		for phase, deltas := range [][]*block.Delta{add, rm} {
			start := cpuTime(b)
			for i, d := range deltas {
				bi.x.Apply(block.Source{Endpoint: block.EndpointID(i % benchEndpoints)}, d)
			}
			took := cpuTime(b) - start
			if sum[phase] += took; rounds == 0 || took < least[phase] {
				least[phase] = took
			}
		}
		rounds++
	}
	const blocks = float64(n * benchChain)
	for phase, name := range []string{"store", "remove"} {
		b.ReportMetric(float64(sum[phase].Nanoseconds())/blocks/float64(rounds), "cpu-ns/"+name)
		b.ReportMetric(float64(least[phase].Nanoseconds())/blocks, "cpu-ns/"+name+"-least")
	}
	b.ReportMetric(bi.rss, "bytes/entry")
}

func benchIndexMatch(b *testing.B, blocks, holders int) {
	bi := benchOnce()
	text, d := storedChain(bi.h, bi.root, uint64(800_000_000+blocks), blocks, benchBlock)
	var eps []block.EndpointID
	for ep := range block.EndpointID(benchEndpoints) {
		eps = append(eps, ep)
		if int(ep) < holders {
			// Like an engine: in pieces, while others store too.
			for i := 0; i < blocks; i += 32 {
				part := block.Delta{Ops: []block.Op{{Kind: block.OpStore, From: bi.root, Root: true, N: uint32(min(32, blocks-i))}}, Blocks: d.Blocks[i:min(blocks, i+32)]}
				if i > 0 {
					part.Ops[0] = block.Op{Kind: block.OpStore, From: d.Blocks[i-1].Key, Parent: d.Blocks[i-1].Hash, N: part.Ops[0].N}
				}
				bi.x.Apply(block.Source{Endpoint: ep}, &part)
				_, other := storedChain(bi.h, bi.root, uint64(700_000_000+blocks*1000+i)+uint64(ep)*100_000, 7, benchBlock)
				bi.x.Apply(block.Source{Endpoint: ep}, &other)
			}
		}
	}
	dst := make([]block.Run, len(eps))
	q := block.Query{Root: bi.root, Bytes: text}
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		bi.x.Match(q, eps, dst)
	}
	b.ReportMetric(float64((cpuTime(b)-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
	if int(dst[0].Blocks) != blocks || dst[benchEndpoints-1].Blocks != 0 {
		b.Fatalf("got %+v", dst[0])
	}
}

func BenchmarkMatch640Blocks40Holders(b *testing.B) { benchIndexMatch(b, 640, 40) }
func BenchmarkMatch6250Blocks8Holders(b *testing.B) { benchIndexMatch(b, 6250, 8) }

// BenchmarkMatchRandomChain128Blocks matches another resident chain each time, so that no block is
// in the CPU's caches.
func BenchmarkMatchRandomChain128Blocks(b *testing.B) {
	bi := benchOnce()
	r := rand.New(rand.NewPCG(5, 5))
	per := bi.x.Stats().Entries / benchEndpoints / benchChain
	var texts [][]byte
	for range 2000 {
		text, _ := storedChain(bi.h, bi.root, uint64(r.IntN(benchEndpoints)*1_000_000+r.IntN(per*9/10)+1), benchChain, benchBlock)
		texts = append(texts, text)
	}
	eps, dst := make([]block.EndpointID, benchEndpoints), make([]block.Run, benchEndpoints)
	for i := range eps {
		eps[i] = block.EndpointID(i)
	}
	i := 0
	for b.Loop() {
		bi.x.Match(block.Query{Root: bi.root, Bytes: texts[i%len(texts)]}, eps, dst)
		i++
	}
}

func BenchmarkMatchMiss(b *testing.B) {
	bi := benchOnce()
	text, _ := storedChain(bi.h, bi.root, 600_000_000, 640, benchBlock)
	eps, dst := make([]block.EndpointID, benchEndpoints), make([]block.Run, benchEndpoints)
	for i := range eps {
		eps[i] = block.EndpointID(i)
	}
	n := uint64(0)
	for b.Loop() {
		n++
		text[0], text[1], text[2] = byte(n), byte(n>>8), byte(n>>16)
		bi.x.Match(block.Query{Root: bi.root, Bytes: text}, eps, dst)
	}
}

// BenchmarkMatchDuringChurn reports the tail of Match while another goroutine
// changes 300,000 blocks per second.
func BenchmarkMatchDuringChurn(b *testing.B) {
	bi := benchOnce()
	text, d := storedChain(bi.h, bi.root, 500_000_000, 640, benchBlock)
	var eps []block.EndpointID
	for ep := range block.EndpointID(40) {
		bi.x.Apply(block.Source{Endpoint: ep}, &d)
		eps = append(eps, ep)
	}
	dst := make([]block.Run, len(eps))
	q := block.Query{Root: bi.root, Bytes: text}
	idle := tail(func() { bi.x.Match(q, eps, dst) })
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		churn(bi, stop)
	}()
	var busy time.Duration
	for b.Loop() {
		busy = tail(func() { bi.x.Match(q, eps, dst) })
	}
	close(stop)
	<-done
	b.ReportMetric(float64(idle.Nanoseconds()), "ns/p99.9-idle")
	b.ReportMetric(float64(busy.Nanoseconds()), "ns/p99.9-churn")
}

func tail(f func()) time.Duration {
	const n = 5000
	t := make([]time.Duration, n)
	for i := range t {
		t0 := time.Now()
		f()
		t[i] = time.Since(t0)
	}
	slices.Sort(t)
	return t[n*999/1000]
}

// churn stores and removes 300,000 blocks per second in batches of 128.
func churn(bi *benchIndex, stop chan struct{}) {
	var add, rm []*block.Delta
	for i := range 64 {
		_, d := storedChain(bi.h, bi.root, uint64(400_000_000+i), benchChain, benchBlock)
		add, rm = append(add, &d), append(rm, removal(&d))
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for range 12 { // 12 × 2 × 128 changes in 10 ms
			s := block.Source{Endpoint: block.EndpointID(50 + n%40)}
			bi.x.Apply(s, add[n%64])
			bi.x.Apply(s, rm[n%64])
			n++
		}
	}
}

// BenchmarkMatchSizes matches a prompt of 6,400 tokens that 40 endpoints hold, in blocks of one,
// two or four sizes. The index also has 10,000 tokens of other texts.
func BenchmarkMatchSizes(b *testing.B) {
	for _, sizes := range [][]int{{16}, {16, 64}, {16, 32, 64, 128}} {
		b.Run(strconv.Itoa(len(sizes)), func(b *testing.B) {
			h := block.NewHasher(block.Seed{1})
			x, root := New(Options{Hasher: h}), h.Root(block.Scope{Model: "m"})
			var eps []block.EndpointID
			var q block.Query
			for ep := range block.EndpointID(40) {
				size := sizes[int(ep)%len(sizes)]
				for text := range uint64(3) {
					_, d := storedChain(h, root, text+1, 6400/16, 64)
					prompt, _ := storedChain(h, root, text+1, 6400/16, 64)
					if text == 0 {
						q = block.Query{Root: root, Bytes: prompt}
					}
					d.Blocks = d.Blocks[:0]
					for key, i := root, 0; i < len(prompt); i += size * 4 {
						key = h.Child(key, prompt[i:i+size*4])
						d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(text<<20 + uint64(i)), Key: key, Bytes: uint32(size * 4), Tokens: uint32(size)})
					}
					d.Ops[0].N = uint32(len(d.Blocks))
					x.Apply(block.Source{Endpoint: ep}, &d)
				}
				eps = append(eps, ep)
			}
			dst := make([]block.Run, len(eps))
			b.ReportAllocs()
			start := cpuTime(b)
			for b.Loop() {
				x.Match(q, eps, dst)
			}
			b.ReportMetric(float64((cpuTime(b)-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
			for i := range dst {
				if dst[i].Total() != 6400 {
					b.Fatalf("endpoint %d: %d tokens predicted, holds 6400", i, dst[i].Total())
				}
			}
		})
	}
}
