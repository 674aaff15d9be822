package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

func smallGrid(t testing.TB) Grid {
	t.Helper()
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	return Grid{
		Sources:  []Source{WorkloadSource(w, 0, trace.GenerateOptions{Length: 2 * time.Minute})},
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
	// 2 loads × 2 sizes × (1 replica + 3 replicas × 2 delays) × 3 policies.
	if n := len(g.Cells()); n != 2*2*3*3 {
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
	w, err := trace.Named("mixed")
	if err != nil {
		t.Fatal(err)
	}
	rate, err := Saturation(context.Background(), Case{Policy: policy(t, "unified"), Endpoints: 2, Seed: 1}, WorkloadSource(w, 0, trace.GenerateOptions{Length: 15 * time.Minute}))
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
