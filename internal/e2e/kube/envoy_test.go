//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const (
	api = "type.googleapis.com/envoy."
	ext = api + "extensions."
)

// names are the suite's gateways.
var names = []string{"conformance-primary", "conformance-secondary"}

var duplex = map[string]any{
	"request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND",
	"response_header_mode": "SEND", "response_body_mode": "FULL_DUPLEX_STREAMED", "response_trailer_mode": "SEND",
}

// dataplane is an Envoy that is configured by files.
type dataplane struct {
	t       *testing.T
	dir     string
	written map[string]string
	version int
}

func startDataplane(t *testing.T) *dataplane {
	e := &dataplane{t: t, dir: t.TempDir(), written: map[string]string{}}
	e.clusters(nil)
	var listeners []any
	for i, name := range names {
		e.routes(name, nil)
		listeners = append(listeners, e.listener(name, e.listen(name, i)))
	}
	bootstrap, err := json.Marshal(map[string]any{
		"node":              map[string]any{"id": "gateway", "cluster": "gateway"},
		"admin":             map[string]any{"address": socket("127.0.0.1", 0)},
		"dynamic_resources": map[string]any{"cds_config": e.source("clusters.json")},
		"static_resources":  map[string]any{"listeners": listeners, "clusters": []any{pickerCluster("nobody", nil)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.StartEnvoy(t, bootstrap)
	return e
}

// listen returns a gateway's loopback address.
func (e *dataplane) listen(_ string, n int) string { return fmt.Sprintf("127.0.1.%d", n+1) }

func socket(ip string, port int) map[string]any {
	return map[string]any{"socket_address": map[string]any{"address": ip, "port_value": port}}
}

func (e *dataplane) source(file string) map[string]any {
	return map[string]any{"resource_api_version": "V3", "path_config_source": map[string]any{"path": filepath.Join(e.dir, file), "watched_directory": map[string]any{"path": e.dir}}}
}

// listener contains the picker's filter, which only routes with a picker enable.
func (e *dataplane) listener(name, ip string) any {
	return map[string]any{"name": name, "address": socket(ip, 80), "filter_chains": []any{map[string]any{"filters": []any{map[string]any{
		"name": "envoy.filters.network.http_connection_manager",
		"typed_config": map[string]any{
			"@type": ext + "filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": name,
			"rds": map[string]any{"route_config_name": name, "config_source": e.source(name + ".json")},
			"http_filters": []any{
				map[string]any{"name": "envoy.filters.http.ext_proc", "typed_config": map[string]any{
					"@type": ext + "filters.http.ext_proc.v3.ExternalProcessor", "grpc_service": map[string]any{"envoy_grpc": map[string]any{"cluster_name": "nobody"}},
					"failure_mode_allow": true, "message_timeout": "10s", "processing_mode": map[string]any{"request_header_mode": "SKIP", "response_header_mode": "SKIP"},
					"metadata_options": map[string]any{"forwarding_namespaces": map[string]any{"untyped": []any{"envoy.lb"}}, "receiving_namespaces": map[string]any{"untyped": []any{"envoy.lb"}}},
				}},
				map[string]any{"name": "envoy.filters.http.router", "typed_config": map[string]any{"@type": ext + "filters.http.router.v3.Router"}},
			},
		},
	}}}}}
}

// routes sets a gateway's routes by host. Routes for all hosts follow each host's own routes.
func (e *dataplane) routes(name string, hosts map[string][]any) {
	var list []any
	for host, rules := range hosts {
		if host != "*" {
			rules = append(rules[:len(rules):len(rules)], hosts["*"]...)
		}
		list = append(list, map[string]any{"name": host, "domains": []any{host}, "routes": rules})
	}
	e.write(name+".json", []any{map[string]any{"@type": api + "config.route.v3.RouteConfiguration", "name": name, "virtual_hosts": sortedByName(list)}})
}

// clusters sets Envoy's clusters and, in separate files, their endpoints. Replacing a cluster would
// end its open streams; a change of its endpoints does not.
func (e *dataplane) clusters(list []any) {
	typed := []any{}
	for _, one := range list {
		c := one.(map[string]any)
		assignment := c["load_assignment"].(map[string]any)
		assignment["@type"], c["@type"] = api+"config.endpoint.v3.ClusterLoadAssignment", api+"config.cluster.v3.Cluster"
		delete(c, "load_assignment")
		file := c["name"].(string) + ".json" // Envoy needs one file per cluster
		e.write(file, []any{assignment})
		c["type"], c["eds_cluster_config"] = "EDS", map[string]any{"eds_config": e.source(file)}
		typed = append(typed, c)
	}
	e.write("clusters.json", typed)
}

// write replaces a file if its resources have changed.
func (e *dataplane) write(file string, resources []any) {
	text, err := json.Marshal(resources)
	if err != nil {
		e.t.Error(err)
	}
	if e.written[file] == string(text) {
		return
	}
	e.written[file] = string(text)
	e.version++
	path := filepath.Join(e.dir, file)
	err = os.WriteFile(path+".new", fmt.Appendf(nil, `{"version_info":"%d","resources":%s}`, e.version, text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		e.t.Error(err)
	}
}

func http2(on bool) map[string]any {
	kind := "http_protocol_options"
	if on {
		kind = "http2_protocol_options"
	}
	return map[string]any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": map[string]any{
		"@type": ext + "upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": map[string]any{kind: map[string]any{}},
	}}
}

func assigned(name string, endpoints []any) map[string]any {
	if endpoints == nil {
		endpoints = []any{}
	}
	return map[string]any{"cluster_name": name, "endpoints": []any{map[string]any{"lb_endpoints": endpoints}}}
}

// poolCluster takes the destination from the picker's metadata, returns the serving endpoint, and
// balances by itself without metadata.
func poolCluster(name string, endpoints []any, h2c bool) any {
	key := map[string]any{"key": "envoy.lb", "path": []any{map[string]any{"key": "x-gateway-destination-endpoint"}}}
	served := map[string]any{"key": "envoy.lb", "path": []any{map[string]any{"key": "x-gateway-destination-endpoint-served"}}}
	robin := map[string]any{"policies": []any{map[string]any{"typed_extension_config": map[string]any{
		"name": "envoy.load_balancing_policies.round_robin", "typed_config": map[string]any{"@type": ext + "load_balancing_policies.round_robin.v3.RoundRobin"},
	}}}}
	return map[string]any{
		"name": name, "type": "STATIC", "connect_timeout": "10s", "load_assignment": assigned(name, endpoints), "typed_extension_protocol_options": http2(h2c),
		"load_balancing_policy": map[string]any{"policies": []any{map[string]any{"typed_extension_config": map[string]any{
			"name": "envoy.load_balancing_policies.override_host", "typed_config": map[string]any{
				"@type":                 ext + "load_balancing_policies.override_host.v3.OverrideHost",
				"override_host_sources": []any{map[string]any{"metadata": key}}, "selected_host_key": served, "fallback_policy": robin,
			},
		}}}},
	}
}

// pickerCluster uses HTTP/2 over TLS without verification, as gateways do.
func pickerCluster(name string, endpoints []any) any {
	return map[string]any{
		"name": name, "type": "STATIC", "connect_timeout": "10s", "load_assignment": assigned(name, endpoints), "typed_extension_protocol_options": http2(true),
		"transport_socket": map[string]any{"name": "tls", "typed_config": map[string]any{"@type": ext + "transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": map[string]any{}}},
	}
}
