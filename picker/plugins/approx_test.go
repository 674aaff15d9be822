package plugins

import (
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// prompt returns a request of the given number of chunks with a unique prompt.
func prompt(id, chunks int) *request.Request {
	r := ask(chunks * minBlock)
	for i := range chunks {
		r.ChunkKeys = append(r.ChunkKeys, block.Key(id<<20+i+1))
	}
	return r
}

// TestApproxProducersApart: two producers of different size hold different prompts, and each scorer
// uses its own producer.
func TestApproxProducersApart(t *testing.T) {
	f := newFleet(one{}, one{}, one{})
	small := build(t, "approx-prefix-cache-producer", `{"autoTune":false,"lruCapacityPerServer":8}`).Holdings
	large := build(t, "approx-prefix-cache-producer", `{"autoTune":false,"lruCapacityPerServer":10000}`).Holdings
	a, b := build(t, "prefix-cache-scorer", "").Bind(small).Scorer, build(t, "prefix-cache-scorer", "").Bind(large).Scorer
	first := f.pool.Snapshot().Endpoints[0]
	check := func(r *request.Request, wantA, wantB float64) {
		t.Helper()
		c := f.cycle(r)
		defer c.Free()
		scores := make([]float64, 3)
		for scorer, want := range map[*float64]float64{&wantA: wantA, &wantB: wantB} {
			if scorer == &wantA {
				a.Score(c, scores)
			} else {
				b.Score(c, scores)
			}
			if !near(scores, []float64{want, 0, 0}) {
				t.Errorf("scores %v, want %v at the first", scores, want)
			}
		}
	}
	for i := range 40 {
		r := prompt(i, 100)
		check(r, 0, 0)
		c := f.cycle(r)
		small.Chosen(c, first)
		large.Chosen(c, first)
		c.Free()
	}
	check(prompt(0, 100), 0, 1)
	check(prompt(0, 200), 0, .5)
	check(prompt(7, 0), 0, 0)
}

// TestBoundPluginsLearn: a plugin bound to a producer reports the destination of requests to the
// producer, so that it learns even if no other plugin reports.
func TestBoundPluginsLearn(t *testing.T) {
	f := newFleet(one{}, one{})
	for _, typ := range []string{"prefix-cache-scorer", "prefix-cache-affinity-filter", "no-hit-lru-scorer"} {
		h := build(t, "approx-prefix-cache-producer", `{"autoTune":false}`).Holdings
		p := build(t, typ, "").Bind(h)
		learner, ok := any(p.Scorer).(cycle.Observer)
		if p.Filter != nil {
			learner, ok = p.Filter.(cycle.Observer)
		}
		if !ok {
			t.Errorf("%s gets no report", typ)
			continue
		}
		c := f.cycle(prompt(1, 10))
		learner.Chosen(c, f.pool.Snapshot().Endpoints[1])
		held := make([]float64, 2)
		h.Fill(c, held)
		c.Free()
		if !near(held, []float64{0, 10 * minBlock}) {
			t.Errorf("%s: held %v", typ, held)
		}
	}
}

// TestChunkLRU: a full set drops its least recently used chunk.
func TestChunkLRU(t *testing.T) {
	l := &chunkLRU{at: map[block.Key]int32{}}
	for _, key := range []block.Key{1, 2, 3, 1, 4, 5} {
		l.add(key, 3)
	}
	for key, want := range map[block.Key]bool{1: true, 2: false, 3: false, 4: true, 5: true} {
		if l.has(key) != want {
			t.Errorf("has %d: %t", key, !want)
		}
	}
	if len(l.at) != 3 || len(l.slots) != 4 {
		t.Errorf("%d keys in %d slots", len(l.at), len(l.slots))
	}
}
