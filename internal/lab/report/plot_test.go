package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// TestPlotsAlongEachAxis: there is one drawing along each varying dimension for each combination of
// the others. The number of replicas and the state that they share are one dimension.
func TestPlotsAlongEachAxis(t *testing.T) {
	var g sweep.Grid
	g.Sources = []sweep.Source{{Name: "a"}}
	g.Loads = []float64{.5, 1}
	g.Replicas, g.Share = []int{1, 3}, []time.Duration{50 * time.Millisecond, replay.Cut}
	g.Fleets = []replay.Fleet{replay.Engines(2)}
	g.Policies = []replay.Policy{{Name: replay.Default}, {Name: "other"}}
	var rows []sweep.Row
	for i, c := range g.Cells() {
		rows = append(rows, sweep.Row{Cell: c, Runs: []*replay.Result{{TTFT: replay.Summary{P90: float64(i + 1)}}}})
	}
	f, _ := FigureByKey("ttft_p90_s")
	plots, err := Plots(rows, f)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range plots {
		got = append(got, p.title)
		if text, err := p.svg(); err != nil || !strings.HasPrefix(text, "<svg") || !strings.Contains(text, "other") {
			t.Errorf("%s: %v", p.title, err)
		}
	}
	want := []string{
		"a, 2 engines, 1 replica", "a, 2 engines, 3 replicas, sharing after 50ms", "a, 2 engines, 3 replicas, sharing cut",
		"a, load 0.5, 2 engines", "a, load 1, 2 engines",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if text, _ := plots[3].svg(); !strings.Contains(text, "3 replicas, cut") {
		t.Error("a place on the axis has no name")
	}
}

func TestTicks(t *testing.T) {
	f := func(m plot.Ticker, low, high float64, want string) {
		t.Helper()
		var labels []string
		for _, tick := range m.Ticks(low, high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != want {
			t.Errorf("%v to %v: %s, want %s", low, high, got, want)
		}
	}
	f(marks{}, 0, 1, "0 0.25 0.5 0.75 1")
	f(marks{}, 0, 43, "0 10 20 30 40")
	f(marks{}, .7, .9, "0.7 0.75 0.8 0.85 0.9")
	f(marks{}, 3, 3, "3")
	f(decades{}, .3, 12, "0.5 1 2 5 10")
}

func TestCaptions(t *testing.T) {
	for key, want := range map[string]string{
		"ttft_p90_s": "TTFT p90 (s)", "tpot_mean_ms": "TPOT mean (ms)", "requests_per_s": "requests per s", "hit_ratio": "hit ratio", "errors": "errors",
	} {
		if f, ok := FigureByKey(key); !ok || caption(f) != want {
			t.Errorf("%s: %q", key, caption(f))
		}
	}
}

// TestQuantiles: every curve is drawn and named; a wide range is logarithmic.
func TestQuantiles(t *testing.T) {
	p, err := Quantiles("ttft_s", "interactive requests", []Curve{{"alone", []float64{.3, .1, .2}}, {"beside batch", []float64{9, 5}}})
	if err != nil {
		t.Fatal(err)
	}
	svg, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"alone", "beside batch", "percent of requests", "TTFT (s), logarithmic: interactive requests"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in the drawing", want)
		}
	}
}
