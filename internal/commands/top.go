package commands

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/top"
)

func newTop() *cobra.Command {
	var once bool
	o := top.Options{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Follow the state of the group in a terminal",
		Long: `Shows the status page in a terminal, and refreshes it: problems with their code and the first
thing to do, endpoints sorted by trouble, replicas, rates and errors. One replica knows the
whole group, but counts only its own requests: name further replicas to sum their rates.

Keys: q quits, j and k or arrows select, s sorts, / filters, p pauses, ? explains.

--once prints one frame, for scripts. It is implied if the output is not a terminal; COLUMNS sets
its width. NO_COLOR disables colours. The exit code is 1 if no replica answers.`,
		Example: `  grapevine top
  grapevine top --admin 10.0.1.7:9090 --admin 10.0.1.8:9090
  COLUMNS=160 grapevine top --once`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Interval < minTopInterval {
				return cli.UsageError{Err: fmt.Errorf("--interval %v: want at least %v", o.Interval, minTopInterval)}
			}
			if len(o.Addresses) == 0 {
				return cli.UsageError{Err: errors.New("--admin is empty: want an address")}
			}
			if once || !cli.IsTerminal(os.Stdout) {
				answered, err := top.Once(cmd.Context(), cmd.OutOrStdout(), o, columnsOf(os.Getenv("COLUMNS")))
				if err == nil && !answered {
					err = cli.ExitCode(1)
				}
				return err
			}
			return top.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&o.Addresses, "admin", []string{"127.0.0.1:9090"}, "admin address of a replica (repeatable)")
	addPool(cmd, &o.Pool)
	cmd.Flags().DurationVar(&o.Interval, "interval", time.Second, "time between readings")
	cmd.Flags().BoolVar(&once, "once", false, "print one frame and exit")
	return cmd
}

// minTopInterval is the minimum time between readings. A status document takes processor time.
const minTopInterval = 100 * time.Millisecond

// columnsOf returns the width of a frame that is printed: the variable COLUMNS, the terminal's, or 80.
func columnsOf(variable string) int {
	const usual, least, most = 80, 40, 500
	n, err := strconv.Atoi(variable)
	if err != nil {
		if n, _, err = term.GetSize(int(os.Stdout.Fd())); err != nil {
			n = usual
		}
	}
	return min(max(n, least), most)
}
