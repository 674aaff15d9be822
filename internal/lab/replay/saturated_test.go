package replay

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// Engines of two speeds, short of memory, at saturation. The default policy must not move sessions
// because of waits that a fleet without caches would have as well. Moving them made it four times
// as late as a policy that keeps sessions in place.
func TestSaturatedChat(t *testing.T) {
	for _, f := range Forms() {
		if f.Fleet.Name != "noisy" {
			continue
		}
		for _, seed := range []uint64{902, 903} {
			if ours, theirs := chatP90(t, &f, Default, 5.55, seed), chatP90(t, &f, "unified", 5.55, seed); ours > 1.5*theirs {
				t.Errorf("seed %d: p90 %.1f s, unified %.1f s", seed, ours, theirs)
			}
		}
		return
	}
	t.Error("no such fleet")
}

// Chats on mixture-of-experts models below saturation: long contexts gather at engines with few
// decoding requests. A policy that also charges for the delay of other requests' steps had 1.15
// times the p90 of one that keeps sessions in place.
func TestContextsGatherLess(t *testing.T) {
	f, ours, theirs := Forms()[1], 0.0, 0.0
	for _, seed := range []uint64{951, 952} {
		ours += chatP90(t, &f, Default, 13.72, seed)
		theirs += chatP90(t, &f, "unified", 13.72, seed)
	}
	t.Logf("p90 %.2f times unified's", ours/theirs)
	if ours > 1.05*theirs {
		t.Errorf("p90 %.2f s, unified %.2f s, in the sum over seeds", ours, theirs)
	}
}

// chatP90 returns p90 of the time to first token of chats, in seconds.
func chatP90(t *testing.T, f *Form, name string, rate float64, seed uint64) float64 {
	t.Helper()
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	c := Case{Engine: f.Engine, Policy: policy(t, name), Seed: seed, Trace: w.Generate(trace.GenerateOptions{Rate: rate, Seed: seed, Requests: 2000})}
	f.Fleet.Apply(&c)
	c.Warmup = c.Trace.Length / 5
	return run(t, c).TTFT.P90
}
