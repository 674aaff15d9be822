package indexer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// BenchmarkMatchManyLengths matches at a root with ten thousand first blocks of many lengths, as
// sixteen tokens of different prompts have. It measures a match and a miss.
func BenchmarkMatchManyLengths(b *testing.B) {
	for _, distinct := range []int{16, 64, maxForms} {
		h := block.NewHasher(block.Seed{1})
		x, root := New(Options{Hasher: h}), h.Root(block.Scope{})
		r := rand.New(rand.NewPCG(1, 2))
		var texts [][]byte
		for i := range 10_000 {
			text := make([]byte, 300)
			for j := range text {
				text[j] = byte(r.Uint32())
			}
			// Lengths as a triangle around their middle, as sums of token lengths are.
			length := 20 + (r.IntN(distinct)+r.IntN(distinct))/2
			x.Apply(block.Source{}, &block.Delta{
				Ops:    []block.Op{{Kind: block.OpStore, Root: true, From: root, N: 1}},
				Blocks: []block.StoredBlock{{Hash: block.EngineHash(i), Key: h.Child(root, text[:length]), Bytes: uint32(length), Tokens: 16}},
			})
			texts = append(texts, text)
		}
		r.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
		for name, miss := range map[string]byte{"hit": 0, "miss": 1} {
			b.Run(fmt.Sprintf("%d lengths/%s", distinct, name), func(b *testing.B) {
				dst, i := make([]block.Run, 1), 0
				start := cpuTime(b)
				for b.Loop() {
					text := texts[i%len(texts)]
					text[0] += miss
					x.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{0}, dst)
					text[0] -= miss
					if (dst[0].Blocks == 1) == (miss == 1) {
						b.Fatal("not what was asked for")
					}
					i++
				}
				b.ReportMetric(float64((cpuTime(b)-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
