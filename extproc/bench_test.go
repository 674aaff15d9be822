package extproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// BenchmarkStream reports the processor time that the serving side spends on
// one request in full duplex, gRPC included, as server-µs/op.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{1 << 10, 40 << 10, 400 << 10} {
		b.Run(fmt.Sprintf("body=%dKiB", size>>10), func(b *testing.B) { benchStream(b, size) })
	}
}

func benchStream(b *testing.B, size int) {
	picker := startChild(b, "10.0.0.1:8000,10.0.0.2:8000")
	conn, err := grpc.NewClient(picker.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	client := extprocv3.NewExternalProcessorClient(conn)
	messages := duplexMessages(size)
	var left atomic.Int64
	left.Store(int64(b.N))
	started := picker.cpu(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := oneStream(client, messages, size); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	conn.Close()
	used := picker.stop() - started
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "server-µs/op")
}

// duplexMessages returns the messages that Envoy sends for one request and its short answer.
func duplexMessages(size int) (list []*extprocv3.ProcessingRequest) {
	header := func(kv ...string) *extprocv3.HttpHeaders {
		m := &corev3.HeaderMap{}
		for i := 0; i < len(kv); i += 2 {
			m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
		}
		return &extprocv3.HttpHeaders{Headers: m}
	}
	list = append(list, &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: header(
			":authority", "gateway.example", ":path", "/v1/chat/completions", ":method", "POST", ":scheme", "http",
			"user-agent", "OpenAI/Python 1.99.0", "content-type", "application/json", "content-length", fmt.Sprint(size),
			"accept", "application/json", "accept-encoding", "gzip, deflate", "authorization", "Bearer sk-0123456789",
			"x-stainless-lang", "python", "x-stainless-os", "Linux", "x-request-id", "6f1c2f0e-3a51-4a3c-9f50-2a30b6b0c111",
			"x-forwarded-for", "10.1.2.3", "x-forwarded-proto", "http", "x-envoy-internal", "true")},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{
			RequestBodyMode:  filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
		},
	})
	body := requestBody(size, "m")
	for len(body) > 0 {
		n := min(16<<10, len(body))
		list = append(list, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: body[:n], EndOfStream: n == len(body)}}})
		body = body[n:]
	}
	return append(list,
		&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: header(
			":status", "200", "content-type", "application/json", "content-length", "500", "date", "Mon, 01 Jan 2026 00:00:00 GMT")}},
		&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: &extprocv3.HttpBody{Body: objectAnswer(500), EndOfStream: true}}},
	)
}

// oneStream plays one request and checks the number of returned bytes.
func oneStream(client extprocv3.ExternalProcessorClient, messages []*extprocv3.ProcessingRequest, size int) error {
	stream, err := client.Process(context.Background())
	if err != nil {
		return err
	}
	responseAt := len(messages) - 2
	for _, m := range messages[:responseAt] {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	got := 0
	for end := false; !end; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		chunk := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		got += len(chunk.GetBody())
		end = chunk.GetEndOfStream()
	}
	if got < size {
		return fmt.Errorf("%d bytes came back, want %d", got, size)
	}
	for _, m := range messages[responseAt:] {
		if err := stream.Send(m); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("end of stream: %w", err)
	}
	return nil
}
