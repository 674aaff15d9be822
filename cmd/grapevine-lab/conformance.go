package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/conformance"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
)

// exitUnclear is the exit code of a run in which no MUST case failed and some had no verdict.
const exitUnclear = cli.ExitCode(3)

// reportFormats are the values of --output.
var reportFormats = []string{"table", "json", "yaml", "markdown"}

func newConformance() *cobra.Command {
	var (
		o       conformance.Options
		ids     []string
		output  string
		engines bool
	)
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Test the protocol conformance of an endpoint picker",
		Long: `Sends messages of Envoy's external processing to an endpoint picker, Grapevine or another
one, and reports which requirements of the endpoint picker protocol its answers meet. The picker
must have exactly the given endpoints, all of them ready.

Exit codes: 0 no MUST case failed, 1 a MUST case failed, 2 usage error, 3 no MUST case failed but
some are inconclusive.`,
		Example: `  grapevine-lab conformance --target 127.0.0.1:9002 --endpoints 10.0.0.1:8000,10.0.0.2:8000 --model qwen3
  grapevine-lab conformance --target epp:9002 --plaintext --health epp:9003 --endpoints … --case subset-one -o json
  grapevine-lab conformance --target 127.0.0.1:9002 --endpoints 127.0.9.1:8000,127.0.9.2:8000 --serve-engines --wait 1m`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(reportFormats, output) {
				return cli.UsageError{Err: fmt.Errorf("--output %s: want %s", output, strings.Join(reportFormats, ", "))}
			}
			if o.Target == "" || len(o.Endpoints) < 2 {
				return cli.UsageError{Err: errors.New("--target and at least two --endpoints are required")}
			}
			if engines {
				stop, err := serveEngines(&o)
				if err != nil {
					return err
				}
				defer stop()
			}
			report, err := conformance.Run(cmd.Context(), o, ids...)
			if err != nil {
				return err
			}
			if err := writeReport(cmd.OutOrStdout(), report, output); err != nil {
				return err
			}
			switch {
			case report.Failed() > 0:
				return fmt.Errorf("%d MUST cases failed", report.Failed())
			case report.Unclear() > 0:
				fmt.Fprintf(cmd.ErrOrStderr(), "grapevine-lab: %d MUST cases are inconclusive\n", report.Unclear())
				return exitUnclear
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Target, "target", "", "host:port of the picker's ext_proc listener")
	fl.BoolVar(&o.Plaintext, "plaintext", false, "connect without TLS; with TLS, any certificate is accepted")
	fl.StringVar(&o.Health, "health", "", "host:port of its gRPC health listener")
	fl.StringVar(&o.Empty, "empty-target", "", "host:port of a second picker, whose pool has no endpoints, for the case no-endpoints")
	fl.StringSliceVar(&o.Endpoints, "endpoints", nil, "ip:port of the picker's endpoints, two or more")
	fl.BoolVar(&engines, "serve-engines", false, "serve a simulated engine at each of the --endpoints, which must be addresses of this machine")
	fl.StringVar(&o.Model, "model", "", "a model that all of them serve (default \"model\", with --serve-engines the engines' own)")
	fl.DurationVar(&o.Timeout, "timeout", 10*time.Second, "time limit of each case")
	fl.DurationVar(&o.Wait, "wait", 0, "how long to wait until the picker uses all endpoints")
	fl.StringSliceVar(&ids, "case", nil, "run only this case (repeatable)")
	fl.StringVar(&o.Picker.Name, "picker-name", "", "name of the picker, for the report")
	fl.StringVar(&o.Picker.Version, "picker-version", "", "version of the picker, for the report")
	fl.StringVar(&o.Picker.Source, "picker-source", "", "origin of the picker's program, for the report")
	fl.StringVar(&o.Picker.Command, "picker-command", "", "command that started the picker, for the report")
	fl.StringVarP(&output, "output", "o", "table", "output format: "+strings.Join(reportFormats, ", "))
	// Fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(reportFormats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// serveEngines starts an engine at each endpoint and returns a function that stops all. It sets the
// model unless one is given.
func serveEngines(o *conformance.Options) (stop func(), err error) {
	var list []*sim.Engine
	stop = func() {
		for _, e := range list {
			_ = e.Close() // the run is over
		}
	}
	for _, addr := range o.Endpoints {
		e, err := sim.Open(sim.Options{Addr: addr})
		if err != nil {
			stop()
			return nil, fmt.Errorf("engine at %s: %w", addr, err)
		}
		list = append(list, e)
		if o.Model == "" {
			o.Model = e.Options().Model
		}
	}
	return stop, nil
}

func writeReport(w io.Writer, r *conformance.Report, format string) error {
	switch format {
	case "table":
		return r.WriteTable(w)
	case "markdown":
		return r.WriteMarkdown(w)
	}
	return cli.Output(format).Write(w, r)
}
