package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

func newDemo() *cobra.Command {
	var o demo.Options
	ha, quality, faults, cut, apart, only := false, false, false, false, false, ""
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
			case quality:
				return runQuality(cmd, o)
			case faults:
				return runFaults(cmd, o, cut, only)
			}
			s, err := demo.Run(cmd.Context(), o)
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
	cmd.Flags().BoolVar(&quality, "quality", false, "instead: compare hits and times of 1, 3 and 5 replicas, sharing or not (3 minutes)")
	cmd.Flags().BoolVar(&faults, "faults", false, "instead: make engines sick under load and count what clients notice (6 minutes)")
	cmd.Flags().StringVar(&only, "only", "", "of --faults: those with this in their name")
	cmd.Flags().BoolVar(&cut, "cut", false, "of --faults: the replicas do not share")
	cmd.Flags().BoolVar(&apart, "pd", false, "instead: prefill and decode apart, against the same engines together (80 s)")
	cmd.MarkFlagsMutuallyExclusive("ha", "quality", "faults", "pd")
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
	if !s.OK() {
		return cli.ExitCode(1)
	}
	return nil
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
	if !s.OK() {
		return cli.ExitCode(1)
	}
	return nil
}

// runFaults shows what clients notice of sick engines.
func runFaults(cmd *cobra.Command, o demo.Options, cut bool, only string) error {
	sharing := demo.Shared
	if cut {
		sharing = demo.Apart
	}
	cases := slices.DeleteFunc(slices.Clone(demo.FaultCases), func(c demo.FaultCase) bool { return !strings.Contains(c.Name, only) })
	s, err := demo.RunFaults(cmd.Context(), o, sharing, cases)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	if len(s.Problems()) > 0 {
		return cli.ExitCode(1)
	}
	return nil
}

// runQuality compares replicas that share with one, and with replicas that do not.
func runQuality(cmd *cobra.Command, o demo.Options) error {
	fmt.Fprintln(o.Out, demo.QualityHeader())
	s, err := demo.RunQuality(cmd.Context(), o, demo.QualityCases)
	if err != nil {
		return err
	}
	s.Write(o.Out)
	if len(s.Problems()) > 0 {
		return cli.ExitCode(1)
	}
	return nil
}
