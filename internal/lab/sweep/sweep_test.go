package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

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

func smallGrid(t testing.TB) Grid {
	t.Helper()
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	return Grid{
		Sources:  []Source{WorkloadSource(w, 0, trace.GenerateOptions{Length: 2 * time.Minute})},
		Policies: []replay.Policy{policy(t, replay.Default), policy(t, "unified"), policy(t, "load_only")},
		Loads:    []float64{.5, 1}, Fleets: []replay.Fleet{replay.Engines(2)}, Seeds: []uint64{1, 2}, Warmup: .2,
	}
}

func rowsOf(t testing.TB, g Grid, workers int) []Row {
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
	a, err := json.Marshal(rowsOf(t, smallGrid(t), 1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rowsOf(t, smallGrid(t), 5))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("results depend on the number of workers")
	}
}

func TestGridCells(t *testing.T) {
	g := smallGrid(t)
	g.Blocks, g.Replicas, g.Share = []int{100, 200}, []int{1, 3}, []time.Duration{0, replay.Cut}
	// 2 loads × 2 sizes × (1 replica + 3 replicas × 2 delays) × 3 policies.
	if n := len(g.Cells()); n != 2*2*3*3 {
		t.Errorf("%d cells", n)
	}
	g.Loads = nil
	if _, err := Sweep(context.Background(), g, 1, nil); !errors.Is(err, replay.ErrCase) {
		t.Error(err)
	}
	g = smallGrid(t)
	g.Policies = append(g.Policies, replay.Policy{Name: "none"})
	if _, err := Sweep(context.Background(), g, 2, nil); !errors.Is(err, replay.ErrCase) {
		t.Error(err)
	}
}

func TestSaturation(t *testing.T) {
	w, err := trace.Named("mixed")
	if err != nil {
		t.Fatal(err)
	}
	rate, err := Saturation(context.Background(), replay.Case{Policy: policy(t, "unified"), Endpoints: 2, Seed: 1}, WorkloadSource(w, 0, trace.GenerateOptions{Length: 15 * time.Minute}))
	if err != nil || rate < .5 || rate > 1.5 {
		t.Errorf("%v, %v", rate, err)
	}
}

// TestSaturationOfSmallEngines: prompts longer than an engine's memory are refused at every load.
// They do not count as requests that exceed the fleet's capacity.
func TestSaturationOfSmallEngines(t *testing.T) {
	w, err := trace.Named("longtail")
	if err != nil {
		t.Fatal(err)
	}
	c := replay.Case{Policy: policy(t, "unified"), Endpoints: 2, Seed: 1}
	c.Engine.Blocks = 120
	source := WorkloadSource(w, 0, trace.GenerateOptions{Requests: 1200})
	rate, err := Saturation(context.Background(), c, source)
	if err != nil {
		t.Fatal(err)
	}
	c.Trace = source.Make(rate, 1)
	r, err := replay.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if share := float64(r.Errors) / float64(r.Requests); share < .05 || rate < 5*idleRate {
		t.Errorf("%.3f requests a second for each engine, %.2f of them refused", rate, share)
	}
}
