package replay

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// pools is a case of 2 engines for prefill and 2 for decode.
func pools(t *testing.T, policy string, bytesPerSecond float64) Case {
	t.Helper()
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	p, err := PolicyByName(policy)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := ParseFleet("2xprefill+2xdecode")
	if err != nil {
		t.Fatal(err)
	}
	c := Case{
		Trace: w.Generate(trace.GenerateOptions{Rate: 1, Length: 4 * time.Minute, BlockSize: trace.DefaultBlockSize}), Policy: p, Seed: 1,
		Network: Network{BytesPerToken: 327680, BytesPerSecond: bytesPerSecond, Latency: 30 * time.Millisecond},
	}
	fleet.Apply(&c)
	c.Engine.Model = engine.Model70B
	return c
}

// TestPools: prompts go to engines for prefill and their blocks to those for decode;
// every request is answered and no blocks are left behind.
func TestPools(t *testing.T) {
	for _, policy := range []string{"pd", "pd-always", "pd-2000", "pd-never"} {
		s := played(t, pools(t, policy, 20e9))
		r := s.result()
		if r.Errors > 0 || r.Remote > 0 != (policy != "pd-never") || policy == "pd-always" && r.Remote < 1 {
			t.Errorf("%s: %d errors, %.2f of the prompts computed elsewhere", policy, r.Errors, r.Remote)
		}
		for i := range s.stations {
			if st := s.stations[i].core.Stats(); st.UsedBlocks != 0 {
				t.Errorf("%s: engine %d has %d blocks in use at the end", policy, i, st.UsedBlocks)
			}
			if i >= 2 && policy == "pd-always" {
				if st := s.stations[i].core.Stats(); st.PrefillTokens > uint64(s.Trace.BlockSize)*st.Finished {
					t.Errorf("%s: engine %d, which decodes, has computed %d prompt tokens", policy, i, st.PrefillTokens)
				}
			}
		}
	}
}

// TestDearTransfers: if moving blocks is expensive, prompts are computed where they are answered.
func TestDearTransfers(t *testing.T) {
	share := map[float64]float64{}
	for _, speed := range []float64{20e9, .1e9} {
		r, err := Run(t.Context(), pools(t, "pd", speed))
		if err != nil {
			t.Fatal(err)
		}
		share[speed] = r.Remote
	}
	if share[.1e9] > .1 || share[20e9] < 2*share[.1e9] {
		t.Errorf("shares computed elsewhere, by bytes per second: %v", share)
	}
}

// TestFetching: engines fetch blocks from other engines where the link is faster than prefill.
// Every request is answered, no block stays in use, and over a slow network nothing is fetched.
func TestFetching(t *testing.T) {
	w, err := trace.Named("documents")
	if err != nil {
		t.Fatal(err)
	}
	play := func(policy string, bytesPerSecond float64, seed uint64) *Result {
		t.Helper()
		p, err := PolicyByName(policy)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Case{
			Trace: w.Generate(trace.GenerateOptions{Rate: 5, Requests: 500, BlockSize: trace.DefaultBlockSize, Seed: seed}), Policy: p, Seed: seed, Endpoints: 4,
			Engine:  engine.Config{Model: engine.Model70B},
			Network: Network{BytesPerToken: 327680, BytesPerSecond: bytesPerSecond, Latency: 20 * time.Millisecond},
		}.check()
		if err != nil {
			t.Fatal(err)
		}
		s, err := prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.play(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range s.stations {
			if st := s.stations[i].core.Stats(); st.UsedBlocks != 0 {
				t.Errorf("%s: engine %d has %d blocks in use at the end", policy, i, st.UsedBlocks)
			}
		}
		return s.result()
	}
	const seeds = 6 // one is not enough for quantiles
	var without, with, fetched float64
	for seed := range uint64(seeds) {
		a, b := play(Default, 25e9, seed+3), play(Fetching+":kvBytesPerToken=327680", 25e9, seed+3)
		if a.Fetched != 0 || b.Errors > 0 {
			t.Errorf("seed %d: fetched %.4f without an instruction; %d errors", seed+3, a.Fetched, b.Errors)
		}
		without, with, fetched = without+a.TTFT.P90/seeds, with+b.TTFT.P90/seeds, fetched+b.Fetched/seeds
	}
	slow := play(Fetching+":kvBytesPerToken=327680", 1e8, 3)
	t.Logf("p90 %.3f s as it is, %.3f s with %.1f%% fetched, %.3f s with a slow network and %.1f%%", without, with, 100*fetched, slow.TTFT.P90, 100*slow.Fetched)
	if fetched < .01 || with > without {
		t.Errorf("fetched %.4f of the prompt tokens; p90 %.3f s, %.3f s without", fetched, with, without)
	}
	if slow.Fetched > fetched/10 {
		t.Errorf("at 0.1 GB/s %.4f of the prompt tokens were fetched still", slow.Fetched)
	}
}
