package conformance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// bootstrap is an Envoy with a picker in full duplex, as gateways render it. The engine's address is
// in the picker's header. %s are the host and port of the picker.
const bootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: in
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config: {name: r, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: pool}}]}]}
          http_filters:
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: epp}}
              processing_mode: {request_header_mode: SEND, request_body_mode: FULL_DUPLEX_STREAMED, request_trailer_mode: SEND,
                response_header_mode: SEND, response_body_mode: FULL_DUPLEX_STREAMED, response_trailer_mode: SEND}
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - {name: pool, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, connect_timeout: 10s,
     original_dst_lb_config: {use_http_header: true, http_header_name: x-gateway-destination-endpoint}}
  - name: epp
    type: STATIC
    connect_timeout: 10s
    typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {http2_protocol_options: {}}}}
    load_assignment: {cluster_name: epp, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}
`

// TestEnvoyAgrees sends requests through a real Envoy to the reference picker. What the suite accepts
// works there, and what it rejects does not.
func TestEnvoyAgrees(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body) // an echo
	}))
	t.Cleanup(engine.Close)
	for _, x := range []struct {
		fault     string
		get, post int // status
	}{
		{"", 200, 200},
		{"plain-body", 200, 500},
		{"duplex-order", 200, 500},
		{"destination-header", 503, 503},
	} {
		t.Run(x.fault, func(t *testing.T) {
			t.Parallel()
			host, port, err := net.SplitHostPort(startReference(t, &reference{fault: x.fault, pool: []string{engine.Listener.Addr().String()}}))
			if err != nil {
				t.Fatal(err)
			}
			envoy := testkit.StartEnvoy(t, fmt.Appendf(nil, bootstrap, host, port))
			body := `{"model":"m","prompt":"x"}`
			for _, q := range []struct {
				method, body string
				want         int
			}{{http.MethodGet, "", x.get}, {http.MethodPost, body, x.post}} {
				req, err := http.NewRequestWithContext(t.Context(), q.method, "http://"+envoy.Addr("in")+"/v1/completions", strings.NewReader(q.body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != q.want || q.want == 200 && string(got) != q.body {
					t.Errorf("%s with fault %q: %d %s, want %d", q.method, x.fault, resp.StatusCode, got, q.want)
				}
			}
		})
	}
}
