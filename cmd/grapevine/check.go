package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/discovery/strict"
)

func newCheck() *cobra.Command {
	var endpoints, output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "List every problem of an endpoints file",
		Long:  "Prints all problems with file:line:column and a hint. The exit code is 1 when there are any.",
		Example: `  grapevine check --endpoints endpoints.yaml
  grapevine check --endpoints endpoints.yaml -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if endpoints == "" {
				return usageError{errors.New("nothing to check: give --endpoints")}
			}
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("--output %q: want text or json", output)}
			}
			list, problems := discovery.Load(endpoints)
			return report(cmd, output, problems, fmt.Sprintf("%s: %d endpoints, no problems", endpoints, len(list)))
		},
	}
	cmd.Flags().StringVar(&endpoints, "endpoints", "", "endpoints file")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return cmd
}

// report prints problems, or fine when there are none.
func report(cmd *cobra.Command, output string, problems []strict.Problem, fine string) error {
	out := cmd.OutOrStdout()
	if output == "json" {
		if problems == nil {
			problems = []strict.Problem{}
		}
		if err := json.NewEncoder(out).Encode(problems); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintln(out, p)
		}
		if len(problems) == 0 {
			fmt.Fprintln(out, fine)
		}
	}
	if len(problems) > 0 {
		return exitCode(1)
	}
	return nil
}
