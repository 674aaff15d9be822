package commands

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/extproc/xds"
	"github.com/grapevine-epp/grapevine/internal/cli"
)

func newEnvoyConfig() *cobra.Command {
	p := envoyconf.Params{}
	var kind string
	var replicas []string
	cmd := &cobra.Command{
		Use:   "envoy-config",
		Short: "Print an Envoy configuration that asks Grapevine",
		Long: `Prints a complete Envoy configuration.

  resilient  a picker may die at any moment without a failed request: the body is
             held by Envoy, response bodies stay out of the picker's way
  gateway    full duplex both ways, as gateways that implement InferencePool
             configure it
  bootstrap  a dozen lines for an Envoy that takes listener, endpoints and replicas
             from replicas started with --xds-listen and --xds-listener`,
		Example: `  grapevine envoy-config --ext-proc 127.0.0.1:9002 --endpoint 10.0.0.1:8000 --endpoint 10.0.0.2:8000 > envoy.yaml
  grapevine envoy-config --kind bootstrap --xds 10.0.1.1:9004 --xds 10.0.1.2:9004 > envoy.yaml`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind == "bootstrap" {
				if len(replicas) == 0 {
					return cli.UsageError{Err: errors.New("--kind bootstrap needs --xds host:port")}
				}
				out, err := xds.Bootstrap{Admin: p.Admin, Replicas: replicas, Plaintext: p.Plaintext}.Render()
				if err != nil {
					return cli.UsageError{Err: err}
				}
				_, err = cmd.OutOrStdout().Write(out)
				return err
			}
			p.Kind = envoyconf.Kind(kind)
			out, err := envoyconf.Render(p)
			if errors.Is(err, envoyconf.ErrParams) {
				return cli.UsageError{Err: err}
			}
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "resilient", "resilient, gateway or bootstrap")
	f.StringSliceVar(&replicas, "xds", nil, "host:port of a replica's xDS listener, for bootstrap (repeatable)")
	f.StringSliceVar(&p.Gateways, "remote-gateway", nil, "ip:port of another cluster's gateway, to which pickers may send requests (repeatable)")
	f.StringVar(&p.GatewaySNI, "remote-gateway-sni", "", "speak TLS to those gateways, with this server name")
	f.StringVar(&p.GatewayCA, "remote-gateway-ca", "", "file that verifies their certificates, with --remote-gateway-sni (default: any)")
	f.StringVar(&p.Listen, "listen", "127.0.0.1:8080", "where Envoy listens for clients")
	f.StringVar(&p.Admin, "admin", "127.0.0.1:9901", "where Envoy's admin interface listens")
	f.StringSliceVar(&p.ExtProc, "ext-proc", nil, "host:port of a picker replica (repeatable)")
	f.StringSliceVar(&p.Endpoints, "endpoint", nil, "ip:port of an engine (repeatable)")
	f.BoolVar(&p.Plaintext, "plaintext", false, "no TLS towards the pickers")
	f.StringVar(&p.CAFile, "ca-file", "", "verify the pickers' certificate against this file")
	f.StringVar(&p.SAN, "san", "", "name that the pickers' certificate must carry")
	f.StringVar(&p.CertFile, "cert-file", "", "client certificate to show to pickers that run with --client-ca")
	f.StringVar(&p.KeyFile, "key-file", "", "its key file")
	f.BoolVar(&p.EngineHTTP2, "engine-http2", false, "speak HTTP/2 to the engines, as gRPC servers need it")
	f.BoolVar(&p.StripIntent, "strip-intent", false, "remove the headers with which clients choose priority, fairness id, latency targets and another model")
	f.BoolVar(&p.FailClosed, "fail-closed", false, "answer 500 instead of placing requests without a picker, so that none passes a queue")
	f.IntVar(&p.BodyLimit, "body-limit", 64<<20, "largest request body in bytes")
	f.DurationVar(&p.MessageTimeout, "message-timeout", 5*time.Second, "how long Envoy waits for one answer of a picker")
	f.IntVar(&p.Retries, "retries", 3, "retries along the list of destinations")
	return cmd
}
