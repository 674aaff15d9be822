package extproc

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// Gateway is a proxy, or the control plane that configures it, by the name that
// users give it on the command line.
type Gateway string

// Gateways that differ in what they do with an answer of the picker.
const (
	GatewayAuto         Gateway = "auto" // one address, more where the proxy announces that it takes them
	GatewayEnvoy        Gateway = "envoy"
	GatewayIstio        Gateway = "istio"
	GatewayEnvoyAI      Gateway = "envoy-ai-gateway"
	GatewayEnvoyGateway Gateway = "envoy-gateway"
	GatewayKgateway     Gateway = "kgateway"
	GatewayAgentgateway Gateway = "agentgateway"
	GatewayNGINXFabric  Gateway = "nginx-gateway-fabric"
	GatewayGKE          Gateway = "gke"
)

// GatewayFacts are what the picker has to know of a Gateway.
type GatewayFacts struct {
	Name Gateway
	// Destinations is the largest number of addresses that the gateway takes in
	// one answer; 0 when that is for the proxy to announce.
	Destinations int
	// Served tells whether the gateway reports which endpoint has answered.
	Served bool
	// ListFails says what more than one address leads to; "" where lists work.
	ListFails string
}

// maxDestinations bounds what a proxy may ask for.
const maxDestinations = 8

var gateways = []GatewayFacts{
	{Name: GatewayAuto},
	{Name: GatewayEnvoy, Destinations: 3, Served: true},
	{Name: GatewayIstio, Destinations: 3, Served: true},
	{Name: GatewayEnvoyAI, Destinations: 1, ListFails: "every request is answered with 503 (the cluster takes one ip:port from the header)"},
	{Name: GatewayEnvoyGateway, Destinations: 1, ListFails: "every request is answered with 503 (the cluster takes one ip:port from the header)"},
	{Name: GatewayKgateway, Destinations: 1, ListFails: "requests are placed round robin, without an error (no subset matches a list)"},
	{Name: GatewayAgentgateway, Destinations: 1, Served: true, ListFails: "every request fails (a list is no socket address)"},
	{Name: GatewayNGINXFabric, Destinations: 1, ListFails: "every request is answered with 500 (a list is no upstream)"},
	{Name: GatewayGKE, Destinations: 1, ListFails: "the behaviour is not documented"},
}

// GatewayNames lists the known gateways in the order of documentation.
func GatewayNames() []string {
	names := make([]string, len(gateways))
	for i, g := range gateways {
		names[i] = string(g.Name)
	}
	return names
}

// FactsOf returns what is known of a gateway; "" means GatewayAuto.
func FactsOf(name Gateway) (GatewayFacts, bool) {
	name = cmp.Or(name, GatewayAuto)
	i := slices.IndexFunc(gateways, func(g GatewayFacts) bool { return g.Name == name })
	if i < 0 {
		return GatewayFacts{}, false
	}
	return gateways[i], true
}

// announced returns how many addresses the proxy of a stream says that it
// takes, 1 when it says nothing. Proxies announce it in the initial metadata of
// the stream. Istio needs no announcement: it names its clusters
// "outbound|PORT||HOST", which is the authority of the stream.
func announced(ctx context.Context) int {
	if v := metadata.ValueFromIncomingContext(ctx, request.MetadataDestinations); len(v) > 0 {
		if n, err := strconv.Atoi(v[0]); err == nil {
			return min(max(n, 1), maxDestinations)
		}
	}
	if v := metadata.ValueFromIncomingContext(ctx, ":authority"); len(v) > 0 && strings.HasPrefix(v[0], "outbound|") {
		return istioDestinations
	}
	return 1
}

// retries reports whether the proxy says that it does what a picker says of second tries.
func retries(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, request.MetadataRetries)
	return len(v) > 0 && v[0] == "1"
}

const istioDestinations = 3
