package extproc_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/kinds"
)

// gatewayShape is the Envoy configuration that a gateway's control plane
// renders for an InferencePool, as far as it concerns the picker.
type gatewayShape struct {
	name                           string
	filters, route, perRoute, pool string
	held                           bool   // the gateway holds bodies, of less than 1 MiB by default
	rigid                          bool   // fixed modes, without mode_override: upgrades hang within Envoy
	stats                          string // counter that stays 0 while the picker is followed
}

const (
	typed   = `"@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.`
	duplex  = `{request_header_mode: SEND, request_body_mode: FULL_DUPLEX_STREAMED, request_trailer_mode: SEND, response_header_mode: SEND, response_body_mode: FULL_DUPLEX_STREAMED, response_trailer_mode: SEND}`
	oneOnly = `    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    connect_timeout: 10s
    original_dst_lb_config: {use_http_header: true, http_header_name: x-gateway-destination-endpoint}`
	static = `    load_assignment: {cluster_name: pool, endpoints: [{lb_endpoints: [LB_ENDPOINTS]}]}`
)

func gatewayShapes() []gatewayShape {
	return []gatewayShape{
		{
			name: "envoy ai gateway",
			filters: `          - name: envoy.filters.http.ext_proc/endpointpicker/p_ns_ext_proc
            typed_config: {` + typed + `ExternalProcessor, message_timeout: 300s, grpc_service: {envoy_grpc: {cluster_name: epp, authority: "epp.ns.svc:9002"}}, processing_mode: ` + duplex + `}`,
			pool: oneOnly,
		},
		{
			name: "envoy ai gateway, buffered",
			filters: `          - name: envoy.filters.http.ext_proc/endpointpicker/p_ns_ext_proc
            typed_config: {` + typed + `ExternalProcessor, message_timeout: 300s, allow_mode_override: true, grpc_service: {envoy_grpc: {cluster_name: epp, authority: "epp.ns.svc:9002"}},
              processing_mode: {request_header_mode: SEND, request_body_mode: BUFFERED, response_header_mode: SEND, response_body_mode: BUFFERED}}`,
			pool: oneOnly,
			held: true,
		},
		{
			name: "kgateway 2.0",
			filters: `          - name: envoy.filters.http.ext_proc
            typed_config: {` + typed + `ExternalProcessor, message_timeout: 5s, grpc_service: {envoy_grpc: {cluster_name: epp, authority: "epp.ns.svc:9002"}, timeout: 10s},
              processing_mode: {request_header_mode: SEND, request_body_mode: BUFFERED, response_header_mode: SKIP}}`,
			pool:  oneOnly,
			held:  true,
			rigid: true,
		},
		{
			name: "kgateway 2.1",
			filters: `          - name: envoy.filters.http.ext_proc
            typed_config: {` + typed + `ExternalProcessor, grpc_service: {envoy_grpc: {cluster_name: epp, authority: "epp.ns.svc:9002"}, timeout: 10s}, message_timeout: 5s, failure_mode_allow: true,
              metadata_options: {receiving_namespaces: {untyped: [envoy.lb]}, forwarding_namespaces: {untyped: [envoy.lb.subset_hint]}}, processing_mode: ` + duplex + `}
          - name: envoy.filters.http.header_to_metadata
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config,
              request_rules: [{header: x-gateway-destination-endpoint, on_header_present: {metadata_namespace: envoy.lb, key: x-gateway-destination-endpoint, type: STRING}}]}`,
			pool: `    type: STATIC
    ignore_health_on_host_removal: true
    lb_subset_config: {fallback_policy: ANY_ENDPOINT, subset_selectors: [{keys: [x-gateway-destination-endpoint]}]}
` + static,
			stats: "lb_subsets_fallback",
		},
		{
			name: "istio",
			filters: `          - name: envoy.filters.http.ext_proc
            typed_config: {` + typed + `ExternalProcessor, grpc_service: {envoy_grpc: {cluster_name: epp}, timeout: 10s}, message_timeout: 1000s, failure_mode_allow: true,
              processing_mode: {request_header_mode: SKIP, response_header_mode: SKIP}, metadata_options: {receiving_namespaces: {untyped: [envoy.lb]}, forwarding_namespaces: {untyped: [envoy.lb]}}}`,
			perRoute: `, typed_per_filter_config: {envoy.filters.http.ext_proc: {` + typed + `ExtProcPerRoute, overrides: {failure_mode_allow: false,
              grpc_service: {envoy_grpc: {cluster_name: epp, authority: "outbound|9002||epp.ns.svc.cluster.local"}}, processing_mode: ` + duplex + `}}}`,
			route: `, retry_policy: {retry_on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", retriable_status_codes: [503], num_retries: 2}`,
			pool: `    type: STATIC
    lb_policy: CLUSTER_PROVIDED
    load_balancing_policy: {policies: [{typed_extension_config: {name: envoy.load_balancing_policies.override_host, typed_config: {
      "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost, override_host_sources: [{metadata: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}}],
      fallback_policy: {policies: [{typed_extension_config: {name: envoy.load_balancing_policies.round_robin, typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin}}}]}}}}]}
` + static,
		},
	}
}

// render fills the frame that all shapes share.
func (s *gatewayShape) render(t *testing.T, picker string, engines []string) []byte {
	t.Helper()
	frame, err := os.ReadFile("testdata/shapes/frame.yaml")
	if err != nil {
		t.Fatal(err)
	}
	socket := func(address string) string {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("{address: %s, port_value: %s}", host, port)
	}
	var endpoints []string
	for _, e := range engines {
		endpoints = append(endpoints, fmt.Sprintf(`{metadata: {filter_metadata: {envoy.lb: {x-gateway-destination-endpoint: "%s"}}}, endpoint: {address: {socket_address: %s}}}`, e, socket(e)))
	}
	pool := strings.ReplaceAll(s.pool, "LB_ENDPOINTS", strings.Join(endpoints, ", "))
	return []byte(strings.NewReplacer("PER_ROUTE", s.perRoute, " ROUTE", s.route, "FILTERS", s.filters, "POOL", pool, "EPP", socket(picker)).Replace(string(frame)))
}

// TestGatewayShapes: behind each gateway every kind of request is sent to the picked endpoint. The
// picker has no configuration for the gateway.
func TestGatewayShapes(t *testing.T) {
	for _, s := range gatewayShapes() {
		t.Run(s.name, func(t *testing.T) {
			r := newShapeRig(t, &s, http.HandlerFunc(engine))
			sizes := usualSizes
			if s.held {
				sizes = sizes[:len(sizes)-1]
			}
			n := r.checkSizes(sizes, false)
			for range 20 { // enough to reveal another policy
				r.check(call{size: 2000, model: "m", answer: 10})
			}
			r.book.settle(t)
			r.book.set(func(b *book) {
				if len(b.requests) != n+20 {
					t.Errorf("%d requests were placed, want %d", len(b.requests), n+20)
				}
			})
			if s.stats != "" {
				for name, n := range r.envoy.Stats(t, s.stats) {
					if n != 0 {
						t.Errorf("envoy: %s = %d", name, n)
					}
				}
			}
		})
	}
}

// TestGatewayKinds: behind each gateway every kind of request is answered as by the
// engine itself, by the picker's word. Envoy refuses HTTP/1.0 unless told to take it;
// bodies that are not the JSON that they claim to be are refused by the picker, with
// the status that engines give.
func TestGatewayKinds(t *testing.T) {
	for _, s := range gatewayShapes() {
		t.Run(s.name, func(t *testing.T) {
			r := newShapeRig(t, &s, kinds.Engine("first"))
			but := []string{"HTTP/1.0", "broken JSON", "packed body"}
			if s.held {
				but = append(but, "chat of 5 MB") // more than the gateway holds
			}
			if s.rigid {
				but = append(but, "upgrade")
			}
			n := kinds.Compare(t, r.envoy.Addr("inference"), r.engine.Listener.Addr().String(), but...)
			r.book.settle(t)
			r.book.set(func(b *book) {
				if n < 20 || len(b.requests) != n {
					t.Errorf("%d kinds, %d requests were placed", n, len(b.requests))
				}
			})
		})
	}
}

// newShapeRig is a rig whose Envoy is configured as the gateway does it. A second
// engine serves nothing, or the test fails.
func newShapeRig(t *testing.T, s *gatewayShape, engine http.Handler) *rig {
	t.Helper()
	r := &rig{t: t}
	r.serve(engine)
	r.client = r.engine.Client()
	other := httptest.NewServer(unwelcome(t))
	t.Cleanup(other.Close)
	first, second := r.engine.Listener.Addr().String(), other.Listener.Addr().String()
	r.book = &book{endpoints: []string{first, second}}
	r.picker, r.ready = openPicker(t, r.book, rigOptions{options: extproc.Options{AllowModeOverride: true}})
	r.envoy = testkit.StartEnvoy(t, s.render(t, r.picker.Addr().String(), []string{first, second}))
	return r
}

// unwelcome answers requests that should have gone elsewhere.
func unwelcome(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s went to an endpoint that was not chosen", r.Method, r.URL)
		w.WriteHeader(http.StatusTeapot)
	}
}
