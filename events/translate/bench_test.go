package translate

import (
	"bytes"
	"encoding/binary"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/eventtest"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// tableVocabulary is a vocabulary as real ones are laid out and read: one blob
// and offsets, copied word by word.
type tableVocabulary struct {
	blob []byte
	offs []uint32
}

func newTableVocabulary(n int) *tableVocabulary {
	v := &tableVocabulary{offs: make([]uint32, 1, n+1)}
	for i := range n {
		for j := range 1 + i%7 {
			v.blob = append(v.blob, byte('a'+(i+j)%26))
		}
		v.offs = append(v.offs, uint32(len(v.blob)))
	}
	return v
}

func (v *tableVocabulary) AppendTokens(dst []byte, ids []uint32) ([]byte, bool) {
	start := len(dst)
	dst = slices.Grow(dst, 8*len(ids)+8)
	for _, id := range ids {
		if int(id)+1 >= len(v.offs) {
			return dst[:start], false
		}
		a, b := v.offs[id], v.offs[id+1]
		if n := len(dst); len(v.blob[a:]) >= 8 { // none is longer
			dst = dst[:n+8]
			binary.LittleEndian.PutUint64(dst[n:], binary.LittleEndian.Uint64(v.blob[a:]))
			dst = dst[:n+int(b-a)]
			continue
		}
		dst = append(dst, v.blob[a:b]...)
	}
	return dst, true
}

// emptyIndex has one parent and stores nothing, so only decoding and translating are measured.
type emptyIndex struct{}

func (emptyIndex) Lookup(block.Source, block.EngineHash) (block.Key, bool) { return 7, true }
func (emptyIndex) Parents(_ block.Source, _, _ []block.EngineHash, keys []block.Key) {
	for i := range keys {
		keys[i] = 7
	}
}
func (emptyIndex) Digest(block.Source) (count, xor uint64) { return 0, 0 }
func (emptyIndex) Apply(block.Source, *block.Delta) indexer.ApplyStats {
	return indexer.ApplyStats{}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perBlock runs f, which handles n blocks, and reports CPU time per block next to the wall time.
func perBlock(b *testing.B, n int, f func()) {
	b.ReportAllocs()
	start := cpuTime(b)
	for i := 0; i < b.N; i += n {
		f()
	}
	b.ReportMetric(float64(cpuTime(b)-start)/float64((b.N+n-1)/n*n), "cpu-ns/block")
}

// BenchmarkStoredBlock measures decoding and translating one stored block of
// 16 tokens into text space, in events of several sizes.
func BenchmarkStoredBlock(b *testing.B) {
	vocabulary := newTableVocabulary(150_000)
	for _, c := range []struct {
		name           string
		events, blocks int
	}{{"generated", 64, 1}, {"prompt", 4, 64}} {
		payload := eventtest.StorePayload(c.events, c.blocks)
		n := c.events * c.blocks
		var batch decode.Batch
		var d block.Delta
		decode := func(b *testing.B) {
			if err := batch.Decode(payload); err != nil || len(batch.Events) != c.events {
				b.Fatal(err)
			}
		}
		b.Run(c.name+"/decode", func(b *testing.B) { perBlock(b, n, func() { decode(b) }) })
		for _, space := range []struct {
			name       string
			vocabulary Vocabulary
		}{{"tokens", nil}, {"text", vocabulary}} {
			tr := New(Options{
				Index: emptyIndex{}, Hasher: testHasher(), Model: "m", Vocabulary: space.vocabulary,
			})
			b.Run(c.name+"/decode+translate/"+space.name, func(b *testing.B) {
				perBlock(b, n, func() {
					decode(b)
					d.Reset()
					tr.Translate(&batch, &d)
				})
			})
		}
	}
}

// BenchmarkStoredPage measures units of 16 pages of one token, as SGLang
// publishes them by default, stored and removed; a block is one unit.
func BenchmarkStoredPage(b *testing.B) {
	r := newRig(Options{})
	store := decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: 1}
	for i := range 256 {
		store.Hashes = append(store.Hashes, block.EngineHash(i+1)*0x9e3779b97f4a7c15)
		store.Tokens = append(store.Tokens, uint32(i))
	}
	hashes := append([]block.EngineHash(nil), store.Hashes...)
	scratch := make([]block.EngineHash, 0, 256) // Translate may reorder the removed hashes
	var d block.Delta
	perBlock(b, 16, func() {
		d.Reset()
		remove := decode.Event{Kind: decode.BlockRemoved, Group: decode.NoGroup, Hashes: append(scratch[:0], hashes...)}
		r.tr.Translate(&decode.Batch{Events: []decode.Event{store, remove}}, &d)
	})
}

// BenchmarkStream measures a block of 16 tokens from decoding to index, in text space. One batch
// stores it and the next removes it, with one block per event or sixteen.
func BenchmarkStream(b *testing.B) {
	b.Run("generated", func(b *testing.B) { benchmarkStream(b, eventtest.StorePayload(64, 1)) })
	b.Run("prompt", func(b *testing.B) { benchmarkStream(b, eventtest.StorePayload(32, 16)) })
}

func benchmarkStream(b *testing.B, stored []byte) {
	r := newRig(Options{Vocabulary: newTableVocabulary(150_000)})
	var batch decode.Batch
	if err := batch.Decode(stored); err != nil {
		b.Fatal(err)
	}
	var hashes []block.EngineHash
	for i := range batch.Events {
		hashes = append(hashes, batch.Events[i].Hashes...)
	}
	removed := msgp.AppendArrayHeader(nil, 3)
	removed = msgp.AppendArrayHeader(msgp.AppendFloat64(removed, 1), uint32(len(hashes)))
	for _, h := range hashes {
		removed = msgp.AppendString(msgp.AppendArrayHeader(removed, 4), "BlockRemoved")
		removed = msgp.AppendUint64(msgp.AppendArrayHeader(removed, 1), uint64(h))
		removed = msgp.AppendInt(msgp.AppendString(removed, "GPU"), 0)
	}
	removed = msgp.AppendInt(removed, 0)
	// The first parent is unknown: start a chain instead of parking it.
	stored = bytes.Replace(stored, []byte("parent_block_hash\xcf"), []byte("parent_block_hush\xcf"), 1)
	var d block.Delta
	var spent [2]time.Duration
	rounds := 0
	perBlock(b, len(hashes), func() {
		rounds++
		for i, payload := range [][]byte{stored, removed} {
			start := cpuTime(b)
			if err := batch.Decode(payload); err != nil || batch.Malformed > 0 {
				b.Fatal(err, batch.Malformed)
			}
			d.Reset()
			r.tr.Translate(&batch, &d)
			r.index.Apply(testSource, &d)
			spent[i] += cpuTime(b) - start
		}
	})
	for i, name := range []string{"store", "remove"} {
		b.ReportMetric(float64(spent[i].Nanoseconds())/float64(rounds*len(hashes)), "cpu-ns/"+name)
	}
	if s := r.tr.Stats(); s.Stored != s.Removed || s.Stored < uint64(b.N) {
		b.Fatalf("%+v", s)
	}
}

func TestTranslateAllocatesNothing(t *testing.T) {
	payload := eventtest.StorePayload(8, 4)
	tr := New(Options{
		Index: emptyIndex{}, Hasher: testHasher(), Model: "m", Vocabulary: newTableVocabulary(150_000),
	})
	var batch decode.Batch
	var d block.Delta
	got := testing.AllocsPerRun(100, func() {
		d.Reset()
		if err := batch.Decode(payload); err != nil {
			t.Fatal(err)
		}
		tr.Translate(&batch, &d)
	})
	if got != 0 || len(d.Blocks) != 32 {
		t.Errorf("%v allocations, %d blocks", got, len(d.Blocks))
	}
}
