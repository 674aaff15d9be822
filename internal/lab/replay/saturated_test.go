package replay

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// Engines of two speeds, short of memory, at the rate at which they saturate: the
// default policy once moved sessions there for waits that a fleet without caches
// would have had as well, and was four times as late as a policy that stays.
func TestSaturatedChat(t *testing.T) {
	w, _ := trace.Named("chat")
	for _, f := range Forms() {
		if f.Fleet.Name != "noisy" {
			continue
		}
		for _, seed := range []uint64{902, 903} {
			late := func(name string) float64 {
				p, err := PolicyByName(name)
				if err != nil {
					t.Fatal(err)
				}
				c := Case{Engine: f.Engine, Policy: p, Seed: seed, Trace: w.Generate(trace.GenerateOptions{Rate: 5.55, Seed: seed, Requests: 2000})}
				f.Fleet.Apply(&c)
				c.Warmup = c.Trace.Length / 5
				r, err := Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				return r.TTFT.P90
			}
			if ours, theirs := late(Default), late("unified"); ours > 1.5*theirs {
				t.Errorf("seed %d: p90 %.1f s, unified %.1f s", seed, ours, theirs)
			}
		}
		return
	}
	t.Error("no such fleet")
}

// Chats on mixtures of experts below saturation: long contexts gather at engines where few
// decode, and while what requests add to others' steps had a price as well, p90 was 1.15
// times that of a policy that stays.
func TestContextsGatherLess(t *testing.T) {
	w, _ := trace.Named("chat")
	f := Forms()[1]
	late := func(name string) (sum float64) {
		p, err := PolicyByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, seed := range []uint64{951, 952} {
			c := Case{Engine: f.Engine, Policy: p, Seed: seed, Trace: w.Generate(trace.GenerateOptions{Rate: 13.72, Seed: seed, Requests: 2000})}
			f.Fleet.Apply(&c)
			c.Warmup = c.Trace.Length / 5
			r, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			sum += r.TTFT.P90
		}
		return sum
	}
	ours, theirs := late(Default), late("unified")
	t.Logf("p90 %.2f times unified's", ours/theirs)
	if ours > 1.05*theirs {
		t.Errorf("p90 %.2f s, unified %.2f s, in the sum over seeds", ours, theirs)
	}
}
