package listen

import (
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestForeignHealthNames: other pickers' probe names hold back requests at startup, but not for so
// long that a liveness probe would kill the process.
func TestForeignHealthNames(t *testing.T) {
	now := time.Unix(0, 0)
	r := newReadiness(func() time.Time { return now })
	expect := func(when string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got := r.status(); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	expect("starting", healthpb.HealthCheckResponse_NOT_SERVING)
	now = now.Add(startGrace)
	expect("waiting for endpoints", healthpb.HealthCheckResponse_SERVING)
	r.Set(true)
	expect("ready", healthpb.HealthCheckResponse_SERVING)
	r.Set(false)
	expect("draining", healthpb.HealthCheckResponse_NOT_SERVING)
}
