package xds

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// both has all served endpoint resources: a request for a subset is not answered.
var both = []string{ClusterEngines, ClusterPickers}

// dial serves a state and returns a client.
func dial(t *testing.T, log *slog.Logger) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(log)
	g := grpc.NewServer(s.Limits()...)
	s.Register(g)
	t.Cleanup(func() { s.Close(); g.Stop() })
	if err := s.Set(t.Context(), State{Endpoints: []string{"10.0.0.1:8000"}}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(lis) }() // ends with Stop
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

// Requests cannot use up memory: unsupported types are not stored, and many or long names end the
// stream, in both protocol variants.
func TestRequestsAreBounded(t *testing.T) {
	c := dial(t, nil)
	s, err := c.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: fmt.Sprint("type.googleapis.com/none-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: both}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || len(m.GetResources()) != len(both) {
		t.Fatalf("after 1,000 unsupported types: %v, %v", m, err)
	}
	many := make([]string, maxNames+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for name, names := range map[string][]string{"many": many, "long": {strings.Repeat("n", maxName+1)}, "huge": {strings.Repeat("n", maxRequest)}} {
		t.Run(name, func(t *testing.T) {
			want := codes.InvalidArgument
			if name == "huge" {
				want = codes.ResourceExhausted
			}
			s, err := c.StreamAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: names}); err != nil {
				t.Fatal(err)
			}
			if m, err := s.Recv(); status.Code(err) != want {
				t.Errorf("sotw: %v, %v, want %v", m, err, want)
			}
			d, err := c.DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names}); err != nil {
				t.Fatal(err)
			}
			if m, err := d.Recv(); status.Code(err) != want {
				t.Errorf("delta: %v, %v, want %v", m, err, want)
			}
		})
	}
}

// Repeated rejections by an Envoy are logged once.
func TestRejectionsAreLoggedOnce(t *testing.T) {
	var out parts.Output
	c := dial(t, slog.New(slog.NewTextHandler(&out, nil)))
	s, err := c.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *discoveryv3.DiscoveryRequest) {
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev3.Node{Id: "edge-1"}
	send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.EndpointType, ResourceNames: both})
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	why := &rpcstatus.Status{Message: "malformed " + strings.Repeat("x", 4*maxName)}
	for range 3 {
		send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.EndpointType, ResourceNames: both, ResponseNonce: m.GetNonce(), ErrorDetail: why})
	}
	send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: []string{strings.Repeat("n", maxName+1)}})
	for err == nil { // the last request ends the stream once earlier ones were read
		_, err = s.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	log := out.String()
	if n := strings.Count(log, "rejected xDS update"); n != 1 || !strings.Contains(log, "edge-1") || !strings.Contains(log, "malformed") || strings.Count(log, "x") > 2*maxName {
		t.Errorf("the log has %d lines, want 1:\n%s", n, log)
	}
}
