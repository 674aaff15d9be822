package commands

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/cli"
)

func newLogLevel() *cobra.Command {
	var address string
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL | PACKAGE=LEVEL]...",
		Short: "Show or change the log level of a replica",
		Long: `Shows the log levels of a running replica, or changes them until it restarts. Levels are
debug, info, warn and error. PACKAGE is a path within the source, such as picker/monitor or
events, and includes the packages below it. A level without a package replaces all others.

Like the other commands that act, it needs an address on the replica's own machine, or its
control listener.`,
		Example: `  grapevine log-level
  grapevine log-level events=debug cluster=debug
  kubectl exec POD -- grapevine log-level info`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			method, body := http.MethodGet, ""
			if len(args) > 0 {
				method, body = http.MethodPut, strings.Join(args, ",")
				if _, err := cli.NewLevels(body); err != nil {
					return cli.UsageError{Err: err}
				}
			}
			resp, err := admin.Client(address).Do(cmd.Context(), method, "/-/loglevel", nil, strings.NewReader(body))
			if err != nil {
				return cli.UsageIf(err, admin.ErrAddress)
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			if err != nil {
				return err
			}
			if output.IsText() {
				fmt.Fprint(cmd.OutOrStdout(), string(answer))
				return nil
			}
			return output.Write(cmd.OutOrStdout(), levelsOf(string(answer)))
		},
	}
	cmd.Flags().StringVar(&address, "admin", "127.0.0.1:9090", "admin address of a replica")
	cli.AddOutput(cmd, &output)
	return cmd
}

// logLevels are the levels of a replica.
type logLevels struct {
	Level    string            `json:"level"`
	Packages map[string]string `json:"packages"`
}

// levelsOf reads a replica's answer: a level, and PACKAGE=LEVEL for packages.
func levelsOf(text string) logLevels {
	l := logLevels{Packages: map[string]string{}}
	for _, word := range strings.Split(strings.TrimSpace(text), ",") {
		if pkg, level, ok := strings.Cut(word, "="); ok {
			l.Packages[pkg] = level
		} else {
			l.Level = word
		}
	}
	return l
}
