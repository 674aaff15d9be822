package clusters

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	sizes     = flag.String("clusters.sizes", "2x3", "clusters x engines of TestTable, separated by commas")
	day       = flag.Float64("clusters.day", 30, "seconds of a rise and fall in TestTable")
	mean      = flag.Float64("clusters.mean", .95, "load over the day in TestTable, as a share of what the engines could serve")
	swing     = flag.Float64("clusters.swing", .8, "of the load around it")
	work      = flag.Float64("clusters.work", 1, "times the tokens of a usual prompt in TestTable")
	grain     = flag.Float64("clusters.grain", 64, "tokens of a prompt for each block of the filters in TestTable")
	home      = flag.Float64("clusters.home", .5, "share of requests that weights leave at home in TestTable")
	only      = flag.String("clusters.only", "", "the one policy of TestTable; all if not given")
	rowsFile  = flag.String("clusters.rows", "", "file to which TestTable adds its rows, and that TestPlot draws")
	sizesSVG  = flag.String("clusters.sizes-svg", "", "file for the plot of TestPlot")
	svg       = flag.String("clusters.svg", "", "file for the plot of the first size of TestTable")
	seeds     = flag.Int("clusters.seeds", 6, "seeds of TestFaults")
	firstSeed = flag.Uint64("clusters.first", 1, "first of them")
)

// TestDay plays a day whose load peaks in one cluster after the other. Prices must give a lower p90
// of the time to first token than every policy with less information, and few requests may leave
// their cluster.
func TestDay(t *testing.T) {
	got := map[Policy]*Result{}
	for _, p := range Policies {
		r, err := Run(Options{Clusters: 3, Engines: 5, Policy: p, Day: 60, Mean: .95, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Lost+r.Broken+r.Loops+r.BadHops+r.Unsettled+r.Leaked != 0 {
			t.Errorf("%s: %+v", p, r)
		}
		got[p] = r
		t.Logf("%-12s %d requests p50 %.3f p90 %.3f p99 %.3f away %.3f held %.3f control %d", p, r.Requests, r.Quantile(.5), r.Quantile(.9), r.Quantile(.99), r.Spill(), r.Held(), r.Control)
	}
	price := got[Price]
	for _, p := range Policies[:3] {
		if price.Quantile(.9) > got[p].Quantile(.9) {
			t.Errorf("p90 %.3f s with prices, %.3f with %s", price.Quantile(.9), got[p].Quantile(.9), p)
		}
	}
	if price.Spill() == 0 || price.Spill() > got[Weights].Spill() {
		t.Errorf("%.2f of the requests left home, %.2f with weights", price.Spill(), got[Weights].Spill())
	}
}

// TestFaults cuts links, kills clusters and restarts pickers. No request may loop, no request may
// be lost that a live cluster could serve, and at the end all clusters must see each other.
func TestFaults(t *testing.T) {
	requests, retried, away := 0, 0, 0
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		o := Options{Clusters: 2 + int(seed%4), Engines: 3, Day: 30, Length: 60, Mean: .7, Faults: true, Seed: seed}
		r, err := Run(o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Loops+r.BadHops+r.Lost+r.Unsettled+r.Leaked != 0 {
			t.Errorf("seed %d: %d loops, %d bad tokens, %d lost, %d not settled, %d leaked of %d", seed, r.Loops, r.BadHops, r.Lost, r.Unsettled, r.Leaked, r.Requests)
		}
		requests, retried, away = requests+r.Requests, retried+r.Retried, away+r.Away
	}
	if away == 0 || retried == 0 {
		t.Error("no request left home, or none fell back: the faults do nothing")
	}
	t.Logf("%d seeds: %d requests, %d left home, %d fell back", *seeds, requests, away, retried)
}

// TestTable prints the results of each policy over a day for docs/multicluster.md.
func TestTable(t *testing.T) {
	var rows []Row
	for i, size := range strings.Split(*sizes, ",") {
		o := Options{Day: *day, Mean: *mean, Swing: *swing, Work: *work, Grain: *grain, Home: *home, Seed: 1}
		if _, err := fmt.Sscanf(size, "%dx%d", &o.Clusters, &o.Engines); err != nil {
			t.Fatalf("-clusters.sizes %q: %v", size, err)
		}
		var these []*Result
		for _, p := range Policies {
			if *only != "" && string(p) != *only {
				continue
			}
			o.Policy = p
			r, err := Run(o)
			if err != nil {
				t.Fatal(err)
			}
			these, rows = append(these, r), append(rows, r.Row())
			t.Logf("%+v", r.Row())
		}
		var drawn bytes.Buffer
		if err := WriteSVG(&drawn, these); err != nil || !strings.Contains(drawn.String(), "</svg>") {
			t.Fatalf("%d bytes drawn, %v", drawn.Len(), err)
		}
		if i == 0 {
			keep(t, *svg, drawn.Bytes(), os.O_TRUNC)
		}
	}
	var table strings.Builder
	WriteTable(&table, rows)
	if strings.Count(table.String(), "\n") != len(rows)+2 {
		t.Errorf("table:\n%s", table.String())
	}
	t.Log("\n" + table.String())
	for i := range rows {
		b, err := json.Marshal(rows[i])
		if err != nil {
			t.Fatal(err)
		}
		keep(t, *rowsFile, append(b, '\n'), os.O_APPEND)
	}
}

// keep writes a file. An empty name writes nothing.
func keep(t *testing.T, name string, b []byte, how int) {
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|how, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

// TestPlot draws the rows of all sizes for docs/multicluster.md.
func TestPlot(t *testing.T) {
	rows := []Row{{Clusters: 2, Policy: Price, P90: 1, Control: 1}, {Clusters: 50, Policy: Price, P90: 2, Control: 2}}
	if *rowsFile != "" {
		f, err := os.Open(*rowsFile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rows = nil
		for d := json.NewDecoder(f); d.More(); {
			var r Row
			if err := d.Decode(&r); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, r)
		}
		slices.SortStableFunc(rows, func(a, b Row) int { return a.Clusters - b.Clusters })
		var table strings.Builder
		WriteTable(&table, rows)
		t.Log("\n" + table.String())
	}
	var drawn bytes.Buffer
	if err := WriteSizesSVG(&drawn, rows); err != nil || strings.Count(drawn.String(), "</svg>") != 1 {
		t.Fatalf("%d bytes drawn, %v", drawn.Len(), err)
	}
	keep(t, *sizesSVG, drawn.Bytes(), os.O_TRUNC)
}
