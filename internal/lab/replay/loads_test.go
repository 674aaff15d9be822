package replay

import (
	"math"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// The learned saving of loading blocks from host memory is accurate within .1, on machines where
// loading saves 84% to 98% of the prefill time.
func TestLoadsAreLearned(t *testing.T) {
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	for name, rate := range map[string]float64{"70b": 5, "8b": 14, "235b": 10} {
		m, ok := engine.MachineByName(name)
		if !ok {
			t.Fatal("no", name)
		}
		blocks := m.KVTokens / 4 / matrixBlock
		c := Case{Policy: policy(t, Default), Trace: w.Generate(trace.GenerateOptions{Rate: rate, Seed: 1, Requests: 2000})}
		c.Engine = engine.Config{Model: m.Model, Blocks: blocks, MaxSeqs: 1024, AdmitWhole: true, Host: engine.Host{Blocks: 4 * blocks, Load: m.Load}}
		s := played(t, c)
		got, want := s.replicas[0].pool.Loads().Or(cycle.DefaultTiers[block.TierCPU]), 1-m.Load.Token/m.Model.B
		t.Logf("%s: %.3f, truth %.3f", name, got, want)
		if math.Abs(got-want) > .1 {
			t.Errorf("%s: %.3f of the prefill is saved by loading, want %.3f", name, got, want)
		}
	}
}
