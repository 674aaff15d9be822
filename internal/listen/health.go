package listen

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Known service names of the health service. The empty name is the whole server and equals
// ServiceReadiness.
const (
	ServiceLiveness  = "liveness"
	ServiceReadiness = "readiness"
	ServiceExtProc   = "envoy.service.ext_proc.v3.ExternalProcessor"
)

// Readiness is the state behind the health service. Check, List and Watch of the empty name,
// ServiceReadiness and ServiceExtProc follow Set. ServiceLiveness is serving while the process
// answers, unless SetStalled reports a stall. Any other name follows Set as well; see status.
// Readiness starts not ready. Safe for concurrent use; one Readiness may serve several listeners.
type Readiness struct {
	health *health.Server
	now    func() time.Time
	began  time.Time

	ready, was atomic.Bool // now, and at any time before

	mu      sync.Mutex // orders changes; held for a few instructions of the health server
	wanted  bool
	stalled bool
}

// startGrace is how long an unknown service name reports that a starting replica is not ready.
// Charts of other pickers use one name, such as "inference-extension", for readiness and liveness.
// That probe must hold back requests at startup, but must not restart a replica that waits for its
// first endpoint.
const startGrace = 20 * time.Second

// NewReadiness returns a Readiness that is not ready.
func NewReadiness() *Readiness { return newReadiness(time.Now) }

func newReadiness(now func() time.Time) *Readiness {
	r := &Readiness{health: health.NewServer(), now: now, began: now()}
	r.health.SetServingStatus(ServiceLiveness, healthpb.HealthCheckResponse_SERVING)
	r.Set(false)
	return r
}

// Set sets whether the replica is ready for requests.
func (r *Readiness) Set(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = ready
	r.publish()
}

// SetStalled reports that the process cannot work, or that it can again. While it cannot, no
// service is serving, not even ServiceLiveness or after Set.
func (r *Readiness) SetStalled(stalled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = stalled
	alive := healthpb.HealthCheckResponse_SERVING
	if stalled {
		alive = healthpb.HealthCheckResponse_NOT_SERVING
	}
	r.health.SetServingStatus(ServiceLiveness, alive)
	r.publish()
}

// publish sends the state to checkers and watchers. The caller holds r.mu.
func (r *Readiness) publish() {
	ready := r.wanted && !r.stalled
	r.ready.Store(ready)
	if ready {
		r.was.Store(true)
	}
	s := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		s = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", ServiceReadiness, ServiceExtProc} {
		r.health.SetServingStatus(name, s)
	}
}

// status is the status for unknown service names.
func (r *Readiness) status() healthpb.HealthCheckResponse_ServingStatus {
	starting := !r.was.Load() && r.now().Sub(r.began) >= startGrace
	if r.ready.Load() || starting {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// Service returns the health service for this state. Watches end when stopping is done.
func (r *Readiness) Service(stopping context.Context) healthpb.HealthServer {
	return healthService{r.health, r, stopping}
}

// healthService ends watches when stopping is done, so that they do not delay a graceful stop.
type healthService struct {
	*health.Server
	ready    *Readiness
	stopping context.Context
}

// Check returns the status of a service.
func (h healthService) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	switch req.GetService() {
	case "", ServiceReadiness, ServiceExtProc, ServiceLiveness:
		return h.Server.Check(ctx, req)
	}
	return &healthpb.HealthCheckResponse{Status: h.ready.status()}, nil
}

// Watch sends the status of a service until the caller leaves or the server stops.
func (h healthService) Watch(req *healthpb.HealthCheckRequest, out grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	defer context.AfterFunc(h.stopping, cancel)()
	return h.Server.Watch(req, watchStream{out, ctx})
}

// watchStream is a stream with its own context.
type watchStream struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

// Context is done when the call ends or the server stops.
func (w watchStream) Context() context.Context { return w.ctx }
