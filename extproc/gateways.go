package extproc

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// Gateway is a proxy, or its control plane, by its name on the command line.
type Gateway string

// Gateways that differ in their handling of the picker's replies.
const (
	GatewayAuto         Gateway = "auto" // one address, or more if the proxy announces support
	GatewayEnvoy        Gateway = "envoy"
	GatewayIstio        Gateway = "istio"
	GatewayEnvoyAI      Gateway = "envoy-ai-gateway"
	GatewayEnvoyGateway Gateway = "envoy-gateway"
	GatewayKgateway     Gateway = "kgateway"
	GatewayAgentgateway Gateway = "agentgateway"
	GatewayNGINXFabric  Gateway = "nginx-gateway-fabric"
	GatewayGKE          Gateway = "gke"
)

// GatewayFacts are the picker-relevant properties of a Gateway.
type GatewayFacts struct {
	Name Gateway
	// Destinations is the maximum number of addresses per reply; 0 if the proxy announces it.
	Destinations int
	// Served means that the gateway reports the serving endpoint.
	Served bool
	// ListFails describes the effect of more than one address; "" if lists work.
	ListFails string
}

// maxDestinations bounds the number that a proxy may announce.
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

// FactsOf returns the properties of a gateway; "" means GatewayAuto.
func FactsOf(name Gateway) (GatewayFacts, bool) {
	name = cmp.Or(name, GatewayAuto)
	i := slices.IndexFunc(gateways, func(g GatewayFacts) bool { return g.Name == name })
	if i < 0 {
		return GatewayFacts{}, false
	}
	return gateways[i], true
}

// announced returns the number of addresses that the stream's proxy accepts, 1 by default. Proxies
// announce it in the stream's initial metadata. Istio needs no announcement: its clusters are named
// "outbound|PORT||HOST", which is the stream's authority.
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

// retries reports whether the proxy accepts the picker's retry instructions.
func retries(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, request.MetadataRetries)
	return len(v) > 0 && v[0] == "1"
}

// longestWaited is the longest accepted time of request.MetadataWaited. Longer ones are not believed.
const longestWaited = time.Hour

// waited returns how long the proxy has had the request, 0 if unknown. It is metadata of the proxy's
// stream, so headers of clients have no effect; any peer that reaches the port can set it.
func waited(ctx context.Context) time.Duration {
	v := metadata.ValueFromIncomingContext(ctx, request.MetadataWaited)
	if len(v) != 1 {
		return 0
	}
	ms, err := strconv.ParseUint(v[0], 10, 32)
	if d := time.Duration(ms) * time.Millisecond; err == nil && d <= longestWaited {
		return d
	}
	return 0
}

// quiet reports whether the proxy's filter sends responses only on request.
func quiet(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, request.MetadataQuiet)
	return len(v) == 1 && v[0] == "1"
}

// moves reports whether the proxy asks another replica about a request if its stream fails.
func moves(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, request.MetadataMoves)
	return len(v) == 1 && v[0] == "1"
}

const istioDestinations = 3
