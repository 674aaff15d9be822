package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/replay/roles"
	"github.com/grapevine-epp/grapevine/internal/lab/report"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	"github.com/grapevine-epp/grapevine/internal/strict"
)

const replayLong = `Replay plays request traces through the picker's own code against simulated engines
in virtual time, and tells how each policy would have done. All lists are combined:
workloads, loads, fleets, policies and seeds. Equal arguments give equal results.

A trace is a file of JSON lines, compressed by gzip or not, with timestamp (ms),
input_length, output_length, hash_ids (one for each 512 tokens of the prompt; an id
stands for the whole prefix) and, optionally, session_id: a public trace, or what
"grapevine-lab record" wrote. Other fields are ignored, and lines need no order. Tables
of times and lengths (Azure's, BurstGPT's and Vidur's columns) and arrays of conversations
(ShareGPT) are read too; what these do not say is assumed, and replay says what.

A load is a share of the rate at which the engines saturate under the better of load_only
and unified, with more or fewer users: copies of sessions with blocks of their own, or a
choice of them. The saturation is found by search unless --saturation gives it. --rate says
requests per second instead, and --own-load plays a trace as it is.

--size searches the smallest number of engines that meets targets, such as p90=2s for the
first token, under one policy. It plays a trace as it is, with --growth times as many users.

A policy is a built-in one or an EndpointPickerConfig file:
`

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Replay request traces against simulated engines to compare policies",
		Long:  replayLong + policyList(),
		Example: `  grapevine-lab replay --workload agentic --load 0.6,0.85,1 --policy default,unified,lmetric
  grapevine-lab replay --trace conversation=conversation_trace.jsonl --seeds 1,2,3 --html report.html
  grapevine-lab replay --trace recorded.jsonl --own-load --policy default,epp.yaml
  grapevine-lab replay --trace recorded.jsonl --size p90=2s,per-token-p90=60ms --growth 1.5
  grapevine-lab replay --workload chat --replicas 1,3 --share 50ms,1s,cut
  grapevine-lab replay --workload chat --engines 2,4,16,64 --policy default,epp`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd)
	return cmd
}

// policyList describes the built-in policies, one per line.
func policyList() string {
	var b strings.Builder
	for _, p := range replay.Policies() {
		fmt.Fprintf(&b, "  %-13s%s\n", p.Name, p.About)
	}
	return strings.TrimRight(b.String(), "\n")
}

func (f *replayFlags) run(ctx context.Context, out, errOut io.Writer) error {
	if err := f.check(); err != nil {
		return cli.UsageError{Err: err}
	}
	if f.matrix != "" {
		return f.playMatrix(ctx, out)
	}
	g, about, err := f.grid()
	var problems strict.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Fprintln(errOut, p)
		}
		return cli.ExitCode(1)
	}
	if err != nil {
		return err
	}
	for _, n := range about.notes {
		fmt.Fprintln(errOut, "note:", n)
	}
	if f.findSaturation {
		return f.find(ctx, g, out)
	}
	if len(f.size) > 0 {
		return f.findSize(ctx, g, about, out, errOut)
	}
	if err := f.findMissing(ctx, &g, &about); err != nil {
		return err
	}
	if f.suggestRoles {
		return f.suggest(ctx, g, out)
	}
	bar := newProgress(errOut, f.quiet)
	rows, err := sweep.Sweep(ctx, g, f.workers, bar.show)
	bar.end()
	if err != nil {
		return err
	}
	for _, n := range complaints(rows) {
		fmt.Fprintln(errOut, "note:", n)
	}
	return f.write(report.Report{Rows: rows, Seeds: g.Seeds, About: about.lines}, out)
}

// findMissing searches the saturation of sources for which the command line gives none.
func (f *replayFlags) findMissing(ctx context.Context, g *sweep.Grid, about *aboutGrid) error {
	if f.ownLoad || len(f.rates) > 0 {
		return nil
	}
	for i := range g.Sources {
		s := &g.Sources[i]
		if s.Saturation > 0 {
			continue
		}
		c := g.Base
		g.Fleets[0].Apply(&c)
		c.Seed, c.Engine.Blocks, c.Changes = g.Seeds[0], g.Blocks[0], nil
		rate, err := sweep.FindSaturation(ctx, c, *s)
		if err != nil {
			return err
		}
		s.Saturation = rate
		about.lines = append(about.lines, fmt.Sprintf("%s saturates at %.3f requests per second for each engine", s.Name, rate))
	}
	return nil
}

// suggest prints a recommended number of prefill engines.
func (f *replayFlags) suggest(ctx context.Context, g sweep.Grid, out io.Writer) error {
	for _, s := range g.Sources {
		c := g.Base
		g.Fleets[0].Apply(&c)
		rate := s.Own
		if rate == 0 {
			rate = g.Loads[0] * s.Saturation * g.Fleets[0].Capacity()
		}
		c.Trace, c.Seed, c.Engine.Blocks, c.Replicas, c.Share = s.Make(rate, g.Seeds[0]), g.Seeds[0], g.Blocks[0], g.Replicas[0], g.Share[0]
		c.Warmup = time.Duration(g.Warmup * float64(c.Trace.Length))
		all, best, err := roles.Suggest(ctx, c)
		if err != nil {
			return err
		}
		roles.Write(out, s.Name, all, best)
	}
	return nil
}

// find prints the saturation of each source under one policy.
func (f *replayFlags) find(ctx context.Context, g sweep.Grid, out io.Writer) error {
	for _, s := range g.Sources {
		c := g.Base
		g.Fleets[0].Apply(&c)
		c.Policy, c.Seed, c.Engine.Blocks, c.Replicas, c.Share = g.Policies[0], g.Seeds[0], g.Blocks[0], g.Replicas[0], g.Share[0]
		rate, err := sweep.Saturation(ctx, c, s)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s=%.3f\n", s.Name, rate)
	}
	return nil
}
