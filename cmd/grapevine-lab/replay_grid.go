package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// aboutGrid describes the replayed cases.
type aboutGrid struct {
	lines []string // description
	notes []string // warnings
	rate  float64  // requests per second of the last trace, as recorded
}

// grid reads traces and configurations. Errors in files are not UsageErrors.
func (f *replayFlags) grid() (g sweep.Grid, about aboutGrid, err error) {
	g = sweep.Grid{Loads: f.loads, Blocks: f.blocks, Replicas: f.replicas, Warmup: f.warmup}
	for _, s := range f.seeds {
		g.Seeds = append(g.Seeds, uint64(s))
	}
	if len(g.Blocks) == 0 {
		machine, _ := engine.MachineByName(f.model)
		g.Blocks = []int{max(machine.KVTokens/f.blockSize, 1)}
	}
	if len(g.Loads) == 0 {
		g.Loads = []float64{usualLoad}
	}
	if len(f.rates) > 0 {
		g.Loads = f.rates
	}
	if err := errors.Join(f.addFleets(&g), f.addShares(&g), f.base(&g.Base)); err != nil {
		return g, about, cli.UsageError{Err: err}
	}
	if err := f.readProfile(&g, &about); err != nil {
		return g, about, err
	}
	if err := f.addPolicies(&g, &about); err != nil {
		return g, about, err
	}
	err = f.addSources(&g, &about)
	return g, about, err
}

func (f *replayFlags) addSources(g *sweep.Grid, about *aboutGrid) error {
	given, err := f.saturations()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	capped, err := parseTransform(f.transform)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	for _, name := range f.workloads {
		if w, err := trace.RunsByName(name); err == nil {
			if err := f.checkRuns(name, given); err != nil {
				return cli.UsageError{Err: err}
			}
			g.Sources = append(g.Sources, sweep.RunsSource(w, trace.GenerateOptions{Length: f.length, BlockSize: f.blockSize}))
			continue
		}
		w, err := trace.Named(name)
		if err != nil {
			return cli.UsageError{Err: err}
		}
		g.Sources = append(g.Sources, sweep.WorkloadSource(w, capped, trace.GenerateOptions{Length: f.length, Requests: f.requests, Speed: f.speed, BlockSize: f.blockSize}))
	}
	o := trace.ScaleOptions{Speed: f.speed, Duration: f.length}
	shared, err := parseShared(f.system)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	for _, spec := range f.traces {
		name, path := named(spec)
		t, err := trace.Open(path, trace.ReadOptions{Name: name, Spread: f.spread, BlockSize: f.blockSize, Begin: f.begin, Length: f.length, Shared: shared})
		if err != nil {
			return err
		}
		about.trace(t)
		about.rate = t.Rate() * f.speed
		if f.ownLoad {
			g.Sources = append(g.Sources, sweep.OwnSource(t, capped, o))
		} else {
			g.Sources = append(g.Sources, sweep.TraceSource(t, 0, capped, o))
		}
	}
	return f.saturate(g, given)
}

// checkRuns reports flags that have no effect on generated agent runs. Their saturation depends on
// the policy, so it is not searched.
func (f *replayFlags) checkRuns(name string, given map[string]float64) error {
	for _, flag := range []string{"speed", "transform", "requests", "size", "find-saturation", "matrix"} {
		if f.given(flag) {
			return fmt.Errorf("--%s has no effect on --workload %s, whose requests depend on each other", flag, name)
		}
	}
	if len(f.rates) == 0 && given[name] == 0 {
		return fmt.Errorf("--workload %s requires --rate or --saturation", name)
	}
	return nil
}

// parseShared reads NxTOKENS.
func parseShared(s string) (trace.Shared, error) {
	var out trace.Shared
	if s == "" {
		return out, nil
	}
	n, tokens, _ := strings.Cut(s, "x")
	var errs [2]error
	out.Prompts, errs[0] = strconv.Atoi(n)
	out.Tokens, errs[1] = strconv.Atoi(tokens)
	if errors.Join(errs[:]...) != nil || out.Prompts < 1 || out.Tokens < 1 {
		return out, fmt.Errorf("--system-prompts %q: want NxTOKENS, such as 20x1500", s)
	}
	return out, nil
}

// named splits NAME=PATH. The name is empty if there is none.
func named(spec string) (name, path string) {
	if name, path, ok := strings.Cut(spec, "="); ok {
		return name, path
	}
	return "", spec
}

func (f *replayFlags) saturations() (map[string]float64, error) {
	out := map[string]float64{}
	for _, s := range f.saturation {
		name, value, _ := strings.Cut(s, "=")
		rate, err := strconv.ParseFloat(value, 64)
		if err != nil || !(rate > 0 && rate <= 1000) {
			return nil, fmt.Errorf("--saturation %q: want NAME=RATE", s)
		}
		out[name] = rate
	}
	return out, nil
}

// saturate sets the rate that is load 1 for each source, as far as the command line gives it. The
// rest is found by search.
func (f *replayFlags) saturate(g *sweep.Grid, given map[string]float64) error {
	seen := map[string]bool{}
	for i := range g.Sources {
		s := &g.Sources[i]
		rate, ok := given[s.Name]
		switch {
		case seen[s.Name]:
			return cli.UsageError{Err: fmt.Errorf("duplicate workload name %s: name traces with NAME=PATH", s.Name)}
		case len(f.rates) > 0:
			s.Saturation = 1
		case ok:
			s.Saturation = rate
		}
		seen[s.Name] = true
	}
	for name := range given {
		if !seen[name] {
			return cli.UsageError{Err: fmt.Errorf("--saturation %s has no effect: no workload has that name", name)}
		}
	}
	return nil
}

// parseTransform returns the number of turns kept of each session; 0 keeps all.
func parseTransform(s string) (int, error) {
	const usual = 8
	name, value, has := strings.Cut(s, "=")
	switch {
	case s == "":
		return 0, nil
	case name == "capped" && !has:
		return usual, nil
	case name == "capped":
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("--transform %q: want capped or capped=N", s)
}

func (f *replayFlags) addPolicies(g *sweep.Grid, about *aboutGrid) error {
	if len(f.policies) == 0 {
		g.Policies = replay.Policies()
	}
	for _, spec := range f.policies {
		p, err := policyOf(spec)
		if err != nil {
			return err
		}
		about.notes = append(about.notes, p.Notes...)
		for i := range g.Policies {
			if g.Policies[i].Name == p.Name {
				return cli.UsageError{Err: fmt.Errorf("duplicate policy name %s: name files with NAME=PATH", p.Name)}
			}
		}
		g.Policies = append(g.Policies, p)
	}
	return nil
}

// policyOf returns a built-in policy or the policy of a file.
func policyOf(spec string) (replay.Policy, error) {
	name, path := named(spec)
	if strings.Contains(name, ":") { // a built-in policy with parameters
		name, path = "", spec
	}
	if name == "" && !replay.IsFile(path) {
		p, err := replay.PolicyByName(spec)
		if err != nil {
			return p, cli.UsageError{Err: fmt.Errorf("%w, or a file such as epp.yaml", err)}
		}
		return p, nil
	}
	p, err := replay.FilePolicy(path)
	if name != "" {
		p.Name = name
	}
	return p, err
}

func (f *replayFlags) addFleets(g *sweep.Grid) error {
	for _, s := range f.engines {
		fleet, err := replay.ParseFleet(s)
		if err != nil {
			return fmt.Errorf("--engines: %w", err)
		}
		g.Fleets = append(g.Fleets, fleet)
	}
	return nil
}

func (f *replayFlags) addShares(g *sweep.Grid) error {
	for _, s := range f.share {
		if s == "cut" {
			g.Share = append(g.Share, replay.Cut)
			continue
		}
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("--share %q: want a duration or cut", s)
		}
		g.Share = append(g.Share, d)
	}
	return nil
}

func (f *replayFlags) base(c *replay.Case) error {
	c.IndexDelay, c.Speculate, c.Bodies = orNone(f.indexDelay), orNone(f.speculate), orNone(f.bodies)
	c.Engine.LongPrefillThreshold, c.Urgency = f.longPrefill, f.urgency
	switch f.index {
	case "precise":
	case "approximate":
		c.Index = replay.Approximate
	default:
		return fmt.Errorf("--index %q: want precise or approximate", f.index)
	}
	for _, s := range f.changes {
		change, err := replay.ParseChange(s)
		if err != nil {
			return fmt.Errorf("--change: %w", err)
		}
		c.Changes = append(c.Changes, change)
	}
	machine, ok := engine.MachineByName(f.model)
	if !ok {
		return fmt.Errorf("--model %q: want one of %s", f.model, machineNames())
	}
	c.Engine.Model, c.Engine.MaxSeqs, c.Engine.MaxBatchTokens, c.Engine.AdmitWhole = machine.Model, f.maxSeqs, f.batchTokens, true
	c.Network = replay.Network{BytesPerToken: machine.KVBytes, BytesPerSecond: f.bandwidth * 1e9, Latency: f.kvTransfer}
	c.Engine.Host = engine.Host{Blocks: f.hostBlocks, Load: machine.Load}
	return nil
}

func machineNames() string {
	var names []string
	for _, m := range engine.Machines {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// orNone converts v for replay.Case, where 0 stands for the default.
func orNone[T time.Duration | float64](v T) T {
	if v == 0 {
		return -1
	}
	return v
}
