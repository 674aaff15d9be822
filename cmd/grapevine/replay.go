package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/sim/engine"
	"github.com/grapevine-epp/grapevine/internal/sim/replay"
)

// replayFlags are the command line of replay.
type replayFlags struct {
	traces, workloads, policies []string
	saturation                  []string
	loads                       []float64
	rates                       []float64
	engines, blocks, replicas   []int
	share                       []string
	seeds                       []uint
	length, spread              time.Duration
	speed, warmup               float64
	transform, index, model     string
	indexDelay, speculate       time.Duration
	longPrefill, workers        int
	findSaturation              string
	bodies                      float64

	csv, json, html, plots, format string
	quiet                          bool
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Play request traces against simulated engines, to compare policies",
		Long: `Replay plays request traces through the picker's own code against simulated engines
in virtual time, and tells how each policy would have done. All lists are combined:
workloads, loads, fleets, policies and seeds. Equal arguments give equal results.

Traces are JSON lines of timestamp (ms), input_length, output_length, hash_ids (one
id for each 512 tokens of the prompt; an id stands for the whole prefix) and,
optionally, session_id. A load is a share of the rate at which the engines saturate:
known for built-in workloads and the public traces, given by --saturation for others.
More load means more users: copies of sessions with blocks of their own.`,
		Example: `  grapevine replay --workload agentic --load 0.6,0.85,1 --policy default,unified,lmetric
  grapevine replay --trace conversation=conversation_trace.jsonl --load 0.85 --seeds 1,2,3 --html report.html
  grapevine replay --workload chat --load 0.85 --replicas 1,3 --share 50ms,1s,cut`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd)
	return cmd
}

func (f *replayFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.traces, "trace", nil, "trace file, as PATH or NAME=PATH; may be repeated")
	fl.StringSliceVar(&f.workloads, "workload", nil, "generated workload: agentic, coder, chat, documents, mixed; may be repeated")
	fl.StringSliceVar(&f.policies, "policy", nil, "policies to compare (default: all built-in ones)")
	fl.Float64SliceVar(&f.loads, "load", nil, "loads, as shares of saturation (default 0.85)")
	fl.Float64SliceVar(&f.rates, "rate", nil, "loads, as requests per second for each engine, instead of --load")
	fl.StringSliceVar(&f.saturation, "saturation", nil, "requests per second for each engine that count as load 1, as NAME=RATE")
	fl.IntSliceVar(&f.engines, "engines", []int{8}, "engines")
	fl.IntSliceVar(&f.blocks, "blocks", []int{4000}, "blocks of KV cache in each engine")
	fl.IntSliceVar(&f.replicas, "replicas", []int{1}, "picker replicas")
	fl.StringSliceVar(&f.share, "share", []string{"50ms"}, "delay of what replicas tell each other, or cut")
	fl.UintSliceVar(&f.seeds, "seeds", []uint{1}, "seeds; figures are means over them")
	fl.DurationVar(&f.length, "length", 0, "length of generated workloads (1h), and limit for traces (all)")
	fl.DurationVar(&f.spread, "spread", 0, "tick over which rounded arrivals are spread (default: found out; negative: none)")
	fl.Float64Var(&f.speed, "speed", 1, "factor by which a trace's clock runs faster")
	fl.Float64Var(&f.warmup, "warmup", .2, "share of the time at the beginning that is not measured")
	fl.StringVar(&f.transform, "transform", "", "capped: keep the first 8 turns of each session; capped=N: the first N")
	fl.StringVar(&f.index, "index", "precise", "what replicas know of caches: precise or approximate")
	fl.DurationVar(&f.indexDelay, "index-delay", 10*time.Millisecond, "age of cache events when they are known")
	fl.DurationVar(&f.speculate, "speculate", time.Minute, "how long a decision counts as cached before events could have confirmed it, 0 for not at all")
	fl.StringVar(&f.model, "model", "70b", "engine constants: 70b or 8b")
	fl.IntVar(&f.longPrefill, "long-prefill-token-threshold", 0, "largest piece of one prompt in an engine's step, 0 for none")
	fl.Float64Var(&f.bodies, "bodies", 1, "share of responses whose tokens the replicas see")
	fl.StringVar(&f.findSaturation, "find-saturation", "", "only find the saturation of each workload under this policy")
	fl.IntVar(&f.workers, "workers", runtime.NumCPU(), "runs at a time")
	fl.StringVar(&f.csv, "csv", "", "write one line for every run to this file")
	fl.StringVar(&f.json, "json", "", "write results as JSON to this file, - for standard output")
	fl.StringVar(&f.html, "html", "", "write one self-contained page to this file")
	fl.StringVar(&f.plots, "plots", "", "write plots to this folder")
	fl.StringVar(&f.format, "plot-format", "svg", "svg or png")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar")
}

func (f *replayFlags) run(ctx context.Context, out, errOut io.Writer) error {
	g, err := f.grid()
	if f.format != "svg" && f.format != "png" {
		err = errors.Join(err, fmt.Errorf("--plot-format %q: want svg or png", f.format))
	}
	if err != nil {
		return usageError{err}
	}
	if f.findSaturation != "" {
		return f.find(ctx, g, out)
	}
	bar := newProgress(errOut, f.quiet)
	rows, err := replay.Sweep(ctx, g, f.workers, bar.show)
	bar.end()
	if err != nil {
		return err
	}
	return f.write(rows, g.Seeds, out)
}

func (f *replayFlags) grid() (replay.Grid, error) {
	g := replay.Grid{Loads: f.loads, Endpoints: f.engines, Blocks: f.blocks, Replicas: f.replicas, Warmup: f.warmup}
	for _, s := range f.seeds {
		g.Seeds = append(g.Seeds, uint64(s))
	}
	if err := errors.Join(f.addSources(&g), f.addPolicies(&g), f.addShares(&g), f.base(&g.Base)); err != nil {
		return g, err
	}
	if len(f.rates) > 0 {
		g.Loads = f.rates
		for i := range g.Sources {
			g.Sources[i].Saturation = 1
		}
	}
	if len(g.Loads) == 0 {
		g.Loads = []float64{.85}
	}
	for _, s := range g.Sources {
		if s.Saturation == 0 && f.findSaturation == "" {
			return g, fmt.Errorf("--saturation %s=RATE or --rate is needed: the saturation of %s is not known", s.Name, s.Name)
		}
	}
	return g, nil
}

// publicSaturation are the saturations of the public traces by name: requests
// per second for each engine with the default constants.
var publicSaturation = map[string]float64{"conversation": .74, "synthetic": .90, "toolagent": 1.53}

func (f *replayFlags) addSources(g *replay.Grid) error {
	known := map[string]float64{}
	for name, rate := range publicSaturation {
		known[name] = rate
	}
	for _, s := range f.saturation {
		name, value, _ := strings.Cut(s, "=")
		rate, err := strconv.ParseFloat(value, 64)
		if err != nil || rate <= 0 {
			return fmt.Errorf("--saturation %q: want NAME=RATE", s)
		}
		known[name] = rate
	}
	capped, err := parseTransform(f.transform)
	if err != nil {
		return err
	}
	for _, spec := range f.traces {
		name, path, named := strings.Cut(spec, "=")
		if !named {
			path = spec
			name = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), "_trace")
		}
		t, err := replay.OpenTrace(path, replay.ReadOptions{Name: name, Spread: f.spread})
		if err != nil {
			return err
		}
		g.Sources = append(g.Sources, replay.TraceSource(t, known[name], capped, replay.ScaleOptions{Speed: f.speed, Duration: f.length}))
	}
	for _, name := range f.workloads {
		w, err := replay.WorkloadByName(name)
		if err != nil {
			return err
		}
		s := replay.WorkloadSource(w, replay.GenerateOptions{Length: f.length})
		if rate := known[name]; rate > 0 {
			s.Saturation = rate
		}
		g.Sources = append(g.Sources, s)
	}
	if len(g.Sources) == 0 {
		return errors.New("--trace or --workload is needed")
	}
	return nil
}

// parseTransform returns the number of turns that each session keeps, 0: all.
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

func (f *replayFlags) addPolicies(g *replay.Grid) error {
	if len(f.policies) == 0 {
		g.Policies = replay.Policies()
	}
	for _, name := range f.policies {
		p, err := replay.PolicyByName(name)
		if err != nil {
			return err
		}
		g.Policies = append(g.Policies, p)
	}
	return nil
}

func (f *replayFlags) addShares(g *replay.Grid) error {
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
	c.IndexDelay, c.Bodies = f.indexDelay, f.bodies
	if f.indexDelay == 0 {
		c.IndexDelay = -1
	}
	if c.Speculate = f.speculate; c.Speculate == 0 {
		c.Speculate = -1
	}
	c.Engine.LongPrefillThreshold = f.longPrefill
	switch f.index {
	case "precise":
	case "approximate":
		c.Index = replay.Approximate
	default:
		return fmt.Errorf("--index %q: want precise or approximate", f.index)
	}
	switch strings.ToLower(f.model) {
	case "70b":
		c.Engine.Model = engine.Model70B
	case "8b":
		c.Engine.Model = engine.Model8B
	default:
		return fmt.Errorf("--model %q: want 70b or 8b", f.model)
	}
	return nil
}

func (f *replayFlags) find(ctx context.Context, g replay.Grid, out io.Writer) error {
	p, err := replay.PolicyByName(f.findSaturation)
	if err != nil {
		return usageError{err}
	}
	for _, s := range g.Sources {
		c := g.Base
		c.Policy, c.Seed, c.Endpoints, c.Engine.Blocks = p, g.Seeds[0], g.Endpoints[0], g.Blocks[0]
		rate, err := replay.Saturation(ctx, c, s)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s=%.3f\n", s.Name, rate)
	}
	return nil
}

func (f *replayFlags) write(rows []replay.Row, seeds []uint64, out io.Writer) error {
	files := []struct {
		path  string
		write func(io.Writer) error
	}{
		{f.csv, func(w io.Writer) error { return replay.WriteCSV(w, rows, seeds) }},
		{f.json, func(w io.Writer) error { return replay.WriteJSON(w, rows, seeds) }},
		{f.html, func(w io.Writer) error { return replay.WriteHTML(w, rows, seeds) }},
	}
	for _, file := range files {
		if err := writeTo(file.path, out, file.write); err != nil {
			return err
		}
	}
	if err := f.draw(rows); err != nil {
		return err
	}
	if f.json == "-" || f.csv == "-" || f.html == "-" {
		return nil
	}
	return replay.WriteTable(out, rows)
}

// draw writes one file for each plot.
func (f *replayFlags) draw(rows []replay.Row) error {
	if f.plots == "" {
		return nil
	}
	if err := os.MkdirAll(f.plots, 0o755); err != nil {
		return err
	}
	for _, key := range replay.PlotFigures {
		figure, _ := replay.FigureByKey(key)
		plots, err := replay.Plots(rows, figure)
		if err != nil {
			return err
		}
		for _, p := range plots {
			path := filepath.Join(f.plots, p.Name+"."+f.format)
			if err := writeTo(path, nil, func(w io.Writer) error { return p.Write(w, f.format) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTo calls write with a new file, or with out for "-".
func writeTo(path string, out io.Writer, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case "-":
		return write(out)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
