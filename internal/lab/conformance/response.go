package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// reply is an engine's response as a proxy forwards it.
type reply struct {
	status      int
	contentType string
	servedBy    string   // endpoint in the metadata; "" for none
	chunks      []string // body; nil for a response that ends with its headers
	trailers    bool
	stepwise    bool // each chunk must come back before the next one is sent
}

// returned is what the picker made of a response.
type returned struct {
	set  map[string]string
	body strings.Builder
}

func (r reply) head() (*extproc.ProcessingRequest, error) {
	m := &extproc.ProcessingRequest{
		Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{
			EndOfStream: r.chunks == nil && !r.trailers,
			Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
				{Key: ":status", RawValue: []byte(strconv.Itoa(r.status))}, {Key: "content-type", RawValue: []byte(r.contentType)},
			}},
		}},
	}
	if r.servedBy != "" {
		st, err := structpb.NewStruct(map[string]any{served: r.servedBy})
		if err != nil {
			return nil, err
		}
		m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespaceLB: st}}
	}
	return m, nil
}

// respond sends a response in full duplex and collects the answer.
func (a *answer) respond(r reply) (*returned, error) {
	head, err := r.head()
	if err != nil {
		return nil, err
	}
	a.sending.Wait()
	a.context = head.GetMetadataContext()
	if err := a.send(head); err != nil {
		return nil, err
	}
	out := &returned{set: map[string]string{}}
	headersOnly := r.chunks == nil && !r.trailers
	if err := a.collect(out, func(m *extproc.ProcessingResponse) bool { return m.GetResponseHeaders() != nil }, headersOnly || r.stepwise); err != nil || headersOnly {
		return out, err
	}
	sent := 0
	for i, chunk := range r.chunks {
		last := i == len(r.chunks)-1 && !r.trailers
		if err := a.send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: &extproc.HttpBody{Body: []byte(chunk), EndOfStream: last}}}); err != nil {
			return out, err
		}
		sent += len(chunk)
		if err := a.collect(out, func(*extproc.ProcessingResponse) bool { return out.body.Len() >= sent }, r.stepwise && !last); err != nil {
			return out, fmt.Errorf("after piece %d of %d: %w", i+1, len(r.chunks), err)
		}
	}
	if r.trailers {
		if err := a.send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{Trailers: &corev3.HeaderMap{}}}}); err != nil {
			return out, err
		}
	}
	return out, a.collect(out, func(m *extproc.ProcessingResponse) bool {
		return m.GetResponseTrailers() != nil || !r.trailers && m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream()
	}, true)
}

// collect reads messages up to the last one. It does nothing unless wanted.
func (a *answer) collect(out *returned, last func(*extproc.ProcessingResponse) bool, wanted bool) error {
	for wanted {
		m, err := a.stream.Recv()
		if err != nil {
			return endOf(err)
		}
		if m.GetImmediateResponse() != nil {
			return errors.New("an immediate response to an engine's response")
		}
		for _, h := range m.GetResponseHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
			v := h.GetHeader().GetValue()
			if raw := h.GetHeader().GetRawValue(); len(raw) > 0 {
				v = string(raw)
			}
			out.set[strings.ToLower(h.GetHeader().GetKey())] = v
		}
		out.body.Write(m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
		if last(m) {
			return nil
		}
	}
	return nil
}
