package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/lab/demo/live"
	"github.com/grapevine-epp/grapevine/internal/lab/demo/sites"
	"github.com/grapevine-epp/grapevine/internal/lab/report"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

func newDemo() *cobra.Command {
	var o demo.Options
	ha, quality, faults, cut, apart, queue, batch, several, only, drawing := false, false, false, false, false, false, false, false, "", ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a demo with engines, replicas and a real Envoy on this machine",
		Long: `Starts simulated engines, three replicas and a real Envoy, and sends multi-turn chats
through it: first round robin, then with Grapevine. One replica is killed meanwhile.
The demo ends within 90 seconds. The exit code is 1 if any request failed.`,
		Example: "  make demo",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Envoy, err = parts.EnvoyPath(); err != nil {
				return err
			}
			if o.Self, err = picker(); err != nil {
				return err
			}
			o.Out, o.TTY = cmd.OutOrStdout(), cli.IsTerminal(os.Stdout)
			switch {
			case ha:
				return runHA(cmd, o)
			case apart:
				return runPD(cmd, o)
			case batch:
				return runBatch(cmd, o, drawing)
			case several:
				return runClusters(cmd, o)
			case queue:
				return runFlow(cmd, o)
			case quality:
				return runQuality(cmd, o)
			case faults:
				return runFaults(cmd, o, cut, only)
			}
			s, err := live.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			s.Write(o.Out)
			if s.Failed() > 0 {
				return cli.ExitCode(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&ha, "ha", false, "instead: kill, restart, update and re-key replicas under load, and count failed requests")
	cmd.Flags().BoolVar(&quality, "quality", false, "instead: compare cache hits and latencies of 1, 3 and 5 replicas, with and without sharing, and of one application (6 minutes)")
	cmd.Flags().BoolVar(&faults, "faults", false, "instead: inject engine faults under load and count their effects on clients (6 minutes)")
	cmd.Flags().StringVar(&only, "only", "", "with --faults: only cases whose names contain this")
	cmd.Flags().BoolVar(&cut, "cut", false, "with --faults: the replicas do not share")
	cmd.Flags().BoolVar(&apart, "pd", false, "instead: compare separate prefill and decode engines with combined ones (80 s)")
	cmd.Flags().BoolVar(&queue, "flow", false, "instead: three tenants overload the engines, and a replica is killed (80 s)")
	cmd.Flags().BoolVar(&o.FailOpen, "fail-open", false, "with --flow: Envoy itself places the requests that wait at the killed replica")
	cmd.Flags().BoolVar(&batch, "batch", false, "instead: interactive requests next to batch jobs that fill all engines, with and without a queue (4 minutes)")
	cmd.Flags().StringVar(&drawing, "plot", "", "with --batch: plot the first-token times to this SVG file")
	cmd.Flags().BoolVar(&several, "clusters", false, "instead: two clusters, one of them overloaded; the link is cut, then the other cluster fails (2 minutes)")
	cmd.MarkFlagsMutuallyExclusive("ha", "quality", "faults", "pd", "flow", "batch", "clusters")
	cmd.Flags().Float64Var(&o.Rate, "rate", 0, "with --quality: sessions of four requests per second (default 4); with --faults: requests per second (default 24)")
	cmd.Flags().StringVar(&o.Share, "share", "auto", "how replicas share the index: mesh, partitioned or auto")
	cmd.Flags().IntVar(&o.Engines, "engines", 6, "number of simulated engines")
	cmd.Flags().IntVar(&o.Replicas, "replicas", 3, "number of replicas")
	cmd.Flags().DurationVar(&o.Phase, "phase", 32*time.Second, "length of each of the two phases")
	return cmd
}

// runPD shows the effect of separate prefill engines.
func runPD(cmd *cobra.Command, o demo.Options) error {
	if !cmd.Flags().Changed("phase") {
		o.Phase = 0
	}
	s, err := demo.RunPD(cmd.Context(), o)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(s.OK())
}

// verdict sets exit code 1 if a limit was exceeded.
func verdict(good bool) error {
	if !good {
		return cli.ExitCode(1)
	}
	return nil
}

// runFlow shows the shares of tenants at full engines.
func runFlow(cmd *cobra.Command, o demo.Options) error {
	s, err := demo.RunFlow(cmd.Context(), o)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(len(s.Problems()) == 0)
}

// runClusters shows how an overloaded cluster uses an idle one.
func runClusters(cmd *cobra.Command, o demo.Options) error {
	if !cmd.Flags().Changed("replicas") {
		o.Replicas = 2
	}
	s, err := sites.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(len(s.Problems()) == 0)
}

// runBatch shows the effect of batch jobs on interactive requests.
func runBatch(cmd *cobra.Command, o demo.Options, drawing string) error {
	s, err := demo.RunBatch(cmd.Context(), o)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	if drawing != "" {
		if err := drawBatch(s, drawing); err != nil {
			return err
		}
	}
	return verdict(len(s.Problems()) == 0)
}

// drawBatch draws the first-token times of every arrangement.
func drawBatch(s *demo.BatchSummary, path string) error {
	var curves []report.Curve
	for i := range s.Rows {
		c := report.Curve{Name: s.Rows[i].Name}
		for _, d := range s.Rows[i].First {
			c.Values = append(c.Values, d.Seconds())
		}
		curves = append(curves, c)
	}
	p, err := report.Quantiles("ttft_s", "interactive requests", curves)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(f, "svg"), f.Close())
}

// runHA shows the effect on clients when replicas stop and start.
func runHA(cmd *cobra.Command, o demo.Options) error {
	if !cmd.Flags().Changed("engines") {
		o.Engines = 12
	}
	if !cmd.Flags().Changed("share") {
		o.Share = "partitioned"
	}
	s, err := demo.RunHA(cmd.Context(), o)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(s.OK())
}

// runFaults shows the effect of faulty engines on clients.
func runFaults(cmd *cobra.Command, o demo.Options, cut bool, only string) error {
	sharing := rig.Shared
	if cut {
		sharing = rig.Apart
	}
	cases := slices.DeleteFunc(slices.Clone(demo.FaultCases), func(c demo.FaultCase) bool { return !strings.Contains(c.Name, only) })
	s, err := demo.RunFaults(cmd.Context(), o, sharing, cases)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(len(s.Problems()) == 0)
}

// runQuality compares sharing replicas with a single one and with replicas that do not share.
func runQuality(cmd *cobra.Command, o demo.Options) error {
	fmt.Fprintln(o.Out, demo.QualityHeader())
	s, err := demo.RunQuality(cmd.Context(), o, demo.QualityCases)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(len(s.Problems()) == 0)
}
