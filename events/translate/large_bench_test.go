package translate

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// largeIndex holds ten million entries of a hundred endpoints in chains of 128 blocks. A tenth was
// removed and stored again in random order.
const (
	largeEndpoints = 100
	largeChains    = 781 // of each endpoint
	largeChain     = 128
)

var largeIndex = sync.OnceValue(func() *indexer.Index {
	x := indexer.New(indexer.Options{Hasher: testHasher()})
	for i := range largeChains {
		for ep := range largeEndpoints {
			x.Apply(block.Source{Endpoint: block.EndpointID(ep)}, largeDelta(ep, i))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range largeEndpoints * largeChains / 10 {
		ep := r.IntN(largeEndpoints)
		d := largeDelta(ep, r.IntN(largeChains))
		rm := block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: largeChain}}}
		for i := range d.Blocks {
			rm.Hashes = append(rm.Hashes, d.Blocks[largeChain-1-i].Hash)
		}
		x.Apply(block.Source{Endpoint: block.EndpointID(ep)}, &rm)
		x.Apply(block.Source{Endpoint: block.EndpointID(ep)}, d)
	}
	return x
})

// largeHash is the engine's name of a block of the large index.
func largeHash(ep, chain, n int) block.EngineHash {
	id := uint64(ep*largeChains+chain)*largeChain + uint64(n)
	return block.EngineHash((id+1)*0x9e3779b97f4a7c15 ^ id<<40)
}

func largeDelta(ep, chain int) *block.Delta {
	root := testHasher().Root(block.Scope{Model: "m"})
	d := &block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: largeChain}}}
	for i := range largeChain {
		h := largeHash(ep, chain, i)
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: h, Key: block.Key(h*0xd1b54a32d192ed03) | 1<<63, Bytes: 64, Tokens: 16})
	}
	return d
}

// generatedBatches returns the batches of an engine that decodes 64 requests at a time. In every
// batch, each request stores one block below its last one. The requests continue random chains of
// the large index. The second list removes the same blocks again, one per event.
func generatedBatches(ep, rounds int) (stored, removed [][]byte) {
	const requests, perRequest = 64, 4
	r := rand.New(rand.NewPCG(uint64(ep), 3))
	var hash, id uint64
	for round := range rounds {
		parents := make([]block.EngineHash, requests)
		for i := range parents {
			parents[i] = largeHash(ep, r.IntN(largeChains), largeChain-1)
		}
		for range perRequest {
			p := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), 1757500000.25), requests)
			q := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), 1757500000.25), requests)
			for i := range parents {
				hash++
				h := hash*0x9e3779b97f4a7c15 ^ uint64(ep)<<32 ^ uint64(round)
				p = msgp.AppendMapHeader(p, 11)
				p = msgp.AppendString(msgp.AppendString(p, "type"), "BlockStored")
				p = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(p, "block_hashes"), 1), h)
				p = msgp.AppendUint64(msgp.AppendString(p, "parent_block_hash"), uint64(parents[i]))
				p = msgp.AppendArrayHeader(msgp.AppendString(p, "token_ids"), 16)
				for range 16 {
					id = (id*1103515245 + 12345) % 150_000
					p = msgp.AppendUint32(p, uint32(id))
				}
				p = msgp.AppendInt(msgp.AppendString(p, "block_size"), 16)
				p = msgp.AppendNil(msgp.AppendString(p, "lora_id"))
				p = msgp.AppendString(msgp.AppendString(p, "medium"), "GPU")
				p = msgp.AppendNil(msgp.AppendString(p, "lora_name"))
				p = msgp.AppendNil(msgp.AppendArrayHeader(msgp.AppendString(p, "extra_keys"), 1))
				p = msgp.AppendInt(msgp.AppendString(p, "group_idx"), 0)
				p = msgp.AppendString(msgp.AppendString(p, "kv_cache_spec_kind"), "full_attention")
				q = msgp.AppendMapHeader(q, 4)
				q = msgp.AppendString(msgp.AppendString(q, "type"), "BlockRemoved")
				q = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(q, "block_hashes"), 1), h)
				q = msgp.AppendString(msgp.AppendString(q, "medium"), "GPU")
				q = msgp.AppendInt(msgp.AppendString(q, "group_idx"), 0)
				parents[i] = block.EngineHash(h)
			}
			stored, removed = append(stored, msgp.AppendInt(p, 0)), append(removed, msgp.AppendInt(q, 0))
		}
	}
	return stored, removed
}

// BenchmarkEventInLargeIndex measures a block with a separate event from decoding to index, in text
// space, among ten million entries. It reports the CPU time of a store and of a removal: the mean
// and the minimum of all rounds.
func BenchmarkEventInLargeIndex(b *testing.B) {
	x, vocabulary := largeIndex(), newTableVocabulary(150_000)
	type stream struct {
		tr      *Translator
		batches [2][][]byte
	}
	var streams [16]stream
	blocks := 0
	for i := range streams {
		s := &streams[i]
		s.tr = New(Options{
			Source: block.Source{Endpoint: block.EndpointID(i * 5)}, Index: x, Hasher: testHasher(), Model: "m", Vocabulary: vocabulary,
		})
		s.batches[0], s.batches[1] = generatedBatches(i*5, 4)
		blocks += len(s.batches[0]) * 64
	}
	var batch decode.Batch
	var d block.Delta
	var sum, least [2]time.Duration
	rounds := 0
	b.ReportAllocs()
	for b.Loop() {
		for phase := range sum {
			start := cpuTime(b)
			for k := range streams[0].batches[phase] {
				for i := range streams {
					s := &streams[i]
					payload := s.batches[phase][k]
					if phase == 1 { // leaves first
						payload = s.batches[phase][len(s.batches[phase])-1-k]
					}
					if err := batch.Decode(payload); err != nil {
						b.Fatal(err)
					}
					d.Reset()
					s.tr.Translate(&batch, &d)
					if st := x.Apply(s.tr.opt.Source, &d); st.Stored+st.Removed != 64 {
						b.Fatalf("%+v", st)
					}
				}
			}
			took := cpuTime(b) - start
			if sum[phase] += took; rounds == 0 || took < least[phase] {
				least[phase] = took
			}
		}
		rounds++
	}
	for phase, name := range []string{"store", "remove"} {
		b.ReportMetric(float64(sum[phase].Nanoseconds())/float64(rounds*blocks), "cpu-ns/"+name)
		b.ReportMetric(float64(least[phase].Nanoseconds())/float64(blocks), "cpu-ns/"+name+"-least")
	}
}
