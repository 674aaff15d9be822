package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// stored is the folder of the stored reports.
const stored = "../../../docs/conformance-reports"

// TestGrapevine runs the suite against a replica with default options. The outcomes must be those of
// the stored report, and no MUST case may fail.
func TestGrapevine(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "endpoints.yaml")
	engines, err := fleet.Open(fleet.Options{Engines: 3, EndpointsFile: list, Host: "127.0.8.1", Spread: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engines.Close() })
	nothing := filepath.Join(dir, "nothing.yaml")
	if err := os.WriteFile(nothing, []byte("endpoints: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Health: parts.FreeAddress(t), Timeout: time.Minute, Wait: time.Minute}
	full, empty := replica(t, list, o.Health), replica(t, nothing, parts.FreeAddress(t))
	o.Target, o.Empty = full.ExtProcAddr().String(), empty.ExtProcAddr().String()
	for _, e := range full.Status().Endpoints {
		o.Endpoints = append(o.Endpoints, e.Address)
		o.Model = engines.Engines()[0].Options().Model
	}
	awaitServing(t, o.Health)
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Failed()+report.Unclear() > 0 {
		t.Errorf("%d MUST cases failed, %d are inconclusive", report.Failed(), report.Unclear())
	}
	want := outcomes(load(t, "grapevine.json"))
	for _, r := range report.Results {
		t.Logf("%s %s %s: %s", r.Outcome, r.Level, r.ID, r.Seen)
		if want[r.ID] != r.Outcome {
			t.Errorf("%s: %s (%s), the stored report has %q", r.ID, r.Outcome, r.Seen, want[r.ID])
		}
	}
}

// replica starts a replica with default options.
func replica(t *testing.T, endpoints, health string) *server.Server {
	t.Helper()
	s, err := server.Open(server.Options{Listen: "127.0.0.1:0", Health: health, Admin: "127.0.0.1:0", Endpoints: endpoints, Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
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

func load(t *testing.T, name string) *Report {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(stored, name))
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &r
}

func outcomes(r *Report) map[string]Outcome {
	out := map[string]Outcome{}
	for _, x := range r.Results {
		out[x.ID] = x.Outcome
	}
	return out
}
