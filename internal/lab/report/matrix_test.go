package report

import (
	"bytes"
	"strings"
	"testing"
)

// TestVerdicts: a cell is compared over the seeds that both policies have, with the better
// of the two baselines, and the worst comes first.
func TestVerdicts(t *testing.T) {
	run := func(source, policy, seed string, load, p90 float64) Run {
		return Run{
			Source: source, Fleet: "dense", Replicas: "1", Load: load, Policy: policy, Seed: seed,
			Figures: map[string]float64{"ttft_p90_s": p90 - .005, "ttft_p99_s": 1.995, "tpot_mean_ms": 19.5, "goodput": .5, "blast_radius": .25},
		}
	}
	runs := []Run{
		run("chat", "default", "1", .85, 1), run("chat", "default", "2", .85, 4),
		run("chat", "unified", "1", .85, 2), run("chat", "unified", "2", .85, 2),
		run("chat", "load_only", "1", .85, 4), run("chat", "load_only", "2", .85, 16),
		run("chat", "epp", "2", .85, 2), // not seed 1
		run("agents", "default", "1", 1, 3), run("agents", "unified", "1", 1, 2), run("agents", "load_only", "1", 1, 6),
		run("alone", "default", "1", 1, 3), // nothing to compare with
	}
	var b bytes.Buffer
	if err := Verdicts(&b, runs, "default"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"default, 2 cells; p90 and p99 of the time to first token, and time per token",
		"cells at most 1.05 times the better baseline and the best of all others mean over epp mean over load_only mean over unified",
		"all 2 1 / 2 / 2 0 / 2 / 2 2.00 / 1.00 / 1.00 0.35 / 1.00 / 1.00 1.22 / 1.00 / 1.00",
		"load up to 85% 1 1 / 1 / 1 0 / 1 / 1 2.00 / 1.00 / 1.00 0.25 / 1.00 / 1.00 1.00 / 1.00 / 1.00",
		"load 100% 1 0 / 1 / 1 0 / 1 / 1 - 0.50 / 1.00 / 1.00 1.50 / 1.00 / 1.00",
	}
	if strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got[:len(want)], "\n"), strings.Join(want, "\n"))
	}
	last := strings.Join(got[len(got)-2:], "\n")
	if want := "agents dense 100% 1 1 2.99 2.00 19.5 1.50 1.00 1.00 0.50 0.25\nchat dense 85% 1 2 2.00 2.00 19.5 1.00 1.00 1.00 0.50 0.25"; last != want {
		t.Errorf("the cells are\n%s\nwant\n%s", last, want)
	}
}
