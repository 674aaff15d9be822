package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// stuckLog is a slog handler that blocks on one message until it is opened.
type stuckLog struct {
	slog.Handler
	message string
	open    chan struct{}
}

// Enabled implements slog.Handler.
func (stuckLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h stuckLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		<-h.open
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h stuckLog) WithAttrs([]slog.Attr) slog.Handler { return h }

// TestStalledLoopTakesTheReplicaOut stalls the loop that evaluates engine health. Within 3 s gRPC
// health, /healthz and /readyz report the stall, and peers count the replica as gone. When the loop
// continues, all of these recover.
func TestStalledLoopTakesTheReplicaOut(t *testing.T) {
	log := stuckLog{slog.DiscardHandler, "endpoint health changed", make(chan struct{})}
	release := sync.OnceFunc(func() { close(log.open) })
	health := parts.FreeAddress(t)
	g := newGroupWith(t, 1, 64, group{share: "mesh"})
	g.change = func(o *Options) { o.Log, o.Health, o.TLS = slog.New(log), health, listen.TLS{Plaintext: true} }
	stalled := g.add()
	t.Cleanup(release) // before the replicas stop
	g.ready(g.replicas...)
	conn, err := grpc.NewClient(health, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	serving := func(service string) bool {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
	}
	page := func(path string) (int, string) {
		resp, err := http.Get("http://" + stalled.AdminAddr().String() + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	seen := func() string {
		_, members := g.replicas[0].reporter.clusterStatus()
		for _, m := range members {
			if m.Name == stalled.o.Name {
				return m.State
			}
		}
		return "gone"
	}
	healthy := func() bool {
		live, _ := page("/healthz")
		ready, _ := page("/readyz")
		return serving("") && serving(listen.ServiceLiveness) && live == http.StatusOK && ready == http.StatusOK && seen() == "up"
	}
	testkit.Await(t, "healthy before", healthy)

	g.fleet.Engines()[0].Close() // the log line about it is never written
	testkit.Await(t, "stalled", func() bool { return len(stalled.dog.Stalled()) > 0 })
	start := time.Now()
	testkit.Await(t, "out everywhere", func() bool {
		live, text := page("/healthz")
		ready, _ := page("/readyz")
		return !serving("") && !serving(listen.ServiceLiveness) && live == http.StatusServiceUnavailable && strings.Contains(text, "engine health") &&
			ready == http.StatusServiceUnavailable
	})
	t.Logf("out %v after the watchdog", time.Since(start))
	testkit.Await(t, "peers take it for gone", func() bool { return seen() != "up" })
	t.Logf("out for peers %v after the watchdog: %s", time.Since(start), seen())
	testkit.Await(t, "flight record of the stall", func() bool {
		_, text := page("/debug/flight")
		return strings.Contains(text, `"trigger":"health"`) && strings.Contains(text, "stalled: engine health")
	})
	release()
	testkit.Await(t, "healthy again", healthy)
}

// TestReadyTimeoutCountsFromProcessStart: a replica whose process started long ago is ready at
// once, though no engine has been read and its vocabulary is not there.
func TestReadyTimeoutCountsFromProcessStart(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1})
	o.Started, o.ReadyTimeout = time.Now().Add(-time.Hour), time.Minute
	s := open(t, o)
	start := time.Now()
	testkit.Await(t, "ready", s.stage.settled.Load)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("ready after %v", took)
	}
}

// TestEndpointListStalls blocks an update of the endpoint list, which works in memory only. The
// replica reports the loop until the update ends.
func TestEndpointListStalls(t *testing.T) {
	g := newGroup(t, 1, 64, "mesh")
	s := g.replicas[0]
	g.ready(s)
	stalled := func() bool { return slices.Contains(s.dog.Stalled(), "endpoint list") }
	s.config.mu.Lock() // the update waits for this
	release := sync.OnceFunc(s.config.mu.Unlock)
	t.Cleanup(release) // before the replica stops
	if err := g.fleet.WriteEndpoints(filepath.Join(g.dir, "endpoints.yaml"), g.fleet.Endpoints()[0].Name); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the endpoint list stalls", stalled)
	release()
	testkit.Await(t, "the endpoint list goes on", func() bool { return !stalled() })
}
