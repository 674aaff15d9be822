package extproc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// resets returns the HTTP/2 bytes of n streams that are opened and reset.
func resets(n int, headers ...hpack.HeaderField) []byte {
	b := bytes.NewBufferString(http2.ClientPreface)
	f := http2.NewFramer(b, nil)
	_ = f.WriteSettings()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, h := range headers {
			_ = e.WriteField(h)
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true})
		_ = f.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
	}
	return b.Bytes()
}

// write sends the bytes of an untrusted client, and discards the answer, until the other side
// closes the connection.
func write(c net.Conn, text []byte) {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	_, _ = c.Write(text)
}

// value returns a counter of reg with a label's value, 0 if there is none.
func value(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestResetsArePaced has untrusted clients open and reset streams at both listeners. After a few
// hundred, their connections are delayed, which is counted. The server can stop during the delay.
func TestResetsArePaced(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, ready := opened(t, extproc.Options{Registerer: reg}, extproc.Listen{HealthAddress: "127.0.0.1:0", Listeners: budget.NewListeners(nil, reg)})
	ready.Set(true)
	call := func(method string) []byte {
		const many = 50_000
		return resets(many, hpack.HeaderField{Name: ":method", Value: "POST"}, hpack.HeaderField{Name: ":scheme", Value: "https"}, hpack.HeaderField{Name: ":path", Value: method},
			hpack.HeaderField{Name: ":authority", Value: "x"}, hpack.HeaderField{Name: "content-type", Value: "application/grpc"}, hpack.HeaderField{Name: "te", Value: "trailers"})
	}
	unsafe := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	main, err := tls.Dial("tcp", s.Addr().String(), unsafe)
	if err != nil {
		t.Fatal(err)
	}
	defer main.Close()
	health, err := net.Dial("tcp", s.HealthAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer health.Close()
	go write(main, call(extprocv3.ExternalProcessor_Process_FullMethodName))
	go write(health, call(healthpb.Health_Watch_FullMethodName))
	for _, listener := range []string{"ext_proc", "health"} {
		testkit.Await(t, "a connection to wait", func() bool {
			return value(t, reg, "grapevine_connections_paced_total", listener) == 1
		})
	}
	if _, err := healthpb.NewHealthClient(dial(t, s.Addr(), credentials.NewTLS(unsafe))).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// TestEnvoyIsNotPaced has clients of Envoy open and reset streams. Envoy opens a stream to the
// picker for each, and its connection must not be delayed, since other clients use it too.
func TestEnvoyIsNotPaced(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, rigOptions{options: extproc.Options{Registerer: reg}, bounds: budget.NewListeners(nil, reg)})
	text := resets(400, hpack.HeaderField{Name: ":method", Value: "POST"}, hpack.HeaderField{Name: ":scheme", Value: "http"}, hpack.HeaderField{Name: ":path", Value: "/v1/completions"},
		hpack.HeaderField{Name: ":authority", Value: "x"}, hpack.HeaderField{Name: "content-type", Value: "application/json"})
	for want := 2000.0; value(t, reg, "grapevine_extproc_streams_total", "cancelled")+value(t, reg, "grapevine_extproc_streams_total", "closed") < want; {
		c, err := net.Dial("tcp", r.envoy.Addr("inference"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(text)
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
	if n := value(t, reg, "grapevine_connections_paced_total", "ext_proc"); n != 0 {
		t.Errorf("%g connections of Envoy wait", n)
	}
	if resp, _, err := r.do(t.Context(), call{size: 1000, model: "m"}); err != nil || resp.StatusCode != http.StatusOK {
		t.Error(resp, err)
	}
}
