package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the linker (see Makefile).
var version = "dev"

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  grapevine version -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "text":
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"version": version, "go": runtime.Version()})
			default:
				return usageError{fmt.Errorf("--output %q: want text or json", output)}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "grapevine %s (%s)\n", version, runtime.Version())
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return cmd
}
