package xds

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"

	// Message types in the Any fields of a rendered configuration.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// placeholder replaces EDS endpoints in a rendered configuration.
const placeholder = "127.0.0.1:1"

// addListener adds the listener and the clusters of envoyconf's configuration, with endpoints from
// EDS.
func addListener(out map[resource.Type][]types.Resource, p envoyconf.Params) error {
	p.ExtProc, p.Endpoints = []string{placeholder}, []string{placeholder}
	text, err := envoyconf.Render(p)
	if err != nil {
		return err
	}
	j, err := yaml.YAMLToJSON(text)
	if err != nil {
		return fmt.Errorf("xds: listener: %w", err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(j, &b); err != nil {
		return fmt.Errorf("xds: listener: %w", err)
	}
	for _, l := range b.GetStaticResources().GetListeners() {
		out[resource.ListenerType] = append(out[resource.ListenerType], l)
	}
	for _, c := range b.GetStaticResources().GetClusters() {
		c.LoadAssignment = nil
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}}
		out[resource.ClusterType] = append(out[resource.ClusterType], c)
	}
	return nil
}
