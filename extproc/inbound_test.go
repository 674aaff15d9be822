package extproc

import (
	"bytes"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// seen is what the stream takes from a message.
type seen struct {
	Part                  int
	End, Observe          bool
	Headers               [][2]string
	Body                  string
	Subset                []string
	HasSubset             bool
	Served                string
	Config, Early         bool
	RequestMode, RespMode BodyMode
}

// seenByUs decodes with this package's decoder, from buffers that are
// overwritten afterwards.
func seenByUs(raw []byte, cut int) (s seen, err error) {
	var m inbound
	data := pieces(raw, cut)
	err = m.decode(data)
	data.Free()
	if err != nil {
		return s, err
	}
	defer m.free()
	s = seen{Part: int(m.part), End: m.end, Observe: m.observe, Body: string(m.bytes()), Served: served(m.metadata),
		Config: m.config.present, Early: m.config.early, RequestMode: m.config.request, RespMode: m.config.response}
	s.Subset, s.HasSubset = subset(m.metadata)
	for _, h := range m.headers {
		s.Headers = append(s.Headers, [2]string{h.name, h.value})
	}
	return s, nil
}

// seenByProto reads the same from the generated type.
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
			s.Headers = append(s.Headers, [2]string{v.GetKey(), value})
		}
		md := m.GetMetadataContext().GetFilterMetadata()
		s.Served = md[namespaceLB].GetFields()[keyServed].GetStringValue()
		hint, ok := md[namespaceSubset].GetFields()[keySubset]
		s.HasSubset = ok
		for _, e := range hint.GetListValue().GetValues() {
			s.Subset = appendList(s.Subset, []byte(e.GetStringValue()))
		}
		if hint.GetStringValue() != "" {
			s.Subset = appendList(nil, []byte(hint.GetStringValue()))
		}
	}
	body := func(part int, b *extprocv3.HttpBody) {
		s.Part, s.End, s.Body = part, b.GetEndOfStream(), string(b.GetBody())
	}
	switch r := m.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		headers(fieldRequestHeaders, r.RequestHeaders.GetHeaders(), r.RequestHeaders.GetEndOfStream())
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		headers(fieldResponseHeaders, r.ResponseHeaders.GetHeaders(), r.ResponseHeaders.GetEndOfStream())
	case *extprocv3.ProcessingRequest_RequestTrailers:
		headers(fieldRequestTrailers, r.RequestTrailers.GetTrailers(), false)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		headers(fieldResponseTrailers, r.ResponseTrailers.GetTrailers(), false)
	case *extprocv3.ProcessingRequest_RequestBody:
		body(fieldRequestBody, r.RequestBody)
	case *extprocv3.ProcessingRequest_ResponseBody:
		body(fieldResponseBody, r.ResponseBody)
	}
	return s
}

func sampleMessages() []*extprocv3.ProcessingRequest {
	e := exchange{request: BodyFullDuplex, response: BodyStreamed, in: [][]byte{[]byte("{}"), bytes.Repeat([]byte("y"), 40_000)},
		out: [][]byte{{}, []byte("z")}, inTrailers: true, outTrailer: true}
	list := e.messages()
	list[0].GetRequestHeaders().Headers.Headers = append(list[0].GetRequestHeaders().Headers.Headers,
		&corev3.HeaderValue{Key: "plain", Value: "text"}, &corev3.HeaderValue{Key: "empty"})
	setMetadata(list[0], namespaceSubset, keySubset, structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStringValue("10.0.0.1:80"), structpb.NewNumberValue(7), structpb.NewStringValue("[::1]:80")}}))
	setMetadata(list[len(list)-1], namespaceLB, keyServed, structpb.NewStringValue("10.0.0.1:80"))
	list[1].ObservabilityMode = true
	return append(list, &extprocv3.ProcessingRequest{})
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
	f.Fuzz(func(t *testing.T, raw []byte, cut int) {
		got, err := seenByUs(raw, cut)
		var m extprocv3.ProcessingRequest
		if proto.Unmarshal(raw, &m) != nil {
			return // enough that we did not panic
		}
		// Parts that come twice are merged by protobuf and replaced by us;
		// nobody sends them. The canonical encoding has each once.
		canonical, perr := proto.Marshal(&m)
		if perr != nil {
			return
		}
		if !bytes.Equal(canonical, raw) {
			got, err = seenByUs(canonical, cut)
		}
		if err != nil {
			t.Fatalf("%v, but protobuf reads it", err)
		}
		if d := cmp.Diff(seenByProto(&m), got); d != "" {
			t.Errorf("protobuf (-), we (+):\n%s", d)
		}
	})
}

// TestDirtyPool: what is lent has the asked length, and comes back only where
// it fits.
func TestDirtyPool(t *testing.T) {
	var p dirtyPool
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
		t.Errorf("a slice that was never lent came back with capacity %d", cap(*b))
	}
}
