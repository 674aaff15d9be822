package sidecar

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Encoder is the way in which encoded images and audio are transferred.
type Encoder uint8

// Encoders.
const (
	NoEncoder     Encoder = iota
	EncodeStorage         // through a shared store; responses are discarded
	EncodeNIXL            // responses contain transfer parameters for the next engine
)

// maxItems bounds the remotely encoded items of a request.
const maxItems = 256

var empty, _ = kvtransfer.Parse([]byte("{}"))

const keyEncoded = "ec_transfer_params"

// mediaTypes are the types of message parts that are encoded.
var mediaTypes = map[string]bool{"image_url": true, "audio_url": true, "video_url": true, "input_audio": true}

// items returns the distinct message parts to be encoded.
func items(body *kvtransfer.Object) (list [][]byte) {
	messages, _ := kvtransfer.Elements(body.Get("messages"))
	seen := map[string]bool{}
	for _, m := range messages {
		o, err := kvtransfer.Parse(m)
		if err != nil {
			continue
		}
		parts, _ := kvtransfer.Elements(o.Get("content"))
		for _, p := range parts {
			part, err := kvtransfer.Parse(p)
			if err != nil || !mediaTypes[kvtransfer.Text(part.Get("type"))] || seen[string(p)] || len(list) == maxItems {
				continue
			}
			seen[string(p)] = true
			list = append(list, p)
		}
	}
	return list
}

// traces are the tracing headers that are copied to encode legs.
var traces = []string{"Traceparent", "Tracestate", "Baggage"}

// encode encodes the request's images and audio remotely, in parallel over the encoders, and adds
// the results to the body. The next engine encodes failed items itself.
func (x *exchange) encode() {
	encoders, list := x.encoders, items(&x.body)
	if len(encoders) == 0 || len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.s.o.Prefill)
	defer cancel()
	id := x.s.o.UUID()
	answers := make([][]byte, len(list))
	var wg sync.WaitGroup
	for i, item := range list {
		wg.Go(func() { answers[i] = x.encodeItem(ctx, encoders[i%len(encoders)], id+"-enc-"+strconv.Itoa(i), item) })
	}
	wg.Wait()
	if x.s.o.Encoder != EncodeNIXL {
		return
	}
	var edits []kvtransfer.Edit
	for _, a := range answers {
		o, err := kvtransfer.Parse(kvtransfer.Find(a, keyEncoded))
		if err != nil {
			continue
		}
		for _, key := range o.Keys() {
			edits = append(edits, kvtransfer.Edit{Key: key, Value: o.Get(key)})
		}
	}
	if edits == nil {
		return
	}
	if body, err := kvtransfer.Parse(x.body.With(kvtransfer.Edit{Key: keyEncoded, Value: empty.With(edits...)})); err == nil {
		x.body = body
	}
}

// encodeItem returns an encoder's response, or nil if it failed.
func (x *exchange) encodeItem(ctx context.Context, target, id string, item []byte) []byte {
	one := []byte("1")
	edits := []kvtransfer.Edit{
		{Key: "messages", Value: []byte(`[{"role":"user","content":[` + string(item) + `]}]`)},
		{Key: "max_tokens", Value: one}, {Key: "stream", Value: []byte("false")}, {Key: "stream_options"},
	}
	for _, key := range []string{"max_completion_tokens", "min_tokens"} {
		if x.body.Get(key) != nil {
			edits = append(edits, kvtransfer.Edit{Key: key, Value: one})
		}
	}
	body := x.body.With(edits...)
	u := &url.URL{Scheme: "http", Host: target, Path: "/v1/chat/completions"}
	if x.s.o.EncodeTLS {
		u.Scheme = "https"
	}
	r := (&http.Request{
		Method: http.MethodPost, URL: u, Host: target, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {id}},
	}).WithContext(ctx)
	for _, name := range traces {
		if v := x.r.Header.Values(name); v != nil {
			r.Header[name] = v
		}
	}
	span := x.beginLeg(tracing.SpanEncode, target)
	defer span.End()
	x.continueTrace(r.Header, span)
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		span.Fail(faultOf(err).String(), err.Error())
		x.s.m.encodes.WithLabelValues(faultOf(err).String()).Inc()
		return nil
	}
	defer resp.Body.Close()
	span.SetInt(tracing.Status, resp.StatusCode)
	answer, err := x.in.ReadAll(io.LimitReader(resp.Body, x.s.o.MaxBody), resp.ContentLength)
	if err != nil || resp.StatusCode != http.StatusOK {
		span.Fail(kvtransfer.Failed.String(), "the encoder did not answer the request")
		x.s.m.encodes.WithLabelValues(kvtransfer.Failed.String()).Inc()
		return nil
	}
	x.s.m.encodes.WithLabelValues("ok").Inc()
	return answer
}
