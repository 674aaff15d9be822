package replay

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// TestLateReports checks that load reports that arrive after a second do no harm: replicas place
// requests no worse than without sharing, or than with reports after 50 ms.
func TestLateReports(t *testing.T) {
	m, _ := engine.MachineByName("70b")
	for _, load := range []struct {
		name string
		rate float64
	}{{"agentic", 3}, {"fanout", 3}} {
		w, err := trace.Named(load.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, replicas := range []int{3, 9} {
			var p90 [3]float64
			for _, seed := range []uint64{41, 42, 43} {
				for i, share := range []time.Duration{50 * time.Millisecond, time.Second, Cut} {
					tr := w.Generate(trace.GenerateOptions{Rate: load.rate, Length: 5 * time.Minute, Seed: seed})
					r := run(t, Case{
						Trace: tr, Policy: policy(t, Default), Endpoints: 8, Replicas: replicas, Share: share, Seed: seed, Warmup: time.Minute,
						Engine: engine.Config{Blocks: m.KVTokens / tr.BlockSize, Model: m.Model},
					})
					p90[i] += r.TTFT.P90 / 3
				}
			}
			t.Logf("%s, %d replicas: p90 %.3f s at 50 ms, %.3f s at 1 s, %.3f s without sharing", load.name, replicas, p90[0], p90[1], p90[2])
			if most := max(p90[0], p90[2]); p90[1] > 1.03*most {
				t.Errorf("%s, %d replicas: p90 %.3f s with reports after 1 s, want at most 1.03 times %.3f s", load.name, replicas, p90[1], most)
			}
		}
	}
}
