package xds

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"text/template"
)

// Bootstrap is a minimal Envoy configuration; the replicas provide the rest.
type Bootstrap struct {
	Admin     string   // host:port of Envoy's admin interface
	Replicas  []string // host:port where replicas serve xDS
	Plaintext bool     // no TLS to the replicas
}

var bootstrap = template.Must(template.New("bootstrap").Parse(`node: { id: envoy, cluster: grapevine }
admin: { address: { socket_address: { address: "{{ .AdminHost }}", port_value: {{ .AdminPort }} } } }
dynamic_resources:
  ads_config: { api_type: GRPC, transport_api_version: V3, grpc_services: [{ envoy_grpc: { cluster_name: grapevine } }] }
  lds_config: { ads: {}, resource_api_version: V3 }
  cds_config: { ads: {}, resource_api_version: V3 }
static_resources:
  clusters:
  - name: grapevine
    type: STRICT_DNS
    connect_timeout: 0.5s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: { connection_keepalive: { interval: 5s, timeout: 2s } } }
{{- if not .Plaintext }}
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: { alpn_protocols: [h2] }
{{- end }}
    load_assignment:
      cluster_name: grapevine
      endpoints:
      - lb_endpoints:
{{- range .At }}
        - endpoint: { address: { socket_address: { address: "{{ .Host }}", port_value: {{ .Port }} } } }
{{- end }}
`))

type hostPort struct {
	Host string
	Port int
}

// Render returns the configuration as YAML.
func (b Bootstrap) Render() ([]byte, error) {
	admin, err := splitHostPort(b.Admin)
	if err != nil {
		return nil, err
	}
	var at []hostPort
	for _, r := range b.Replicas {
		hp, err := splitHostPort(r)
		if err != nil {
			return nil, err
		}
		at = append(at, hp)
	}
	var out bytes.Buffer
	err = bootstrap.Execute(&out, map[string]any{
		"AdminHost": admin.Host, "AdminPort": admin.Port, "Plaintext": b.Plaintext, "At": at,
	})
	return out.Bytes(), err
}

func splitHostPort(s string) (hostPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return hostPort{}, fmt.Errorf("xds: bootstrap: %q is not host:port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return hostPort{}, fmt.Errorf("xds: bootstrap: %q is not host:port", s)
	}
	return hostPort{host, int(n)}, nil
}
