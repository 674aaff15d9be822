package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/conformance"
)

func newConformance() *cobra.Command {
	var o conformance.Options
	var names []string
	var output string
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Test the protocol conformance of an endpoint picker",
		Long: `Sends messages of Envoy's external processing to an endpoint picker, Grapevine or another
one, and reports the rules of the endpoint picker protocol that its answers satisfy. The picker
must have exactly the given endpoints, all of them ready. The exit code is 1 if a mandatory rule
is violated.`,
		Example: `  grapevine-lab conformance --target 127.0.0.1:9002 --endpoints 10.0.0.1:8000,10.0.0.2:8000 --model qwen3
  grapevine-lab conformance --target epp:9002 --plaintext --health epp:9003 --endpoints … --case subset-list -o json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Target == "" || len(o.Endpoints) < 2 {
				return cli.UsageError{Err: errors.New("--target and at least two --endpoints are required")}
			}
			results, err := conformance.Run(cmd.Context(), o, names...)
			if err != nil {
				return err
			}
			return printResults(cmd, results, output)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Target, "target", "", "host:port of the picker's ext_proc listener")
	fl.BoolVar(&o.Plaintext, "plaintext", false, "connect without TLS; with TLS, any certificate is accepted")
	fl.StringVar(&o.Health, "health", "", "host:port of its gRPC health listener")
	fl.StringSliceVar(&o.Endpoints, "endpoints", nil, "ip:port of the picker's endpoints, two or more")
	fl.StringVar(&o.Model, "model", "model", "a model that all of them serve")
	fl.DurationVar(&o.Timeout, "timeout", 10*time.Second, "time limit of each case")
	fl.StringSliceVar(&names, "case", nil, "run only this case (repeatable)")
	fl.StringVarP(&output, "output", "o", "text", "output format: text or json")
	return cmd
}

func printResults(cmd *cobra.Command, results []conformance.Result, output string) error {
	w := cmd.OutOrStdout()
	count := map[conformance.Outcome]int{}
	broken := 0
	for _, r := range results {
		count[r.Outcome]++
		if r.Failed() {
			broken++
		}
	}
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(results); err != nil {
			return err
		}
	} else {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, r := range results {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.Outcome, r.Level, r.Name, r.Rule)
			if r.Detail != "" {
				fmt.Fprintf(t, "\t\t\t  %s\n", r.Detail)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(w, "%d passed, %d failed, %d skipped; %d rules that must be kept are broken\n",
			count[conformance.Pass], count[conformance.Fail], count[conformance.Skip], broken)
	}
	if broken > 0 {
		return fmt.Errorf("%d rules violated", broken)
	}
	return nil
}
