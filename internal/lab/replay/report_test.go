package replay

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func smallGrid(t testing.TB) Grid {
	t.Helper()
	w, err := WorkloadByName("chat")
	if err != nil {
		t.Fatal(err)
	}
	return Grid{
		Sources:  []Source{WorkloadSource(w, 0, GenerateOptions{Length: 2 * time.Minute})},
		Policies: []Policy{policy(t, Default), policy(t, "unified"), policy(t, "load_only")},
		Loads:    []float64{.5, 1}, Fleets: []Fleet{Engines(2)}, Seeds: []uint64{1, 2}, Warmup: .2,
	}
}

func sweep(t testing.TB, g Grid, workers int) []Row {
	t.Helper()
	last, runs := 0.0, 0
	rows, err := Sweep(context.Background(), g, workers, func(done float64, all int) {
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

func TestSweepIsTheSameOnManyWorkers(t *testing.T) {
	a, err := json.Marshal(sweep(t, smallGrid(t), 1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(sweep(t, smallGrid(t), 5))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("results depend on the number of workers")
	}
}

func TestGridCells(t *testing.T) {
	g := smallGrid(t)
	g.Blocks, g.Replicas, g.Share = []int{100, 200}, []int{1, 3}, []time.Duration{0, Cut}
	g.defaults()
	// 2 loads × 2 sizes × (1 replica + 3 replicas × 2 delays) × 3 policies.
	if n := len(g.cells()); n != 2*2*3*3 {
		t.Errorf("%d cells", n)
	}
	g.Loads = nil
	if _, err := Sweep(context.Background(), g, 1, nil); !errors.Is(err, ErrCase) {
		t.Error(err)
	}
	g = smallGrid(t)
	g.Policies = append(g.Policies, Policy{Name: "none"})
	if _, err := Sweep(context.Background(), g, 2, nil); !errors.Is(err, ErrCase) {
		t.Error(err)
	}
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
	var back struct{ Rows []Row }
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

func TestSummary(t *testing.T) {
	v := make([]float64, 100)
	for i := range v {
		v[99-i] = float64(i + 1)
	}
	if got := summarise(v); got != (Summary{50.5, 51, 91, 100}) {
		t.Errorf("%+v", got)
	}
	if got := summarise(nil); got != (Summary{}) {
		t.Errorf("%+v", got)
	}
}

func TestSaturation(t *testing.T) {
	w, err := WorkloadByName("mixed")
	if err != nil {
		t.Fatal(err)
	}
	rate, err := Saturation(context.Background(), Case{Policy: policy(t, "unified"), Endpoints: 2, Seed: 1}, WorkloadSource(w, 0, GenerateOptions{Length: 15 * time.Minute}))
	if err != nil || rate < .5 || rate > 1.5 {
		t.Errorf("%v, %v", rate, err)
	}
}

func TestPolicyNames(t *testing.T) {
	for _, name := range []string{"nobody", "sticky:x=1", "default:nothing=1", "default:ownWeight=x", "default:ownWeight=-1"} {
		if _, err := PolicyByName(name); err == nil {
			t.Errorf("%q is a policy", name)
		}
	}
	if _, err := PolicyByName("default:ownWeight=1;stallWeight=0"); err != nil {
		t.Error(err)
	}
}
