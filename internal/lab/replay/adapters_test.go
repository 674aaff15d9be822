package replay

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// adapted returns short prompts for 60 adapters of Zipf-like popularity, each with a prefix of its
// own.
func adapted(rate float64, length time.Duration, seed uint64) *trace.Trace {
	rng := rand.New(rand.NewPCG(seed, 5))
	const adapters, prefix = 60, 32
	t := &trace.Trace{Name: "adapted", BlockSize: 16, Length: length, Blocks: adapters * prefix}
	var weights [adapters]float64
	sum := 0.0
	for i := range weights {
		weights[i] = 1 / math.Pow(float64(i+1), .8)
		sum += weights[i]
	}
	for at := time.Duration(0); at < length; at += time.Duration(rng.ExpFloat64() / rate * 1e9) {
		a, left := 0, sum*rng.Float64()
		for left > weights[a] && a < adapters-1 {
			left -= weights[a]
			a++
		}
		r := trace.Request{At: at, Adapter: int32(a + 1), Input: 16*prefix + 16*(8+rng.IntN(40)), Output: 20 + rng.IntN(100), Session: int32(t.Sessions)}
		t.Sessions++
		for b := range r.Input / 16 {
			if b < prefix {
				r.Blocks = append(r.Blocks, trace.Block(a*prefix+b))
				continue
			}
			r.Blocks = append(r.Blocks, trace.Block(t.Blocks))
			t.Blocks++
		}
		t.Requests = append(t.Requests, r)
	}
	return t
}

// TestAdapters checks that the time to load an adapter has a price: 60 adapters, 8 slots at each of
// eight engines, 0.5 s a load.
func TestAdapters(t *testing.T) {
	m, _ := engine.MachineByName("8b")
	for _, seed := range []uint64{401, 402, 403} {
		for _, name := range []string{Default, "load_only"} {
			c := Case{
				Trace: adapted(24, 4*time.Minute, seed), Policy: policy(t, name), Endpoints: 8, Seed: seed, Warmup: time.Minute,
				Engine: engine.Config{Blocks: m.KVTokens / 16, Model: m.Model, AdapterSlots: 8, MaxAdapters: 8, AdapterLoad: 500 * time.Millisecond},
			}
			s := played(t, c)
			r, loads := s.result(), uint64(0)
			for i := range s.stations {
				loads += s.stations[i].core.Stats().AdapterLoads
			}
			t.Logf("seed %d, %s: p90 %.3f s, p99 %.3f s, %d loads for %d requests, learned %.2f s", seed, name, r.TTFT.P90, r.TTFT.P99, loads, len(c.Trace.Requests), s.replicas[0].pool.NeedTimes().Seconds(0))
			if name == Default && r.TTFT.P90 > .2 {
				t.Errorf("seed %d: p90 %.3f s, want at most 0.2 s", seed, r.TTFT.P90)
			}
		}
	}
}
