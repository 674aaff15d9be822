package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/lab/measure"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	goBench, jsonFile string
	duration          time.Duration
	idle              time.Duration
	rate              float64
	soak              time.Duration
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the picker: CPU per request, latencies, idle cost",
		Long: `Starts simulated engines with metrics pages of real size and one replica, plays the
messages that Envoy sends, and prints CPU per request by body size, mode and number of endpoints:
at full load, for the cost of a request, and at a fixed rate, for latencies (a core that wakes up
for each message uses more CPU).

With --soak, it keeps three replicas of a group busy instead, with 24 engines that restart and whose
caches overflow. The exit code is 1 if memory or goroutines grew over the second half, or if a
healthy engine was taken out of service. Memory is judged from 15 minutes on.`,
		Example: "  grapevine-lab bench --duration 5s --json-file build/bench.json\n  grapevine-lab bench --soak 25m",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.soak < 0:
				return cli.UsageError{Err: fmt.Errorf("--soak %s: use a positive duration, such as 25m", f.soak)}
			case f.soak > 0:
				return f.runSoak(cmd)
			}
			return f.run(cmd)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.goBench, "go-bench", "", "merge this output of `go test -bench` into the table")
	fl.StringVar(&f.jsonFile, "json-file", "", "write the rows to this file as JSON")
	fl.DurationVar(&f.duration, "duration", 3*time.Second, "length of each measurement")
	fl.DurationVar(&f.idle, "idle", 10*time.Second, "length of the idle measurement")
	fl.Float64Var(&f.rate, "rate", 100, "requests per second of the paced measurements")
	fl.DurationVar(&f.soak, "soak", 0, "instead: monitor memory and goroutines of three replicas for this long")
	return cmd
}

// runSoak monitors replicas under churn.
func (f *benchFlags) runSoak(cmd *cobra.Command) error {
	o := demo.Options{Options: rig.Options{Engines: 24, Replicas: 3}, Step: f.soak, Out: cmd.OutOrStdout()}
	var err error
	if o.Envoy, err = parts.EnvoyPath(); err != nil {
		return err
	}
	if o.Self, err = picker(); err != nil {
		return err
	}
	s, err := demo.RunSoak(cmd.Context(), o)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	if len(s.Problems()) > 0 {
		return cli.ExitCode(1)
	}
	return nil
}

func (f *benchFlags) run(cmd *cobra.Command) error {
	self, err := picker()
	if err != nil {
		return err
	}
	var rows []bench.Row
	var reports []bench.Report
	load := measure.Load{Self: self, Duration: f.duration, Idle: f.idle, Rate: f.rate}
	for _, n := range []int{8, 100} {
		more, seen, err := load.Measure(cmd.Context(), n)
		if err != nil {
			return err
		}
		rows, reports = append(rows, more...), append(reports, seen...)
	}
	out := cmd.OutOrStdout()
	if err := bench.WriteReports(out, reports); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if f.goBench != "" {
		file, err := os.Open(f.goBench)
		if err != nil {
			return err
		}
		defer file.Close()
		more, err := bench.ParseGoBench(file, "github.com/grapevine-epp/grapevine")
		if err != nil {
			return err
		}
		rows = bench.Merge(rows, more)
	}
	if err := bench.WriteTable(out, rows); err != nil {
		return err
	}
	if f.jsonFile != "" {
		return bench.WriteJSON(f.jsonFile, rows)
	}
	return nil
}
