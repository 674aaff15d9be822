package conformance

import (
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// TestGrapevine runs all cases against a complete replica with simulated engines.
func TestGrapevine(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "endpoints.yaml")
	fleet, err := fleet.Open(fleet.Options{Engines: 3, EndpointsFile: list})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fleet.Close() })
	if err := vocab.New().WriteModel(filepath.Join(dir, "model")); err != nil {
		t.Fatal(err)
	}
	health := parts.FreeAddress(t)
	s, err := server.Open(server.Options{
		Listen: "127.0.0.1:0", Health: health, Admin: "127.0.0.1:0", Endpoints: list, Linger: -1, FallbackMetadata: true,
		Models: []server.ModelOptions{{Name: vocab.Name, Path: filepath.Join(dir, "model")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	o := Options{Target: s.ExtProcAddr().String(), Health: health, Model: vocab.Name, Timeout: time.Minute}
	for _, e := range s.Status().Endpoints {
		o.Endpoints = append(o.Endpoints, e.Address)
	}
	awaitServing(t, o.Health)
	results, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Logf("%s %s %s %s", r.Outcome, r.Level, r.Name, r.Detail)
		if r.Outcome != Pass {
			t.Errorf("%s: %s", r.Name, r.Detail)
		}
	}
}

// awaitServing waits until the health check reports SERVING.
func awaitServing(t *testing.T, addr string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	for err == nil {
		var r *grpc_health_v1.HealthCheckResponse
		if r, err = watch.Recv(); err == nil && r.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			return
		}
	}
	t.Fatal(err)
}

// stubborn is a picker that sends every request to one endpoint at once and never returns the body.
type stubborn struct {
	extproc.UnimplementedExternalProcessorServer
}

func (stubborn) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		const where = "192.0.2.1:8000"
		mutation := &extproc.CommonResponse{HeaderMutation: &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
			{Header: &corev3.HeaderValue{Key: destination, RawValue: []byte(where)}},
		}}}
		answer := &extproc.ProcessingResponse{DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			namespaceLB: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{destination: structpb.NewStringValue(where)}}),
		}}}
		switch {
		case m.GetRequestHeaders() != nil:
			answer.Response = &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{Response: mutation}}
		case m.GetRequestTrailers() != nil:
			answer.Response = &extproc.ProcessingResponse_RequestTrailers{RequestTrailers: &extproc.TrailersResponse{}}
		case m.GetRequestBody().GetEndOfStream():
			answer.Response = &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{Response: &extproc.CommonResponse{
				BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{StreamedResponse: &extproc.StreamedBodyResponse{EndOfStream: true}}},
			}}}
		default:
			continue
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// TestBrokenPicker checks that a picker that violates every rule passes no case.
func TestBrokenPicker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	extproc.RegisterExternalProcessorServer(g, stubborn{})
	go func() { _ = g.Serve(l) }() // ends with the test
	t.Cleanup(g.Stop)
	results, err := Run(t.Context(), Options{Target: l.Addr().String(), Plaintext: true, Endpoints: []string{"10.0.0.1:1", "10.0.0.2:1"}, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if want := map[bool]Outcome{true: Skip, false: Fail}[slices.Contains([]string{"health", "health-inference-extension"}, r.Name)]; r.Outcome != want {
			t.Errorf("%s: %s %s, want %s", r.Name, r.Outcome, r.Detail, want)
		}
	}
	if _, err := Run(t.Context(), Options{Target: "x", Endpoints: []string{"10.0.0.1:1"}}); err == nil {
		t.Error("one endpoint is enough")
	}
}
