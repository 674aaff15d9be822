package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// BenchmarkTracing measures what a request costs without tracing, with one of a hundred requests
// sampled, and with all. Clients, picker and a collector that discards spans share one process, so
// that the cost of tracing is the difference between rows.
func BenchmarkTracing(b *testing.B) {
	for _, c := range []struct{ name, ratio string }{{"off", ""}, {"sampled 1%", "0.01"}, {"sampled 100%", "1"}} {
		b.Run(c.name, func(b *testing.B) { benchRequests(b, c.ratio, func(*Options) {}) })
	}
}

// BenchmarkFlight measures what a request costs without and with the flight recorder's execution
// trace.
func BenchmarkFlight(b *testing.B) {
	for _, c := range []struct {
		name  string
		trace time.Duration
	}{{"off", 0}, {"5s", 5 * time.Second}} {
		b.Run(c.name, func(b *testing.B) {
			benchRequests(b, "", func(o *Options) { o.FlightTrace, o.SlowDecision = c.trace, time.Minute })
		})
	}
}

// benchRequests plays requests through a replica. ratio is the share of traced requests; "" disables
// tracing.
func benchRequests(b *testing.B, ratio string, change func(*Options)) {
	if ratio != "" {
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		defer collector.Close()
		b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
		b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
		b.Setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
		b.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100000")
	}
	file := filepath.Join(b.TempDir(), "endpoints.yaml")
	fleet, err := fleet.Open(fleet.Options{Engines: 8, EndpointsFile: file})
	if err != nil {
		b.Fatal(err)
	}
	defer fleet.Close()
	o := Options{
		Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: file, Linger: -1,
		TLS: listen.TLS{Plaintext: true}, Log: slog.New(slog.DiscardHandler),
	}
	change(&o)
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Stop(context.Background()) }()
	conn, err := grpc.NewClient(s.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	client := extprocv3.NewExternalProcessorClient(conn)
	if !testkit.PollUntil(func() bool { err = playOne(client); return err == nil }) {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	before := processorTime()
	b.ResetTimer()
	for range 4 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := playOne(client); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
}
