package commands

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/migrate"
)

// eppAdmin is the default metrics and health listener of other pickers, whose charts probe the
// pod's address.
const eppAdmin = "--admin=0.0.0.0:9090"

func newEPP(p Program) *cobra.Command {
	serve := newServe(p)
	cmd := &cobra.Command{
		Use:   "epp",
		Short: "Run a replica with the flags of other endpoint pickers",
		Long: `Runs serve with the flags of the endpoint pickers of llm-d and of the Gateway API inference
extension, so that only the image has to be replaced in their charts and manifests. The
meaning of each flag here, or that it has no effect, is logged at the start. Flags of serve
are accepted too and take precedence. grapevine migrate prints the command line of serve.

epp is the default when the command line begins with a flag.`,
		Example: `  grapevine epp --config-file /config/default-plugins.yaml --grpc-port 9002 --secure-serving=false --endpoints endpoints.yaml
  grapevine --zap-encoder=json --v=4 --config-file epp.yaml --endpoints endpoints.yaml`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := migrate.Translate(newServe(p).Flags(), kubeNames, args)
			if err != nil {
				return err
			}
			if t.Help {
				return cmd.Help()
			}
			for _, n := range t.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "grapevine: note:", n)
			}
			serve.SetArgs(append([]string{eppAdmin}, t.Args...))
			serve.SilenceErrors, serve.SilenceUsage = true, true
			serve.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.UsageError{Err: err} })
			return serve.ExecuteContext(cmd.Context())
		},
	}
	return cmd
}

func newMigrate(p Program) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate --from-args ARG...",
		Short: "Translate the command line of another endpoint picker",
		Long: `Prints the command line of grapevine serve that corresponds to the given arguments of
another endpoint picker, with every difference as a comment. A container's args can be pasted.`,
		Example: `  grapevine migrate --from-args --pool-name=llama --grpc-port=9002 --config-file=/config/epp.yaml --v=4
  grapevine migrate --from-args $(kubectl get deployment epp -o jsonpath='{.spec.template.spec.containers[0].args[*]}')`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			var rest []string
			for _, a := range args {
				if a != "--from-args" {
					rest = append(rest, a)
				}
			}
			t, err := migrate.Translate(newServe(p).Flags(), kubeNames, rest)
			if err != nil {
				return err
			}
			if t.Help || len(rest) == 0 {
				return cmd.Help()
			}
			t.Write(cmd.OutOrStdout())
			return nil
		},
	}
}
