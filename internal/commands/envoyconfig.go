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
		Short: "Print an Envoy configuration for use with Grapevine",
		Long: `Prints a complete Envoy configuration.

  resilient  a picker can fail at any time without a failed request: Envoy buffers
             request bodies, and response bodies bypass the picker
  gateway    full duplex in both directions, as configured by gateways that
             implement InferencePool
  bootstrap  a few lines for an Envoy that gets listener, endpoints and replicas
             from replicas started with --xds-listen and --xds-listener`,
		Example: `  grapevine envoy-config --ext-proc 127.0.0.1:9002 --endpoint 10.0.0.1:8000 --endpoint 10.0.0.2:8000 > envoy.yaml
  grapevine envoy-config --kind bootstrap --xds 10.0.1.1:9004 --xds 10.0.1.2:9004 > envoy.yaml`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind == "bootstrap" {
				if len(replicas) == 0 {
					return cli.UsageError{Err: errors.New("--kind bootstrap requires --xds host:port")}
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
	f.StringSliceVar(&p.Gateways, "remote-gateway", nil, "ip:port of another cluster's gateway that pickers may choose (repeatable)")
	f.StringVar(&p.GatewaySNI, "remote-gateway-sni", "", "use TLS with this server name for those gateways")
	f.StringVar(&p.GatewayCA, "remote-gateway-ca", "", "CA file for their certificates, with --remote-gateway-sni (default: any certificate)")
	f.StringVar(&p.Listen, "listen", "127.0.0.1:8080", "client listener of Envoy")
	f.StringVar(&p.Admin, "admin", "127.0.0.1:9901", "admin listener of Envoy")
	f.StringSliceVar(&p.ExtProc, "ext-proc", nil, "host:port of a picker replica (repeatable)")
	f.StringSliceVar(&p.Endpoints, "endpoint", nil, "ip:port of an engine (repeatable)")
	f.BoolVar(&p.Plaintext, "plaintext", false, "connect to pickers without TLS")
	f.StringVar(&p.CAFile, "ca-file", "", "CA file for the pickers' certificates")
	f.StringVar(&p.SAN, "san", "", "required name in the pickers' certificates")
	f.StringVar(&p.CertFile, "cert-file", "", "client certificate for pickers with --client-ca")
	f.StringVar(&p.KeyFile, "key-file", "", "its key file")
	f.BoolVar(&p.EngineHTTP2, "engine-http2", false, "speak HTTP/2 to the engines, as gRPC servers need it")
	f.BoolVar(&p.StripIntent, "strip-intent", false, "remove client headers for priority, fairness ID, latency targets and model override")
	f.BoolVar(&p.FailClosed, "fail-closed", false, "answer 500 while no picker is available, so that no request bypasses the queue")
	f.IntVar(&p.BodyLimit, "body-limit", 64<<20, "largest request body in bytes")
	f.DurationVar(&p.MessageTimeout, "message-timeout", 5*time.Second, "time limit for one answer of a picker")
	f.StringArrayVar(&p.ResponseHeaders, "response-header", nil, "NAME=VALUE of a header to add to each response; VALUE may have command operators of Envoy, such as %UPSTREAM_REMOTE_ADDRESS% (repeatable)")
	f.StringVar(&p.SubsetHeader, "subset-header", "", "request header with the endpoints that may answer, ip:port separated by commas (default: none; clients can send it)")
	f.StringVar(&p.OTLP, "otlp", "", "host:port of an OpenTelemetry collector (OTLP over gRPC) that Envoy exports spans to")
	f.DurationVar(&p.NetworkTimeout, "network-timeout", 0, "time limit for connections to engines and pickers, for health checks of pickers and for pings (default: 1s, 500ms to connect to pickers, 2s for pings)")
	f.IntVar(&p.Retries, "retries", 3, "retries over the list of destinations")
	return cmd
}
