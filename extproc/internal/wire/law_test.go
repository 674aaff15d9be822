package wire

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfMessages: the work for a message is proportional to its length, in one piece or many.
func TestWorkOfMessages(t *testing.T) {
	headers := func(n int, header func(i int) *corev3.HeaderValue) *extprocv3.ProcessingRequest {
		list := &corev3.HeaderMap{}
		for i := range n / 24 {
			list.Headers = append(list.Headers, header(i))
		}
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: list}}}
	}
	withStruct := func(s *structpb.Struct) *extprocv3.ProcessingRequest {
		m := headers(240, func(int) *corev3.HeaderValue { return &corev3.HeaderValue{Key: "a"} })
		m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb.subset_hint": s, "envoy.lb": s}}
		m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": s}
		return m
	}
	for name, message := range map[string]func(n int) *extprocv3.ProcessingRequest{
		"headers": func(n int) *extprocv3.ProcessingRequest {
			return headers(n, func(i int) *corev3.HeaderValue {
				return &corev3.HeaderValue{Key: fmt.Sprint("X-", i), RawValue: []byte("v")}
			})
		},
		"equal headers": func(n int) *extprocv3.ProcessingRequest {
			return headers(n, func(int) *corev3.HeaderValue { return &corev3.HeaderValue{Key: "x", Value: "v"} })
		},
		"members": func(n int) *extprocv3.ProcessingRequest {
			s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
			for i := range n / 24 {
				s.Fields[fmt.Sprint("m", i)] = structpb.NewNumberValue(1)
			}
			return withStruct(s)
		},
		"a subset": func(n int) *extprocv3.ProcessingRequest {
			return withStruct(&structpb.Struct{Fields: map[string]*structpb.Value{"x-gateway-destination-endpoint-subset": structpb.NewStringValue(strings.Repeat("10.0.0.1:8000,", n/14))}})
		},
		"a body": func(n int) *extprocv3.ProcessingRequest {
			return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: make([]byte, n)}}}
		},
	} {
		for _, cut := range []int{0, 100} {
			testkit.Linear(t, fmt.Sprint(name, ", cut at ", cut), func(n int) func() {
				raw, err := proto.Marshal(message(n))
				if err != nil {
					t.Fatal(err)
				}
				return func() {
					var m Inbound
					if err := m.Decode(testkit.Pieces(raw, cut)); err == nil {
						Subset(m.Metadata)
						Served(m.Metadata)
					}
					m.Free()
				}
			})
		}
	}
}

// TestMemoryOfHeaders: thousands of headers take the memory of their list once, and trailers, which
// are not used, none.
func TestMemoryOfHeaders(t *testing.T) {
	const fields = 20_000
	list := &corev3.HeaderMap{}
	for i := range fields {
		list.Headers = append(list.Headers, &corev3.HeaderValue{Key: fmt.Sprint("x-", i), RawValue: []byte("v")})
	}
	for name, c := range map[string]struct {
		m    *extprocv3.ProcessingRequest
		most int // bytes
	}{
		"headers":           {&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: list}}}, fields * 48},
		"request trailers":  {&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{Trailers: list}}}, 4 << 10},
		"response trailers": {&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{Trailers: list}}}, 4 << 10},
	} {
		raw, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		const rounds = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			var m Inbound
			if err := m.Decode(testkit.Pieces(raw, 0)); err != nil {
				t.Fatal(err)
			}
			m.Free()
		}
		runtime.ReadMemStats(&after)
		sent := len(raw) + 8<<10 // the memory of the message
		if testkit.Raced {
			c.most *= 2 // a growing list is allocated before it is copied
		}
		if n := int(after.TotalAlloc-before.TotalAlloc) / rounds; n > sent+c.most {
			t.Errorf("%s: %d bytes for %d fields, want %d at most", name, n-sent, fields, c.most)
		}
	}
}
