package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/corpus"
)

// windowDays is the default period of the corpus report.
const windowDays = 90

func newCorpus() *cobra.Command {
	var asOf string
	var days int
	var verbose bool
	cmd := &cobra.Command{
		Use:   "corpus",
		Short: "Measure how many published configurations of other pickers work",
		Long: `Loads configurations in the form of those published for other endpoint pickers, and prints
how many load with the same behaviour and how many are refused with a replacement. The exit
code is 1 if a configuration has an unexpected outcome.`,
		Example: `  grapevine-lab corpus
  grapevine-lab corpus --as-of 2026-11-29 --days 90 --verbose`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			until := time.Time{}
			if asOf != "" {
				var err error
				if until, err = time.Parse(time.DateOnly, asOf); err != nil {
					return cli.UsageError{Err: fmt.Errorf("--as-of must be a date such as 2026-09-30: %w", err)}
				}
			}
			r, err := corpus.Measure(until, days)
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), r.Text(verbose))
			if len(r.Wrong) > 0 {
				return fmt.Errorf("%d configurations have an unexpected outcome", len(r.Wrong))
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&asOf, "as-of", "", "last day of the period, such as 2026-09-30 (default: the day of the newest configuration)")
	fl.IntVar(&days, "days", windowDays, "length of the period")
	fl.BoolVar(&verbose, "verbose", false, "list every configuration with its problems")
	return cmd
}
