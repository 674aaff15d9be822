package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/cli"
)

func newNATS() *cobra.Command {
	var bind string
	cmd := &cobra.Command{
		Use:   "nats",
		Short: "Run a NATS server for replicas on this machine",
		Long: `Runs a nats-server without credentials and storage, for tests of
grapevine serve --cluster nats on one machine. Use a NATS cluster in production.`,
		Example: `  grapevine-lab nats --bind 127.0.0.1:4222
  grapevine serve --cluster nats --nats nats://127.0.0.1:4222 --endpoints endpoints.yaml`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := embedded.Start(embedded.Options{Name: "grapevine-lab", Bind: bind})
			if err != nil {
				return err
			}
			defer s.Stop()
			fmt.Fprintln(cmd.OutOrStdout(), s.URL())
			<-cmd.Context().Done()
			return nil
		},
	}
	cmd.Flags().StringVar(&bind, "bind", "127.0.0.1:4222", "host:port to listen on")
	return cmd
}
