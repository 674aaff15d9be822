package extproc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// opened starts a server for tests of its listeners and health, not of the protocol.
func opened(t *testing.T, o extproc.Options, l extproc.Listen) (*extproc.Server, *listen.Readiness) {
	t.Helper()
	if o.Chooser == nil {
		o.Chooser = &book{endpoints: []string{"10.0.0.1:80"}}
	}
	o.Parse = request.Parse
	p, err := extproc.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l.Readiness = listen.NewReadiness()
	if l.Address == "" {
		l.Address = "127.0.0.1:0"
	}
	s, err := extproc.Open(p, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopPicker(t, s) })
	return s, l.Readiness
}

func dial(t *testing.T, addr net.Addr, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestHealth(t *testing.T) {
	s, ready := opened(t, extproc.Options{}, extproc.Listen{TLS: listen.TLS{Plaintext: true}, HealthAddress: "127.0.0.1:0"})
	for _, addr := range []net.Addr{s.Addr(), s.HealthAddr()} {
		client := healthpb.NewHealthClient(dial(t, addr, insecure.NewCredentials()))
		for _, up := range []bool{false, true, false} {
			ready.Set(up)
			for name, alive := range map[string]bool{"": up, listen.ServiceReadiness: up, listen.ServiceExtProc: up, listen.ServiceLiveness: true, "inference-extension": up} {
				got, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
				if err != nil || (got.Status == healthpb.HealthCheckResponse_SERVING) != alive {
					t.Errorf("%v, ready=%t, service %q: %v, %v", addr, up, name, got, err)
				}
			}
		}
	}
}

func TestHealthWatch(t *testing.T) {
	s, ready := opened(t, extproc.Options{}, extproc.Listen{TLS: listen.TLS{Plaintext: true}})
	client := healthpb.NewHealthClient(dial(t, s.Addr(), insecure.NewCredentials()))
	watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: listen.ServiceExtProc})
	if err != nil {
		t.Fatal(err)
	}
	for _, up := range []bool{false, true} {
		ready.Set(up)
		for {
			m, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if (m.Status == healthpb.HealthCheckResponse_SERVING) == up {
				break
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.HangTimeout)
	defer cancel()
	if err := s.Stop(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("a watch held up the stop: %v, %v", err, ctx.Err())
	}
}

// TestStopCuts: Stop waits for open streams up to its limit, then cuts them, and their decisions
// are released.
func TestStopCuts(t *testing.T) {
	b := &book{endpoints: []string{"10.0.0.1:80"}}
	s, _ := opened(t, extproc.Options{Chooser: b}, extproc.Listen{TLS: listen.TLS{Plaintext: true}})
	stream, err := extprocv3.NewExternalProcessorClient(dial(t, s.Addr(), insecure.NewCredentials())).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{EndOfStream: true}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	b.settle(t)
	if len(b.outcomes) != 1 || b.outcomes[0].Complete {
		t.Errorf("outcomes %+v", b.outcomes)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

// TestCompressedMessages: a stream with compressed messages is refused before they are decompressed. One that
// announces no compression is served.
func TestCompressedMessages(t *testing.T) {
	s, _ := opened(t, extproc.Options{Chooser: &book{endpoints: []string{"10.0.0.1:80"}}}, extproc.Listen{TLS: listen.TLS{Plaintext: true}})
	client := extprocv3.NewExternalProcessorClient(dial(t, s.Addr(), insecure.NewCredentials()))
	for name, want := range map[string]codes.Code{gzip.Name: codes.Unimplemented, encoding.Identity: codes.OK} {
		stream, err := client.Process(t.Context(), grpc.UseCompressor(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: &extprocv3.HttpHeaders{EndOfStream: true}}}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// peer returns the certificate that a server shows.
func peer(t *testing.T, addr net.Addr) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", addr.String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// writePair writes a fresh certificate and its key.
func writePair(t *testing.T, certFile, keyFile string) {
	t.Helper()
	cert, err := listen.SelfSigned(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) {
		at := time.Now()
		if info, err := os.Stat(name); err == nil {
			at = info.ModTime().Add(time.Second) // also within one tick of the file system's clock
		}
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(certFile, "CERTIFICATE", cert.Certificate[0])
	write(keyFile, "PRIVATE KEY", key)
}

func TestSelfSigned(t *testing.T) {
	s, ready := opened(t, extproc.Options{}, extproc.Listen{})
	ready.Set(true)
	creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	client := healthpb.NewHealthClient(dial(t, s.Addr(), creds))
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if err := peer(t, s.Addr()).VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
}

// TestCertificateReload: new files are served without a restart, broken ones
// leave the old certificate in place.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePair(t, certFile, keyFile)
	var log parts.Output
	s, _ := opened(t, extproc.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, extproc.Listen{TLS: listen.TLS{CertFile: certFile, KeyFile: keyFile}})
	first := peer(t, s.Addr())
	writePair(t, certFile, keyFile)
	testkit.Await(t, "the new certificate", func() bool { return !peer(t, s.Addr()).Equal(first) })
	second := peer(t, s.Addr())
	if err := os.WriteFile(certFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the broken file was looked at", func() bool {
		if !peer(t, s.Addr()).Equal(second) {
			t.Fatal("a broken file replaced the certificate")
		}
		return strings.Contains(log.String(), "not reloaded")
	})
}

func TestOpenFails(t *testing.T) {
	if _, err := extproc.New(extproc.Options{Parse: request.Parse}); err == nil {
		t.Error("New without a chooser")
	}
	if _, err := extproc.New(extproc.Options{Chooser: &book{}}); err == nil {
		t.Error("New without a parser")
	}
	reg := prometheus.NewRegistry()
	p, err := extproc.New(extproc.Options{Chooser: &book{}, Parse: request.Parse, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := extproc.New(extproc.Options{Chooser: &book{}, Parse: request.Parse, Registerer: reg}); err == nil {
		t.Error("New with metrics that exist")
	}
	ready := listen.NewReadiness()
	for name, l := range map[string]extproc.Listen{
		"no readiness":       {Address: "127.0.0.1:0"},
		"bad address":        {Address: "nowhere", Readiness: ready},
		"bad health address": {Address: "127.0.0.1:0", HealthAddress: "nowhere", Readiness: ready},
		"no such files":      {Address: "127.0.0.1:0", Readiness: ready, TLS: listen.TLS{CertFile: "/nonexistent", KeyFile: "/nonexistent"}},
	} {
		if s, err := extproc.Open(p, l); err == nil {
			stopPicker(t, s)
			t.Errorf("%s: no error", name)
		}
	}
}

// TestMetrics: names and labels as users see them.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := &book{endpoints: []string{"10.0.0.1:80"}, refuse: map[string]request.Reason{"busy": request.ReasonSaturated}}
	s, _ := opened(t, extproc.Options{Chooser: b, Registerer: reg}, extproc.Listen{TLS: listen.TLS{Plaintext: true}})
	client := extprocv3.NewExternalProcessorClient(dial(t, s.Addr(), insecure.NewCredentials()))
	if err := oneStream(client, duplexMessages(1000), 1000); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the stream's end in the metrics", func() bool {
		n, err := testutil.GatherAndCount(reg, "grapevine_extproc_streams_total")
		return err == nil && n == 1
	})
	answer := len(objectAnswer(500))
	want := strings.NewReader(`
# HELP grapevine_extproc_body_bytes_total Body bytes that passed through, by direction.
# TYPE grapevine_extproc_body_bytes_total counter
grapevine_extproc_body_bytes_total{direction="request"} ` + strconv.Itoa(len(requestBody(1000, "m"))) + `
grapevine_extproc_body_bytes_total{direction="response"} ` + strconv.Itoa(answer) + `
# HELP grapevine_extproc_requests_total Requests by result: placed, answered in the engines' place, or the reason of the refusal.
# TYPE grapevine_extproc_requests_total counter
grapevine_extproc_requests_total{result="placed"} 1
# HELP grapevine_extproc_streams Open ext_proc streams.
# TYPE grapevine_extproc_streams gauge
grapevine_extproc_streams 0
# HELP grapevine_extproc_streams_total Ended ext_proc streams by how they ended.
# TYPE grapevine_extproc_streams_total counter
grapevine_extproc_streams_total{end="complete"} 1
`)
	names := []string{"grapevine_extproc_body_bytes_total", "grapevine_extproc_requests_total", "grapevine_extproc_streams", "grapevine_extproc_streams_total"}
	if err := testutil.GatherAndCompare(reg, want, names...); err != nil {
		t.Error(err)
	}
}

// TestLongMetadata sends a stream with longer headers than any proxy's. Both listeners reject them
// with an error.
func TestLongMetadata(t *testing.T) {
	s, _ := opened(t, extproc.Options{}, extproc.Listen{TLS: listen.TLS{Plaintext: true}, HealthAddress: "127.0.0.1:0"})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("v", 128<<10))
	for _, addr := range []net.Addr{s.Addr(), s.HealthAddr()} {
		client := healthpb.NewHealthClient(dial(t, addr, insecure.NewCredentials()))
		if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err == nil {
			t.Errorf("%v takes 128 KiB of metadata", addr)
		}
	}
}
