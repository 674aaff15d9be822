package extproc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Readiness is the state behind the health service: Check, List and Watch of
// the empty name, ServiceReadiness and ServiceExtProc follow Set;
// ServiceLiveness is serving as long as the process answers. It starts not
// ready. Safe for concurrent use; one Readiness may feed several listeners.
type Readiness struct {
	health *health.Server
}

// NewReadiness returns a Readiness that is not ready.
func NewReadiness() *Readiness {
	r := &Readiness{health: health.NewServer()}
	r.health.SetServingStatus(ServiceLiveness, healthpb.HealthCheckResponse_SERVING)
	r.Set(false)
	return r
}

// Set tells every checker and watcher whether requests are welcome.
func (r *Readiness) Set(ready bool) {
	s := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		s = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", ServiceReadiness, ServiceExtProc} {
		r.health.SetServingStatus(name, s)
	}
}

// healthService ends watches when stopping ends, so that they do not hold up a
// graceful stop.
type healthService struct {
	*health.Server
	stopping context.Context
}

// Watch reports the status of a service until the caller leaves or the server
// stops.
func (h healthService) Watch(req *healthpb.HealthCheckRequest, out grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	defer context.AfterFunc(h.stopping, cancel)()
	return h.Server.Watch(req, watchStream{out, ctx})
}

// watchStream is a stream with a context of ours.
type watchStream struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

// Context is done when the call is, or when the server stops.
func (w watchStream) Context() context.Context { return w.ctx }
