package replay

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// distinct returns prompts that share nothing, at fixed intervals.
func distinct(rate float64, requests, input, output int) *trace.Trace {
	every := time.Duration(float64(time.Second) / rate)
	t := &trace.Trace{Name: "distinct", BlockSize: 16, Sessions: requests, Length: time.Duration(requests) * every}
	for i := range requests {
		r := trace.Request{At: time.Duration(i) * every, Input: input, Output: output, Session: int32(i)}
		for range input / t.BlockSize {
			r.Blocks = append(r.Blocks, trace.Block(t.Blocks))
			t.Blocks++
		}
		t.Requests = append(t.Requests, r)
	}
	return t
}

// unequal returns three engines that prefill one prompt at a time, at 4,000, 2,000 and 1,000 tokens
// per second.
func unequal(t *testing.T, rate float64, output int) Case {
	return Case{
		Trace: distinct(rate, int(60*rate), 1000, output), Policy: policy(t, Default), Endpoints: 3, Slow: []float64{1, 2, 4},
		Engine: engine.Config{Blocks: 20_000, MaxBatchTokens: 1024, Model: engine.Model{A: 5, B: 240, C: 50, D: 35}},
		Warmup: 20 * time.Second, Gauges: time.Second,
	}
}

// TestWholeAnswers checks that engines of unequal speed are used as well with answers that are not
// streamed, whether or not the engines report histograms.
func TestWholeAnswers(t *testing.T) {
	for _, histograms := range []bool{true, false} {
		for _, rate := range []float64{3, 5, 6} {
			streamed := run(t, unequal(t, rate, 8))
			c := unequal(t, rate, 8)
			c.Whole, c.Histograms = true, histograms
			r := run(t, c)
			t.Logf("%g requests/s, histograms %v: end of answer mean %.3f s, p90 %.3f s; streamed %.3f and %.3f s",
				rate, histograms, r.E2E.Mean, r.E2E.P90, streamed.E2E.Mean, streamed.E2E.P90)
			if r.E2E.Mean > 1.25*streamed.E2E.Mean {
				t.Errorf("%g requests/s, histograms %v: mean %.3f s, want at most 1.25 times %.3f s", rate, histograms, r.E2E.Mean, streamed.E2E.Mean)
			}
			if histograms && r.E2E.P90 > 1.25*streamed.E2E.P90 {
				t.Errorf("%g requests/s: p90 %.3f s, want at most 1.25 times %.3f s", rate, r.E2E.P90, streamed.E2E.P90)
			}
		}
	}
}
