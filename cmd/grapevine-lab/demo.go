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
		Short: "Show the main job: engines, replicas and a real Envoy on this machine",
		Long: `Starts simulated engines, three replicas and a real Envoy, and sends multi-turn chats
through it: first round robin, then with Grapevine. One replica is killed on the way.
It ends by itself within 90 seconds; the exit code is 1 if any request failed.`,
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
	cmd.Flags().BoolVar(&ha, "ha", false, "instead: kill, restart, roll and re-key replicas under load and count failed requests")
	cmd.Flags().BoolVar(&quality, "quality", false, "instead: compare hits and times of 1, 3 and 5 replicas, sharing or not, and of one application (6 minutes)")
	cmd.Flags().BoolVar(&faults, "faults", false, "instead: make engines sick under load and count what clients notice (6 minutes)")
	cmd.Flags().StringVar(&only, "only", "", "of --faults: those with this in their name")
	cmd.Flags().BoolVar(&cut, "cut", false, "of --faults: the replicas do not share")
	cmd.Flags().BoolVar(&apart, "pd", false, "instead: prefill and decode apart, against the same engines together (80 s)")
	cmd.Flags().BoolVar(&queue, "flow", false, "instead: three tenants ask for more than the engines can take; a replica dies (80 s)")
	cmd.Flags().BoolVar(&o.FailOpen, "fail-open", false, "of --flow: Envoy places requests by itself that wait at the replica that dies")
	cmd.Flags().BoolVar(&batch, "batch", false, "instead: interactive requests beside batch jobs that fill all engines, with and without a queue (4 minutes)")
	cmd.Flags().StringVar(&drawing, "plot", "", "of --batch: draw the first-token times into this SVG file")
	cmd.Flags().BoolVar(&several, "clusters", false, "instead: two clusters, one of which is overloaded; the link is cut, the other one dies (2 minutes)")
	cmd.MarkFlagsMutuallyExclusive("ha", "quality", "faults", "pd", "flow", "batch", "clusters")
	cmd.Flags().Float64Var(&o.Rate, "rate", 0, "of --quality: sessions of four requests per second (default 4); of --faults: requests (default 24)")
	cmd.Flags().StringVar(&o.Share, "share", "auto", "how replicas share the index: mesh, partitioned or auto")
	cmd.Flags().IntVar(&o.Engines, "engines", 6, "number of simulated engines")
	cmd.Flags().IntVar(&o.Replicas, "replicas", 3, "number of replicas")
	cmd.Flags().DurationVar(&o.Phase, "phase", 32*time.Second, "length of each of the two phases")
	return cmd
}

// runPD shows what it brings to compute prompts elsewhere.
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

// verdict makes the exit code 1 where something is over its limit.
func verdict(good bool) error {
	if !good {
		return cli.ExitCode(1)
	}
	return nil
}

// runFlow shows what tenants get of engines that are full.
func runFlow(cmd *cobra.Command, o demo.Options) error {
	s, err := demo.RunFlow(cmd.Context(), o)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(len(s.Problems()) == 0)
}

// runClusters shows what an overloaded cluster gets of an idle one.
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

// runBatch shows what batch jobs do to interactive requests.
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

// runHA shows what clients notice when replicas come and go.
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

// runFaults shows what clients notice of sick engines.
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

// runQuality compares replicas that share with one, and with replicas that do not.
func runQuality(cmd *cobra.Command, o demo.Options) error {
	fmt.Fprintln(o.Out, demo.QualityHeader())
	s, err := demo.RunQuality(cmd.Context(), o, demo.QualityCases)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	return verdict(len(s.Problems()) == 0)
}
