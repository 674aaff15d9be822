package wire

import (
	"bytes"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// seen is the data that a stream uses from a message.
type seen struct {
	Part                  int
	End, Observe          bool
	Headers               [][2]string
	Body                  string
	Subset                []string
	HasSubset             bool
	Served                string
	Config, Early         bool
	RequestMode, RespMode filterv3.ProcessingMode_BodySendMode
}

// seenByUs decodes with this package's decoder, from buffers that are overwritten afterwards.
func seenByUs(raw []byte, cut int) (s seen, err error) {
	var m Inbound
	data := testkit.Pieces(raw, cut)
	err = m.Decode(data)
	data.Free()
	if err != nil {
		return s, err
	}
	defer m.Free()
	s = seen{Part: int(m.Part), End: m.End, Observe: m.Observe, Body: string(m.Bytes()), Served: Served(m.Metadata),
		Config: m.Config.Present, Early: m.Config.Early, RequestMode: m.Config.Request, RespMode: m.Config.Response}
	s.Subset, s.HasSubset = Subset(m.Metadata)
	for _, h := range m.Headers {
		s.Headers = append(s.Headers, [2]string{h.Name, h.Value})
	}
	return s, nil
}

// asciiLower is the normal form of header names.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

func seenByProto(m *extprocv3.ProcessingRequest) (s seen) {
	s = seen{Observe: m.ObservabilityMode, Config: m.ProtocolConfig != nil,
		Early:       m.GetProtocolConfig().GetSendBodyWithoutWaitingForHeaderResponse(),
		RequestMode: m.GetProtocolConfig().GetRequestBodyMode(), RespMode: m.GetProtocolConfig().GetResponseBodyMode()}
	headers := func(part int, h *corev3.HeaderMap, end bool) {
		s.Part, s.End = part, end
		for _, v := range h.GetHeaders() {
			value := v.GetValue()
			if len(v.GetRawValue()) > 0 {
				value = string(v.GetRawValue())
			}
			s.Headers = append(s.Headers, [2]string{asciiLower(v.GetKey()), value})
		}
		md := m.GetMetadataContext().GetFilterMetadata()
		s.Served = md[NamespaceLB].GetFields()[KeyServed].GetStringValue()
		hint, ok := md[NamespaceSubset].GetFields()[KeySubset]
		s.HasSubset = ok
		for _, e := range hint.GetListValue().GetValues() {
			s.Subset = AppendList(s.Subset, []byte(e.GetStringValue()))
		}
		if hint.GetStringValue() != "" {
			s.Subset = AppendList(nil, []byte(hint.GetStringValue()))
		}
	}
	body := func(part int, b *extprocv3.HttpBody) {
		s.Part, s.End, s.Body = part, b.GetEndOfStream(), string(b.GetBody())
	}
	switch r := m.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		headers(FieldRequestHeaders, r.RequestHeaders.GetHeaders(), r.RequestHeaders.GetEndOfStream())
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		headers(FieldResponseHeaders, r.ResponseHeaders.GetHeaders(), r.ResponseHeaders.GetEndOfStream())
	case *extprocv3.ProcessingRequest_RequestTrailers:
		headers(FieldRequestTrailers, nil, false) // not used
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		headers(FieldResponseTrailers, nil, false)
	case *extprocv3.ProcessingRequest_RequestBody:
		body(FieldRequestBody, r.RequestBody)
	case *extprocv3.ProcessingRequest_ResponseBody:
		body(FieldResponseBody, r.ResponseBody)
	}
	return s
}

// metadata is one metadata entry of a request.
func metadata(namespace, key string, v *structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: {Fields: map[string]*structpb.Value{key: v}}}}
}

// sampleMessages has one message per part, and some unusual ones.
func sampleMessages() []*extprocv3.ProcessingRequest {
	headers := func(end bool, list ...*corev3.HeaderValue) *extprocv3.HttpHeaders {
		return &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: list}, EndOfStream: end}
	}
	subset := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStringValue("10.0.0.1:80"), structpb.NewNumberValue(7), structpb.NewStringValue("[::1]:80")}})
	return []*extprocv3.ProcessingRequest{
		{
			Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(false,
				&corev3.HeaderValue{Key: HeaderPath, RawValue: []byte("/v1/completions")}, &corev3.HeaderValue{Key: "plain", Value: "text"},
				&corev3.HeaderValue{Key: "empty"})},
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
				ResponseBodyMode: filterv3.ProcessingMode_STREAMED, SendBodyWithoutWaitingForHeaderResponse: true},
			MetadataContext: metadata(NamespaceSubset, KeySubset, subset),
		},
		{
			Request:           &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte("{}")}},
			ObservabilityMode: true,
		},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: bytes.Repeat([]byte("y"), 40_000), EndOfStream: true}}},
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(true, &corev3.HeaderValue{Key: HeaderStatus, RawValue: []byte("200")})}},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{}}},
		{
			Request:         &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}},
			MetadataContext: metadata(NamespaceLB, KeyServed, structpb.NewStringValue("10.0.0.1:80")),
		},
		{},
	}
}

// FuzzInbound compares this package's decoder with the generated one.
func FuzzInbound(f *testing.F) {
	for i, m := range sampleMessages() {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, i*5)
	}
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, raw []byte, cut int) {
		got, err := seenByUs(raw, cut)
		var m extprocv3.ProcessingRequest
		if proto.Unmarshal(raw, &m) != nil {
			return // it did not panic
		}
		// Duplicate parts are merged by protobuf and replaced here. No proxy sends them, and the
		// canonical encoding has each part once.
		canonical, perr := proto.Marshal(&m)
		if perr != nil {
			return
		}
		if !bytes.Equal(canonical, raw) {
			got, err = seenByUs(canonical, cut)
		}
		if err != nil {
			t.Fatalf("%v, but protobuf decodes it", err)
		}
		if d := cmp.Diff(seenByProto(&m), got); d != "" {
			t.Errorf("protobuf (-), wire (+):\n%s", d)
		}
	})
}

// TestDirtyPool: Get returns slices of the requested length, and Put accepts only slices of a
// tier's size.
func TestDirtyPool(t *testing.T) {
	var p Pool
	for _, n := range []int{0, 1, 2048, 2049, 64 << 10, 4 << 20, 4<<20 + 1} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("Get(%d) has length %d", n, len(*b))
		}
		p.Put(b)
		if again := p.Get(n); len(*again) != n {
			t.Errorf("second Get(%d) has length %d", n, len(*again))
		}
	}
	odd := make([]byte, 3000)
	p.Put(&odd)
	if b := p.Get(3000); cap(*b) != 4096 {
		t.Errorf("Get returned a foreign slice with capacity %d", cap(*b))
	}
}

// TestTruncatedHeadersAreRefused: a message whose headers end within a field is an error.
func TestTruncatedHeadersAreRefused(t *testing.T) {
	for _, part := range [][]byte{{0x0a}, {0x0a, 5}, {0x0a, 5, 1}, {0x18}, {0x18, 0x80}} {
		var m Inbound
		if err := m.decodeHeaders(part); err == nil {
			t.Errorf("decodeHeaders(%x) accepts a truncated message", part)
		}
	}
}
