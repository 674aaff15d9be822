package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	traces, workloads, policies []string
	saturation                  []string
	loads                       []float64
	rates                       []float64
	ownLoad, findSaturation     bool
	engines, share              []string
	blocks, replicas            []int
	seeds                       []uint
	length, spread              time.Duration
	speed, warmup               float64
	transform, index, model     string
	indexDelay, speculate       time.Duration
	longPrefill, workers        int
	blockSize, requests         int
	begin                       time.Duration
	system                      string
	maxSeqs, batchTokens        int
	urgency                     float64
	hostBlocks                  int
	changes                     []string
	bandwidth                   float64
	kvTransfer                  time.Duration
	suggestRoles                bool
	size                        []string
	growth                      float64
	mostEngines                 int
	profile                     string
	bodies                      float64

	csv, json, html, plots, format string
	output                         string
	matrix                         string
	quiet                          bool

	given func(flag string) bool // on the command line
}

// Defaults that depend on other flags.
const usualLoad = .85

func (f *replayFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	f.given = fl.Changed
	f.registerLoad(fl)
	f.registerFleet(fl)
	fl.StringSliceVar(&f.size, "size", nil, "search the smallest number of engines that meets these `TARGETS`: p90=2s for the first token, per-token-p90=60ms, end-to-end-p99=30s; --engines is then the unit that is multiplied (default 1)")
	fl.Float64Var(&f.growth, "growth", 1, "with --size and a trace: `FACTOR` by which the number of users differs from the recorded one")
	fl.IntVar(&f.mostEngines, "most-engines", mostEngines, "with --size: largest number of engines to try")
	fl.StringVar(&f.csv, "csv", "", "write one line for every run to this `FILE`, - for standard output")
	fl.StringVar(&f.json, "json", "", "write results as JSON to this `FILE`, - for standard output")
	fl.StringVarP(&f.output, "output", "o", "table", "output `FORMAT`: table, or json for --json -")
	fl.StringVar(&f.html, "html", "", "write one self-contained page to this `FILE`, - for standard output")
	fl.StringVar(&f.plots, "plots", "", "write plots to this `FOLDER`")
	fl.StringVar(&f.format, "plot-format", "svg", "with --plots: svg or png")
	fl.StringVar(&f.matrix, "matrix", "", "play the fixed matrix of loads, engines, replicas and seeds, with the traces given, into this `FILE` of CSV lines; go on from what it has, and compare the default policy with the others")
	fl.IntVar(&f.workers, "workers", runtime.NumCPU(), "number of parallel runs")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar (never shown without a terminal)")
	fl.Lookup("load").DefValue, fl.Lookup("rate").DefValue = "", "" // described in the help text
}

func (f *replayFlags) registerLoad(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.traces, "trace", nil, "trace `FILE`, as PATH or NAME=PATH; may be repeated")
	fl.StringSliceVar(&f.workloads, "workload", nil, "generated workload `NAME`: "+strings.Join(trace.Names(), ", ")+"; or agent runs whose turns follow their answers: "+strings.Join(trace.RunNames(), ", ")+"; may be repeated")
	fl.StringSliceVar(&f.policies, "policy", nil, "policies to compare, by `NAME`, or files as PATH or NAME=PATH (default: all built-in ones)")
	fl.Float64SliceVar(&f.loads, "load", nil, "loads, as `FRACTIONS` of saturation (default 0.85)")
	fl.Float64SliceVar(&f.rates, "rate", nil, "instead of --load: `RATES`, requests per second for each engine; with --size over all engines")
	fl.BoolVar(&f.ownLoad, "own-load", false, "instead of --load: replay traces unchanged, every request once and at its time")
	fl.StringSliceVar(&f.saturation, "saturation", nil, "`NAME=RATE`: requests per second for each engine that count as load 1 (default: found by search, the better of load_only and unified)")
	fl.BoolVar(&f.findSaturation, "find-saturation", false, "only find the saturation of each workload under one --policy, for --saturation")
	fl.UintSliceVar(&f.seeds, "seeds", []uint{1}, "seeds for users and ties; figures are averages over all seeds")
	fl.DurationVar(&f.length, "length", 0, "length of generated workloads (default 1h), and limit for traces (default: all)")
	fl.IntVar(&f.requests, "requests", 0, "instead of --length: length of generated workloads in `REQUESTS`, at least five sessions")
	fl.Float64Var(&f.warmup, "warmup", .2, "fraction of the time at the beginning that is not measured")
	fl.Float64Var(&f.speed, "speed", 1, "speed-up of the users' clocks; with --own-load the load increases, otherwise there are fewer users")
	fl.StringVar(&f.transform, "transform", "", "capped: keep the first 8 turns of each session; capped=N: the first N; the rate decreases in proportion")
	fl.DurationVar(&f.spread, "spread", 0, "interval over which rounded arrival times of traces are spread (default: detected; negative: none)")
	fl.IntVar(&f.blockSize, "block-size", trace.DefaultBlockSize, "prompt tokens per hash id, also the block size of the engines")
	fl.DurationVar(&f.begin, "begin", 0, "for tables of times and lengths: skip this much at the beginning")
	fl.StringVar(&f.system, "system-prompts", "", "for such tables, NxTOKENS: start sessions with one of N system prompts of TOKENS tokens, chosen by Zipf's law (default: no shared prefixes)")
}

func (f *replayFlags) registerFleet(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.engines, "engines", []string{"8"}, "engines: a number, or `GROUPS` such as 4+4x0.5 (four at half the speed) or 6x70b+2x8b (two models)")
	fl.StringVar(&f.model, "model", "70b", "machine type that determines the engines' step times, memory and transfers: "+machineNames())
	fl.StringVar(&f.profile, "profile", "", "instead of --model: `FILE` with the output of grapevine status -o json, whose learned constants describe the engines")
	fl.IntSliceVar(&f.blocks, "blocks", nil, "KV-cache blocks in the GPU memory of each engine (default: by machine type)")
	fl.IntVar(&f.hostBlocks, "host-blocks", 0, "blocks of a second cache tier in each engine's host memory, loaded over PCIe")
	fl.Float64Var(&f.bandwidth, "bandwidth", 25, "of engines with roles (--engines 2xprefill+6xdecode, policies pd, pd-always, pd-never, pd-N) or that fetch blocks from each other (policy fetch): 10⁹ bytes per second out of each")
	fl.DurationVar(&f.kvTransfer, "transfer-latency", 30*time.Millisecond, "for the same engines: fixed time of each transfer")
	fl.BoolVar(&f.suggestRoles, "suggest-roles", false, "only print how many of the --engines should prefill, for each workload at the first --load")
	fl.IntVar(&f.maxSeqs, "max-num-seqs", 1024, "concurrent requests of an engine")
	fl.IntVar(&f.batchTokens, "max-num-batched-tokens", 8192, "tokens per engine step")
	fl.IntVar(&f.longPrefill, "long-prefill-token-threshold", 0, "largest part of one prompt in an engine step; 0 for no limit")
	fl.Float64Var(&f.urgency, "engine-priority", 0, "engines take requests by the priority that the picker writes, in which a second of predicted prefill counts as having come so many `SECONDS` later; 0: they take them as they come")
	fl.StringArrayVar(&f.changes, "change", nil, "what becomes of an engine in mid-run, as `TIME:ENGINE:WHAT`, engines from 0 on: slow=FACTOR, hang=DURATION, fail, leave or join (20m:3:slow=4); may be repeated")
	fl.IntSliceVar(&f.replicas, "replicas", []int{1}, "number of picker replicas, which share the arrivals")
	fl.StringSliceVar(&f.share, "share", []string{"50ms"}, "with more than one replica: `DELAY` of updates between them, or cut")
	fl.StringVar(&f.index, "index", "precise", "index of cache contents: precise or approximate")
	fl.DurationVar(&f.indexDelay, "index-delay", 10*time.Millisecond, "delay of cache events; precise index only")
	fl.DurationVar(&f.speculate, "speculate", 5*time.Second, "how long a decision counts as cached before events confirm it, beyond the queueing time at its engine; 0 disables it; precise index only")
	fl.Float64Var(&f.bodies, "bodies", 1, "fraction of responses whose bodies the replicas read")
}

// check reports invalid values and flags without effect.
func (f *replayFlags) check() error {
	f.defaultMatrix()
	f.defaultSize()
	if f.output == "json" && f.json == "" {
		f.json = "-"
	}
	return errors.Join(f.checkValues(), f.checkTwice(), f.checkIdle(), f.checkSize())
}

// defaultMatrix fills in the defaults of a matrix.
func (f *replayFlags) defaultMatrix() {
	if f.matrix == "" {
		return
	}
	if len(f.workloads) == 0 {
		f.workloads = trace.Names()
	}
	if len(f.loads) == 0 {
		f.loads = matrixLoads
	}
	if len(f.policies) == 0 {
		f.policies = matrixPolicies
	}
	if !f.given("replicas") {
		f.replicas = matrixReplicas
	}
	if !f.given("seeds") {
		f.seeds = matrixSeeds
	}
}

func (f *replayFlags) checkValues() error {
	var errs []error
	need := func(ok bool, format string, a ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	need(len(f.traces)+len(f.workloads) > 0, "--trace or --workload is required")
	need(f.warmup >= 0 && f.warmup < 1, "--warmup %g: want 0 to less than 1", f.warmup)
	need(f.speed >= .01 && f.speed <= 1000, "--speed %g: want 0.01 to 1000", f.speed)
	need(f.bodies >= 0 && f.bodies <= 1, "--bodies %g: want 0 to 1", f.bodies)
	need(f.length >= 0, "--length %s is negative", f.length)
	need(f.begin >= 0, "--begin %s is negative", f.begin)
	need(f.indexDelay >= 0, "--index-delay %s is negative", f.indexDelay)
	need(f.speculate >= 0, "--speculate %s is negative", f.speculate)
	need(f.longPrefill >= 0, "--long-prefill-token-threshold %d is negative", f.longPrefill)
	need(f.requests >= 0 && f.requests <= 10_000_000, "--requests %d: want 0 to 10 million", f.requests)
	need(f.hostBlocks >= 0, "--host-blocks %d is negative", f.hostBlocks)
	need(f.bandwidth > 0 && f.kvTransfer >= 0, "--bandwidth %g, --transfer-latency %s: want more than 0, at least 0", f.bandwidth, f.kvTransfer)
	need(f.urgency >= 0 && f.urgency <= 1000, "--engine-priority %g: want 0 to 1000", f.urgency)
	need(f.maxSeqs > 0, "--max-num-seqs %d: want 1 or more", f.maxSeqs)
	need(f.batchTokens > 0, "--max-num-batched-tokens %d: want 1 or more", f.batchTokens)
	need(f.workers > 0, "--workers %d: want 1 or more", f.workers)
	need(f.blockSize > 0 && f.blockSize <= 1<<16, "--block-size %d: want 1 to 65536", f.blockSize)
	need(f.output == "table" || f.output == "json", "--output %q: want table or json", f.output)
	need(f.format == "svg" || f.format == "png", "--plot-format %q: want svg or png", f.format)
	for _, v := range slices.Concat(f.loads, f.rates) {
		need(v > 0 && v <= 1000, "--load and --rate %g: want more than 0, at most 1000", v)
	}
	for _, n := range f.blocks {
		need(n > 0, "--blocks %d: want 1 or more", n)
	}
	for _, n := range f.replicas {
		need(n > 0 && n <= 1024, "--replicas %d: want 1 to 1024", n)
	}
	toOut := 0
	for _, path := range []string{f.csv, f.json, f.html} {
		if path == "-" {
			toOut++
		}
	}
	need(toOut < 2, "only one of --csv, --json and --html can be standard output")
	return errors.Join(errs...)
}

// checkTwice refuses lists with duplicates.
func (f *replayFlags) checkTwice() error {
	return errors.Join(
		once("load", f.loads), once("rate", f.rates), once("engines", f.engines), once("blocks", f.blocks), once("replicas", f.replicas),
		once("share", f.share), once("seeds", f.seeds), once("policy", f.policies), once("workload", f.workloads),
	)
}

func once[T comparable](flag string, list []T) error {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return fmt.Errorf("--%s: duplicate value %v", flag, v)
		}
	}
	return nil
}

// idle describes a flag that has no effect together with others.
type idle struct {
	flag string
	when bool
	why  string
}

func (f *replayFlags) checkIdle() error {
	var errs []error
	for _, rule := range f.idleRules() {
		if rule.when && f.given(rule.flag) {
			errs = append(errs, fmt.Errorf("--%s has no effect: %s", rule.flag, rule.why))
		}
	}
	if f.findSaturation && (len(f.policies) != 1 || len(f.engines) != 1 || len(f.blocks) > 1 || len(f.replicas) != 1 || len(f.share) != 1 || len(f.seeds) != 1) {
		errs = append(errs, errors.New("--find-saturation requires a single --policy, and single values of engines, blocks, replicas, share and seeds"))
	}
	return errors.Join(errs...)
}

func (f *replayFlags) idleRules() []idle {
	const (
		atOwn   = "--own-load replays traces unchanged"
		byRate  = "--rate sets the load"
		precise = "the approximate index does not use cache events"
		finding = "--find-saturation only prints the rate at which engines saturate"
	)
	rules := []idle{
		{"load", f.ownLoad && len(f.size) == 0, atOwn}, {"rate", f.ownLoad, atOwn}, {"saturation", f.ownLoad, atOwn},
		{"load", len(f.rates) > 0, byRate}, {"saturation", len(f.rates) > 0, byRate},
		{"length", f.requests > 0, "--requests sets the length"},
		{"own-load", len(f.workloads) > 0, "a generated workload has no recorded load"},
		{"share", slices.Max(append([]int{1}, f.replicas...)) == 1, "a single replica does not share (see --replicas)"},
		{"spread", len(f.traces) == 0, "a generated workload has no rounded arrivals"},
		{"begin", len(f.traces) == 0, "it applies only to tables"}, {"system-prompts", len(f.traces) == 0, "it applies only to tables"},
		{"index-delay", f.index == "approximate", precise}, {"speculate", f.index == "approximate", precise},
		{"plot-format", f.plots == "", "it requires --plots"}, {"model", f.profile != "", "--profile describes the engines"},
	}
	rules = append(rules, f.sizeRules()...)
	for _, flag := range []string{"load", "rate", "own-load", "saturation", "warmup", "change", "workers", "quiet", "csv", "json", "html", "plots", "plot-format"} {
		rules = append(rules, idle{flag, f.findSaturation, finding})
	}
	for _, flag := range []string{
		"rate", "own-load", "saturation", "find-saturation", "length", "requests", "warmup", "speed", "transform", "spread", "block-size", "begin", "system-prompts",
		"engines", "model", "profile", "blocks", "host-blocks", "max-num-seqs", "max-num-batched-tokens", "long-prefill-token-threshold", "engine-priority", "change", "share",
		"index", "index-delay", "speculate", "bodies", "csv", "json", "html", "plots", "quiet",
	} {
		rules = append(rules, idle{flag, f.matrix != "", "a matrix allows only loads, workloads, traces, replicas, seeds and policies"})
	}
	return rules
}
