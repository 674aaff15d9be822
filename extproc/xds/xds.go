package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
)

// Names of the clusters with endpoints, as in envoyconf.
const (
	ClusterEngines = "engines"
	ClusterPickers = "pickers"
)

// ErrAddress is wrapped for an address that is not ip:port.
var ErrAddress = errors.New("xds: address is not ip:port")

// State is the configuration for Envoy. Order does not matter.
type State struct {
	Endpoints []string // ip:port of the pool's endpoints
	Replicas  []string // ip:port of the ext_proc listeners of live, ready replicas
	// Listener requests clusters and a listener too; its address lists are replaced by the above.
	Listener *envoyconf.Params
}

// Server serves Envoys. Create it with New.
type Server struct {
	cache cache.SnapshotCache
	srv   xdsserver.Server
	stop  context.CancelFunc
	mu    sync.Mutex
	last  string

	refusals refusals
}

// group gives every Envoy the same snapshot.
type group struct{}

// ID is the same for all nodes.
func (group) ID(*corev3.Node) string { return "envoy" }

// New returns a server without a snapshot. log receives rejections by Envoys; it may be nil.
func New(log *slog.Logger) *Server {
	ctx, stop := context.WithCancel(context.Background())
	c := cache.NewSnapshotCache(true, group{}, nil)
	return &Server{cache: c, srv: xdsserver.NewServer(ctx, c, nil), stop: stop, refusals: refusals{log: log}}
}

// Register adds the aggregated discovery service to a gRPC server, which should use Limits.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s.srv)
}

// Close ends the streams.
func (s *Server) Close() { s.stop() }

// Version returns the current version, "" before the first Set. Replicas in the same state have the
// same version.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Set publishes a new state. Publishing the same state again sends nothing.
func (s *Server) Set(ctx context.Context, st State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	resources, err := build(st)
	if err != nil {
		return err
	}
	version, err := versionOf(resources)
	if err != nil || version == s.last {
		return err
	}
	snapshot, err := cache.NewSnapshot(version, resources)
	if err != nil {
		return fmt.Errorf("xds: snapshot: %w", err)
	}
	if err := s.cache.SetSnapshot(ctx, group{}.ID(nil), snapshot); err != nil {
		return fmt.Errorf("xds: snapshot: %w", err)
	}
	s.last = version
	return nil
}

func build(st State) (map[resource.Type][]types.Resource, error) {
	engines, err := assignment(ClusterEngines, st.Endpoints)
	if err != nil {
		return nil, err
	}
	pickers, err := assignment(ClusterPickers, st.Replicas)
	if err != nil {
		return nil, err
	}
	out := map[resource.Type][]types.Resource{resource.EndpointType: {engines, pickers}}
	if st.Listener != nil {
		if err := addListener(out, *st.Listener); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// assignment returns the addresses of a cluster, sorted.
func assignment(cluster string, addrs []string) (*endpointv3.ClusterLoadAssignment, error) {
	addrs = slices.Compact(slices.Sorted(slices.Values(addrs)))
	lb := make([]*endpointv3.LbEndpoint, 0, len(addrs))
	for _, a := range addrs {
		at, err := socketAddress(a)
		if err != nil {
			return nil, err
		}
		lb = append(lb, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: lb}}}, nil
}

func socketAddress(a string) (*corev3.Address, error) {
	host, port, err := net.SplitHostPort(a)
	if err != nil || net.ParseIP(host) == nil {
		return nil, fmt.Errorf("%w: %q", ErrAddress, a)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", ErrAddress, a)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}, nil
}

// versionOf hashes the resources: equal content has an equal version on every replica.
func versionOf(resources map[resource.Type][]types.Resource) (string, error) {
	h := xxhash.New()
	for _, kind := range []resource.Type{resource.EndpointType, resource.ClusterType, resource.ListenerType} {
		for _, r := range resources[kind] {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
			if err != nil {
				return "", fmt.Errorf("xds: version: %w", err)
			}
			_, _ = h.Write(b)
		}
	}
	return strconv.FormatUint(h.Sum64(), 16), nil
}
