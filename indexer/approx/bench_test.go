package approx

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// benchIndex is filled like in a busy pool: every endpoint has different prompts.
func benchIndex(endpoints int) *Index {
	a := New(Options{Hasher: block.NewHasher(block.Seed{1}), CapacityBytes: 2 << 20})
	buf := make([]byte, 64<<10)
	rng := rand.New(rand.NewPCG(2, 2))
	var keys []block.Key
	for ep := range endpoints {
		for range 32 {
			buf[0], buf[1], buf[2] = byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())
			keys = a.Keys(block.Query{Root: 1, Bytes: buf}, keys[:0])
			a.Record(block.EndpointID(ep), keys, second)
		}
	}
	return a
}

// BenchmarkMatch: all endpoints have the whole prompt (the worst case), each has a part, or all
// have a tenth and one has more.
func BenchmarkMatch(b *testing.B) {
	for _, size := range []int{40 << 10, 400 << 10} {
		for _, endpoints := range []int{8, 100} {
			for _, held := range []string{"whole", "parts", "tenth"} {
				b.Run(fmt.Sprintf("%dKB/%d/%s", size>>10, endpoints, held), func(b *testing.B) {
					benchMatch(b, size, endpoints, held)
				})
			}
		}
	}
}

func benchMatch(b *testing.B, size, endpoints int, held string) {
	a := benchIndex(endpoints)
	keys := a.Keys(block.Query{Root: 2, Bytes: make([]byte, size)}, nil)
	candidates, notBefore, runs := make([]block.EndpointID, endpoints), make([]int64, endpoints), make([]block.Run, endpoints)
	for i := range candidates {
		candidates[i], notBefore[i] = block.EndpointID(i), second
		n := len(keys)
		switch {
		case held == "parts":
			n = n * (i + 1) / endpoints
		case held == "tenth" && i > 0:
			n /= 10
		}
		a.Record(block.EndpointID(i), keys[:n], second)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.Match(keys, candidates, notBefore, runs)
	}
	if runs[0].Blocks == 0 {
		b.Fatal("no match")
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{40 << 10, 400 << 10} {
		b.Run(fmt.Sprintf("%dKB/refresh", size>>10), func(b *testing.B) {
			a := benchIndex(100)
			keys := a.Keys(block.Query{Root: 2, Bytes: make([]byte, size)}, nil)
			b.ReportAllocs()
			for now := second; b.Loop(); now++ {
				a.Record(7, keys, now)
			}
		})
		b.Run(fmt.Sprintf("%dKB/quarter", size>>10), func(b *testing.B) { // a known prefix with a new end
			a := benchIndex(100)
			text := make([]byte, size)
			prompts := make([][]block.Key, 256)
			for i := range prompts {
				text[size*3/4] = byte(i)
				prompts[i] = a.Keys(block.Query{Root: 2, Bytes: text}, nil)
			}
			a.SetCapacity(7, 40*size)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.Record(7, prompts[i%len(prompts)], second)
			}
		})
		b.Run(fmt.Sprintf("%dKB/evict", size>>10), func(b *testing.B) {
			a := benchIndex(100)
			prompts := make([][]block.Key, 64)
			for i := range prompts {
				prompts[i] = a.Keys(block.Query{Root: block.Key(2 + i), Bytes: make([]byte, size)}, nil)
			}
			a.SetCapacity(7, 4*size)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.Record(7, prompts[i%len(prompts)], second)
			}
		})
	}
}

func BenchmarkKeys(b *testing.B) {
	a := New(Options{Hasher: block.NewHasher(block.Seed{1})})
	buf := make([]byte, 40<<10)
	var keys []block.Key
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		keys = a.Keys(block.Query{Root: 2, Bytes: buf}, keys[:0])
	}
}

// Several requests at once, with records in between.
func BenchmarkParallel(b *testing.B) {
	const endpoints = 100
	a := benchIndex(endpoints)
	keys := a.Keys(block.Query{Root: 2, Bytes: make([]byte, 40<<10)}, nil)
	candidates := make([]block.EndpointID, endpoints)
	for i := range candidates {
		candidates[i] = block.EndpointID(i)
		a.Record(block.EndpointID(i), keys[:len(keys)*(i+1)/endpoints], second)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		runs := make([]block.Run, endpoints)
		for i := 0; pb.Next(); i++ {
			a.Match(keys, candidates, nil, runs)
			a.Record(block.EndpointID(i%endpoints), keys[:len(keys)*(i%endpoints+1)/endpoints], second)
		}
	})
}
