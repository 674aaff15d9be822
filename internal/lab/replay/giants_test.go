package replay

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// giants returns chats, and prompts of 150,000 to 350,000 tokens at even intervals.
func giants(rate float64, every, length time.Duration, seed uint64) *trace.Trace {
	rng := rand.New(rand.NewPCG(seed, 9))
	t := &trace.Trace{Name: "giants", BlockSize: 256, Length: length}
	add := func(at time.Duration, input, output int) {
		r := trace.Request{At: at, Input: input, Output: output, Session: int32(t.Sessions)}
		t.Sessions++
		for range input / t.BlockSize {
			r.Blocks = append(r.Blocks, trace.Block(t.Blocks))
			t.Blocks++
		}
		t.Requests = append(t.Requests, r)
	}
	for at := time.Duration(0); at < length; at += time.Duration(rng.ExpFloat64() / rate * 1e9) {
		add(at, 200+rng.IntN(2000), 300+rng.IntN(400))
	}
	for at := every / 2; at < length; at += every {
		add(at, 150_000+rng.IntN(200_000), 200)
	}
	slices.SortFunc(t.Requests, func(a, b trace.Request) int { return int(a.At - b.At) })
	return t
}

// TestGiants checks that long prompts do not queue behind each other while other engines have no
// queue, although all engines decode.
func TestGiants(t *testing.T) {
	m, _ := engine.MachineByName("70b")
	for _, seed := range []uint64{61, 62} {
		c := Case{
			Trace: giants(28, 25*time.Second, 10*time.Minute, seed), Policy: policy(t, Default), Endpoints: 8, Seed: seed, Warmup: time.Minute,
			Engine: engine.Config{Blocks: m.KVTokens / 256, Model: m.Model},
		}
		s := played(t, c)
		r := s.result()
		var first []float64
		for i := range s.outcomes {
			if q := &c.Trace.Requests[i]; q.Input > 100_000 && q.At > c.Warmup {
				first = append(first, (s.outcomes[i].First - q.At).Seconds())
			}
		}
		g := summarise(first)
		if g.P90 > 120 || r.TTFT.P99 > .5 {
			t.Errorf("seed %d: p90 of long prompts %.0f s, p99 of all %.3f s, want at most 120 and 0.5 s", seed, g.P90, r.TTFT.P99)
		}
		t.Logf("seed %d: long prompts p50 %.0f s, p90 %.0f s; all p50 %.3f, p90 %.3f s, p99 %.3f s, %.1f ms per token", seed, g.P50, g.P90, r.TTFT.P50, r.TTFT.P90, r.TTFT.P99, 1e3*r.TPOT.Mean)
	}
}
