package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// eightPlaces has requests wait for one of eight places.
const eightPlaces = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, name: gate, parameters: {maxConcurrency: 8}}
flowControl: {saturationDetector: {pluginRef: gate}, defaultRequestTTL: 10m}
`

// BenchmarkWaitsOverGRPC schedules requests over ext_proc, with and without a queue in front of
// eight permits. Clients and the picker share one process, so the cost of waiting is the difference
// between rows.
func BenchmarkWaitsOverGRPC(b *testing.B) {
	for _, c := range []struct {
		name, config string
		clients      int
	}{{"no queue", "", 8}, {"nobody waits", eightPlaces, 8}, {"two wait", eightPlaces, 10}, {"a thousand wait", eightPlaces, 1008}} {
		b.Run(c.name, func(b *testing.B) { benchWaits(b, c.config, c.clients) })
	}
}

func benchWaits(b *testing.B, config string, clients int) {
	file := filepath.Join(b.TempDir(), "endpoints.yaml")
	fleet, err := fleet.Open(fleet.Options{Engines: 1, EndpointsFile: file})
	if err != nil {
		b.Fatal(err)
	}
	defer fleet.Close()
	s, err := Open(Options{
		Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: file, Linger: -1, ConfigText: config,
		TLS: listen.TLS{Plaintext: true}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Stop(context.Background()) }()
	var links []extprocv3.ExternalProcessorClient // Envoy has some connections, too
	for range 8 {
		conn, err := grpc.NewClient(s.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		links = append(links, extprocv3.NewExternalProcessorClient(conn))
	}
	if !testkit.PollUntil(func() bool { err = playOne(links[0]); return err == nil }) { // the list of models is read
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	before := processorTime()
	b.ResetTimer()
	for i := range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := playOne(links[i%len(links)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// playOne is a request without an answer's body: it has its place until the answer's headers.
func playOne(client extprocv3.ExternalProcessorClient) error {
	stream, err := client.Process(context.Background())
	if err != nil {
		return err
	}
	head := func(kv ...string) *extprocv3.HttpHeaders {
		m := &corev3.HeaderMap{}
		for i := 0; i < len(kv); i += 2 {
			m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
		}
		return &extprocv3.HttpHeaders{Headers: m}
	}
	body := []byte(fmt.Sprintf(`{"model":%q,"prompt":"Hello","max_tokens":1}`, vocab.Name))
	for _, m := range []*extprocv3.ProcessingRequest{
		{
			Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head(":authority", "gateway", ":path", "/v1/completions", ":method", "POST", "content-type", "application/json")},
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED},
		},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: true}}},
	} {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	for placed := false; !placed; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if r := m.GetImmediateResponse(); r != nil {
			return fmt.Errorf("refused: %d %s", r.GetStatus().GetCode(), r.GetBody())
		}
		placed = m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream()
	}
	answer := head(":status", "200", "content-type", "application/json")
	answer.EndOfStream = true
	if err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: answer}}); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("end of stream: %w", err)
	}
	return nil
}
