package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

func smallGrid(t testing.TB) sweep.Grid {
	t.Helper()
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	return sweep.Grid{
		Sources: []sweep.Source{sweep.WorkloadSource(w, 0, trace.GenerateOptions{Length: 2 * time.Minute})},
		Policies: slices.DeleteFunc(replay.Policies(), func(p replay.Policy) bool {
			return !slices.Contains([]string{replay.Default, "unified", "load_only"}, p.Name)
		}),
		Loads: []float64{.5, 1}, Fleets: []replay.Fleet{replay.Engines(2)}, Seeds: []uint64{1, 2}, Warmup: .2,
	}
}

func rowsOf(t testing.TB, g sweep.Grid, workers int) []sweep.Row {
	t.Helper()
	rows, err := sweep.Sweep(context.Background(), g, workers, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestReports(t *testing.T) {
	g := smallGrid(t)
	rows := rowsOf(t, g, 2)
	report := Report{Rows: rows, Seeds: g.Seeds, About: []string{"what was played"}}
	var table, lines, object, html bytes.Buffer
	for _, err := range []error{
		report.WriteTable(&table), report.WriteCSV(&lines), report.WriteJSON(&object), report.WriteHTML(&html),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	records, err := csv.NewReader(&lines).ReadAll()
	if err != nil || len(records) != 1+len(rows)*len(g.Seeds) || len(records[0]) != len(cellColumns)+2+len(Figures) {
		t.Errorf("%d records, %v", len(records), err)
	}
	for i := range rows {
		line := records[1+i*len(g.Seeds)]
		if rate, err := strconv.ParseFloat(line[slices.Index(records[0], "rate")], 64); err != nil || rate != rows[i].Rate {
			t.Errorf("rate %v in CSV, %v played", rate, rows[i].Rate)
		}
	}
	var back struct{ Rows []sweep.Row }
	if err := json.Unmarshal(object.Bytes(), &back); err != nil || len(back.Rows) != len(rows) || !cmp.Equal(back.Rows[3].Runs, rows[3].Runs) {
		t.Errorf("JSON does not say the same: %v", err)
	}
	for _, want := range []string{"load_only", "unified", "p90", "up to 4K", "up to 16K"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	page := html.String()
	if n := strings.Count(page, "<svg"); n != len(PlotFigures)+len(rows) {
		t.Errorf("%d drawings", n)
	}
	for _, foreign := range []string{"<script", "<link", "src="} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %s", foreign)
		}
	}
}

func TestPlotFormats(t *testing.T) {
	g := smallGrid(t)
	for _, loads := range [][]float64{{.5}, {.5, 1}} {
		g.Loads = loads
		for _, key := range PlotFigures {
			f, ok := FigureByKey(key)
			if !ok {
				t.Fatal(key)
			}
			plots, err := Plots(rowsOf(t, g, 2), f)
			if err != nil || len(plots) != 1 {
				t.Fatalf("%d plots, %v", len(plots), err)
			}
			for format, magic := range map[string]string{"svg": "<svg", "png": "\x89PNG"} {
				var b bytes.Buffer
				if err := plots[0].Write(&b, format); err != nil || !strings.Contains(b.String(), magic) {
					t.Errorf("%s: %v", format, err)
				}
			}
		}
	}
}

// TestSpans: tables and drawings show the range of single seeds next to the mean.
func TestSpans(t *testing.T) {
	f, _ := FigureByKey("ttft_p90_s")
	row := func(p90 ...float64) sweep.Row {
		r := sweep.Row{Cell: sweep.Cell{Source: "a", Policy: "b", Load: .5, Fleet: "8", Replicas: 1}}
		for _, v := range p90 {
			r.Runs = append(r.Runs, &replay.Result{TTFT: replay.Summary{P90: v}})
		}
		return r
	}
	var one, three bytes.Buffer
	if err := errors.Join(writeTable(&one, []sweep.Row{row(2)}), writeTable(&three, []sweep.Row{row(2, 4, 1.5)})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(one.String(), "[") || !strings.Contains(three.String(), "2.50 [1.50 4.00]") {
		t.Errorf("%s%s", &one, &three)
	}
	p, err := bars([]sweep.Row{row(2, 4, 1.5)}, f, "")
	if err != nil || p.plot.Y.Max < 4 {
		t.Errorf("drawn up to %v, %v", p.plot.Y.Max, err)
	}
}
