package replay

import (
	"math"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// Where prompts of all lengths wait, engines that take them by the priority that is
// written are sooner with most, and the longest are still served in their time.
func TestUrgencyHelps(t *testing.T) {
	w, _ := trace.Named("mixed")
	p, err := PolicyByName(Default)
	if err != nil {
		t.Fatal(err)
	}
	play := func(seed uint64, weight float64) *Result {
		c := Case{Engine: Forms()[0].Engine, Policy: p, Seed: seed, Urgency: weight,
			Trace: w.Generate(trace.GenerateOptions{Rate: 8 * .729, Seed: seed, Requests: 2000})}
		Forms()[0].Fleet.Apply(&c)
		c.Warmup = c.Trace.Length / 5
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ratios := 1.0
	for _, seed := range []uint64{301, 302} {
		as, by := play(seed, 0), play(seed, 8)
		t.Logf("seed %d: p90 %.2f s as they came, %.2f s by priority; p99 %.1f and %.1f s", seed, as.TTFT.P90, by.TTFT.P90, as.TTFT.P99, by.TTFT.P99)
		ratios *= by.TTFT.P90 / as.TTFT.P90
		if by.TTFT.P99 > 1.3*as.TTFT.P99 {
			t.Errorf("seed %d: p99 %.2f s by priority, %.2f s as they came", seed, by.TTFT.P99, as.TTFT.P99)
		}
	}
	if mean := math.Sqrt(ratios); mean > .85 {
		t.Errorf("p90 is %.2f times that of engines that take requests as they come", mean)
	}
	c := Case{Policy: p, Urgency: 5000, Trace: w.Generate(trace.GenerateOptions{Rate: 1, Seed: 1, Requests: 10})}
	if _, err := Run(t.Context(), c); err == nil {
		t.Error("a weight beyond what the plugin takes was played")
	}
}
