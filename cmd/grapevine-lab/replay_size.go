package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sizing"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// Defaults of --size.
var sizeSeeds = []uint{1, 2, 3}

const mostEngines = 512

// defaultSize fills in the defaults of --size.
func (f *replayFlags) defaultSize() {
	if len(f.size) == 0 {
		return
	}
	if len(f.policies) == 0 {
		f.policies = []string{replay.Default}
	}
	if !f.given("engines") {
		f.engines = []string{"1"}
	}
	if !f.given("seeds") {
		f.seeds = sizeSeeds
	}
	f.ownLoad = f.ownLoad || len(f.traces) > 0 && len(f.rates) == 0 && f.growth == 1
}

// checkSize reports values that --size does not accept.
func (f *replayFlags) checkSize() error {
	if len(f.size) == 0 {
		return nil
	}
	var errs []error
	need := func(ok bool, format string, a ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	for _, s := range f.size {
		_, err := sizing.ParseTarget(s)
		need(err == nil, "--size: %w", err)
	}
	need(len(f.traces)+len(f.workloads) == 1, "--size requires a single --trace or --workload")
	need(len(f.workloads) == 0 || len(f.rates) == 1, "--size requires --rate with a generated workload: requests per second over all engines")
	need(len(f.rates) <= 1, "--size requires a single --rate: requests per second over all engines")
	need(len(f.policies) == 1, "--size requires a single --policy")
	need(len(f.engines) == 1 && len(f.blocks) <= 1 && len(f.replicas) == 1 && len(f.share) == 1, "--size requires single values of --engines, --blocks, --replicas and --share")
	need(f.growth > 0 && f.growth <= 1000, "--growth %g: want more than 0, at most 1000", f.growth)
	need(f.mostEngines >= 1 && f.mostEngines <= 4096, "--most-engines %d: want 1 to 4096", f.mostEngines)
	return errors.Join(errs...)
}

// sizeRules are the flags without effect on, or without, --size.
func (f *replayFlags) sizeRules() []idle {
	var rules []idle
	for _, flag := range []string{"growth", "most-engines"} {
		rules = append(rules, idle{flag, len(f.size) == 0, "it requires --size"})
	}
	rules = append(rules, idle{"load", len(f.size) > 0, "--size plays the recorded load; --growth 1.5 plays half as much again"})
	for _, flag := range []string{"saturation", "find-saturation", "suggest-roles", "transform", "change", "matrix", "csv", "html", "plots", "plot-format"} {
		rules = append(rules, idle{flag, len(f.size) > 0, "--size searches a number of engines"})
	}
	return append(rules,
		idle{"growth", len(f.rates) > 0, "--rate sets the load"},
		idle{"growth", len(f.workloads) > 0, "a generated workload has no recorded load"},
		idle{"own-load", len(f.size) > 0 && f.growth != 1, "--growth changes the load"},
	)
}

// readProfile replaces the engines of --model by learned ones.
func (f *replayFlags) readProfile(g *sweep.Grid, about *aboutGrid) error {
	if f.profile == "" {
		return nil
	}
	p, err := sizing.ReadProfile(f.profile)
	if err != nil {
		return err
	}
	g.Base.Engine.Model = p.Model
	if p.Tokens > 0 && len(f.blocks) == 0 {
		g.Blocks = []int{max(p.Tokens/f.blockSize, 1)}
	} else if p.Tokens == 0 {
		about.notes = append(about.notes, fmt.Sprintf("%s: no engine reported its KV memory; %d blocks are assumed (--blocks)", f.profile, g.Blocks[0]))
	}
	if p.Slots > 0 && !f.given("max-num-seqs") {
		g.Base.Engine.MaxSeqs = p.Slots
	}
	return nil
}

// findSize prints the smallest number of engines that meets the targets.
func (f *replayFlags) findSize(ctx context.Context, g sweep.Grid, about aboutGrid, out, errOut io.Writer) error {
	q := sizing.Question{Source: g.Sources[0], Unit: g.Fleets[0], Seeds: g.Seeds, Base: g.Base, Warmup: g.Warmup, Workers: f.workers}
	q.Most = max(f.mostEngines/len(q.Unit.Kinds), 1)
	q.Base.Policy, q.Base.Engine.Blocks, q.Base.Replicas, q.Base.Share = g.Policies[0], g.Blocks[0], g.Replicas[0], g.Share[0]
	for _, s := range f.size {
		t, _ := sizing.ParseTarget(s) // checked before
		q.Targets = append(q.Targets, t)
	}
	switch {
	case len(f.rates) > 0:
		q.Rate = f.rates[0]
	case q.Source.Own > 0:
		q.Rate = q.Source.Own
	default:
		q.Rate = f.growth * about.rate
	}
	bar := newProgress(errOut, f.quiet)
	tried := 0
	q.Tried = func(sizing.Size) { tried++; bar.show(float64(tried), max(tried+1, 8)) }
	a, err := sizing.Find(ctx, q)
	bar.end()
	if err != nil {
		return err
	}
	if f.json != "" {
		return writeTo(f.json, out, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(a)
		})
	}
	return a.Write(out)
}
