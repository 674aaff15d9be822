package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

func policy(t testing.TB, name string) replay.Policy {
	t.Helper()
	p, err := replay.PolicyByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func smallGrid(t testing.TB) replay.Grid {
	t.Helper()
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	return replay.Grid{
		Sources:  []replay.Source{replay.WorkloadSource(w, 0, trace.GenerateOptions{Length: 2 * time.Minute})},
		Policies: []replay.Policy{policy(t, replay.Default), policy(t, "unified"), policy(t, "load_only")},
		Loads:    []float64{.5, 1}, Fleets: []replay.Fleet{replay.Engines(2)}, Seeds: []uint64{1, 2}, Warmup: .2,
	}
}

func sweep(t testing.TB, g replay.Grid, workers int) []replay.Row {
	t.Helper()
	last, runs := 0.0, 0
	rows, err := replay.Sweep(context.Background(), g, workers, func(done float64, all int) {
		if done < last || done > float64(all)+1e-9 {
			t.Errorf("progress %v of %d after %v", done, all, last)
		}
		last, runs = done, all
	})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(last-float64(runs)) > 1e-9 {
		t.Errorf("progress ends at %v of %d", last, runs)
	}
	return rows
}

func TestReports(t *testing.T) {
	g := smallGrid(t)
	rows := sweep(t, g, 2)
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
	var back struct{ Rows []replay.Row }
	if err := json.Unmarshal(object.Bytes(), &back); err != nil || len(back.Rows) != len(rows) || !cmp.Equal(back.Rows[3].Runs, rows[3].Runs) {
		t.Errorf("JSON does not say the same: %v", err)
	}
	for _, want := range []string{"load_only", "unified", "p90"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	page := html.String()
	if n := strings.Count(page, "<svg"); n != len(PlotFigures) {
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
			plots, err := Plots(sweep(t, g, 2), f)
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
