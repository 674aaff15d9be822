package extproc

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestScripts plays the streams of testdata/*.txt. Each line of a script is a message from the
// proxy, each line of the answer is one from the processor.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return playScript(t, d)
		})
	})
}

// reasons are the refusals that a script can ask for.
var reasons = map[string]request.Reason{
	"bad-request": request.ReasonBadRequest, "model-not-found": request.ReasonModelNotFound,
	"no-endpoints": request.ReasonNoEndpoints, "saturated": request.ReasonSaturated,
	"ttl-expired": request.ReasonTTLExpired, "cancelled": request.ReasonCancelled,
	"shutting-down": request.ReasonShuttingDown, "internal": request.ReasonInternal,
}

// scriptParse reads the model of bodies that begin with {"model":"…".
func scriptParse(r *request.Request) error {
	r.Kind, _ = request.KindOf(r.Path)
	const open = `{"model":`
	if !bytes.HasPrefix(r.Body, []byte(open)) {
		return request.Errorf(request.ReasonBadRequest, "the body has no model")
	}
	end := bytes.IndexByte(r.Body[len(open)+1:], '"')
	if end < 0 {
		return request.Errorf(request.ReasonBadRequest, "the body has no model")
	}
	r.ModelSpan = [2]int{len(open), len(open) + end + 2}
	r.Model = string(r.Body[len(open)+1 : len(open)+1+end])
	return nil
}

func playScript(t *testing.T, d *datadriven.TestData) string {
	l := &ledger{decision: request.Decision{Endpoints: []string{"10.0.0.1:80"}}}
	opts := Options{Chooser: l, Parse: scriptParse, Now: func() time.Time { return time.Unix(0, 0) }}
	link := &scriptedLink{end: io.EOF}
	first := &extprocv3.ProcessingRequest{ProtocolConfig: &extprocv3.ProtocolConfiguration{
		RequestBodyMode: BodyFullDuplex, ResponseBodyMode: BodyFullDuplex}}
	for _, a := range d.CmdArgs {
		scriptOption(t, a, &opts, l, first)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for line := range strings.Lines(d.Input) {
		switch line = strings.TrimSpace(line); line {
		case "eof":
			link.end = io.EOF
		case "cancel":
			link.end = status.Error(codes.Canceled, "reset")
		case "fail":
			link.end = status.Error(codes.Unavailable, "connection lost")
		default:
			link.in = append(link.in, scriptMessage(t, line))
		}
	}
	for i, m := range link.in {
		m.ObservabilityMode = first.ObservabilityMode
		if i == 0 {
			m.ProtocolConfig = first.ProtocolConfig
		}
	}
	p, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if l.announce != "" {
		name, value, _ := strings.Cut(l.announce, "=")
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(name, value))
	}
	err = p.process(ctx, link)
	if err := link.flush(); err != nil {
		t.Error(err)
	}
	return scriptReport(link, l, err)
}

func scriptOption(t *testing.T, a datadriven.CmdArg, opts *Options, l *ledger, first *extprocv3.ProcessingRequest) {
	value := strings.Join(a.Vals, ",")
	switch a.Key {
	case "request":
		first.ProtocolConfig.RequestBodyMode = BodyMode(filterv3.ProcessingMode_BodySendMode_value[value])
	case "response":
		first.ProtocolConfig.ResponseBodyMode = BodyMode(filterv3.ProcessingMode_BodySendMode_value[value])
	case "early":
		first.ProtocolConfig.SendBodyWithoutWaitingForHeaderResponse = true
	case "no-config":
		first.ProtocolConfig = nil
	case "observe":
		first.ObservabilityMode = true
	case "pass-control":
		opts.PassControl = true
	case "forms":
		opts.Forms = func() bool { return true }
	case "override":
		opts.AllowModeOverride = true
	case "list":
		opts.Destinations = maxDestinations
	case "gateway":
		opts.Gateway = Gateway(value)
	case "announce":
		l.announce = value
	case "report-served":
		opts.ReportServed = true
	case "fallback":
		opts.FallbackMetadata = true
	case "max":
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		opts.MaxBody = n
	case "endpoints":
		l.decision.Endpoints = a.Vals
	case "no-choice":
		l.decision.Endpoints = nil
	case "kv-transfer":
		opts.Parse, opts.ParsePrefix = request.Parse, request.ParsePrefix
		switch value {
		case "refuse":
		case "strip":
			opts.KVTransfer.Action = kvtransfer.Strip
		default:
			opts.KVTransfer.Allow = a.Vals
		}
	case "rename":
		l.decision.ModelTarget = value
	case "trust":
		opts.ParsePrefix = request.ParsePrefix
		opts.Parse = request.Parse
		opts.Trust = func() *request.Trust {
			return &request.Trust{TokenHeader: "x-token", Tokens: [][32]byte{sha256.Sum256([]byte(value))}}
		}
	case "want-body":
		l.decision.WantBody = true
	case "set":
		l.decision.SetHeaders = append(l.decision.SetHeaders, request.HeaderSet{Name: a.Vals[0], Value: a.Vals[1]})
	case "answer":
		l.decision.AnswerHeaders = append(l.decision.AnswerHeaders, request.HeaderSet{Name: a.Vals[0], Value: a.Vals[1]})
	case "refuse":
		l.err = request.Errorf(reasons[value], "refused by script")
	case "broken":
		l.err = io.ErrNoProgress
	case "panic":
		l.hook = func() { panic("the chooser is broken") }
	default:
		t.Fatalf("unknown option %q", a.Key)
	}
}

// scriptMessage reads one line: a part, "end", then headers as name=value, or
// a quoted body, or size=n.
func scriptMessage(t *testing.T, line string) *extprocv3.ProcessingRequest {
	part, rest, _ := strings.Cut(line, " ")
	end := false
	if after, ok := strings.CutPrefix(rest+" ", "end "); ok {
		end, rest = true, strings.TrimSpace(after)
	}
	m := &extprocv3.ProcessingRequest{}
	switch part {
	case "headers":
		m.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: scriptHeaders(m, rest, end)}
	case "response-headers":
		m.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: scriptHeaders(m, rest, end)}
	case "body":
		m.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: scriptBody(t, rest, end)}
	case "response-body":
		m.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: scriptBody(t, rest, end)}
	case "trailers":
		m.Request = &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}
	case "response-trailers":
		m.Request = &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}
	case "nothing":
	default:
		t.Fatalf("unknown message %q", line)
	}
	return m
}

// scriptHeaders reads name=value pairs; subset=, subset-list= and served=
// become metadata, value:name=… uses the value field of other proxies.
func scriptHeaders(m *extprocv3.ProcessingRequest, text string, end bool) *extprocv3.HttpHeaders {
	h := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{}, EndOfStream: end}
	for _, pair := range strings.Fields(text) {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "subset":
			setMetadata(m, wire.NamespaceSubset, wire.KeySubset, structpb.NewStringValue(value))
		case "subset-list":
			list := &structpb.ListValue{}
			for _, e := range strings.Split(value, ",") {
				if e != "" {
					list.Values = append(list.Values, structpb.NewStringValue(e))
				}
			}
			setMetadata(m, wire.NamespaceSubset, wire.KeySubset, structpb.NewListValue(list))
		case "upstream":
			m.Attributes = map[string]*structpb.Struct{wire.AttributesKey: {Fields: map[string]*structpb.Value{wire.AttributeServed: structpb.NewStringValue(value)}}}
		case "served":
			setMetadata(m, wire.NamespaceLB, wire.KeyServed, structpb.NewStringValue(value))
		default:
			hv := &corev3.HeaderValue{Key: name, RawValue: []byte(value)}
			if plain, ok := strings.CutPrefix(name, "value:"); ok {
				hv = &corev3.HeaderValue{Key: plain, Value: value}
			}
			h.Headers.Headers = append(h.Headers.Headers, hv)
		}
	}
	return h
}

func setMetadata(m *extprocv3.ProcessingRequest, namespace, key string, v *structpb.Value) {
	if m.MetadataContext == nil {
		m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	}
	m.MetadataContext.FilterMetadata[namespace] = &structpb.Struct{Fields: map[string]*structpb.Value{key: v}}
}

func scriptBody(t *testing.T, text string, end bool) *extprocv3.HttpBody {
	b := &extprocv3.HttpBody{EndOfStream: end}
	if n, ok := strings.CutPrefix(text, "size="); ok {
		size, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		b.Body = bytes.Repeat([]byte("x"), size)
		return b
	}
	pack, plain := "", text
	if name, after, ok := strings.Cut(text, "="); ok && (name == "gzip" || name == "zstd" || name == "half") {
		pack, plain = name, after
	}
	if text = plain; text != "" {
		body, err := strconv.Unquote(text)
		if err != nil {
			t.Fatalf("body %s: %v", text, err)
		}
		b.Body = packed(t, pack, []byte(body))
	}
	return b
}

// packed compresses a body; "half" returns the first half of one in gzip.
func packed(t *testing.T, how string, body []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	switch how {
	case "":
		return body
	case "zstd":
		var err error
		if w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if how == "half" {
		out.Truncate(out.Len() / 2)
	}
	return out.Bytes()
}

// scriptReport prints the sent messages, the calls of the chooser, and the end of the stream.
func scriptReport(link *scriptedLink, l *ledger, end error) string {
	var out strings.Builder
	for _, m := range link.out {
		fmt.Fprintln(&out, "<", showReply(m))
	}
	for _, r := range l.requests {
		fmt.Fprintf(&out, "chose: path=%s model=%q body=%d", r.Path, r.Model, len(r.Body))
		if r.HasSubset {
			fmt.Fprintf(&out, " subset=%v", r.Subset)
		}
		fmt.Fprintln(&out)
	}
	names := []string{"headers", "first-token", "tokens"}
	for _, e := range l.events {
		fmt.Fprintf(&out, "event: %s status=%d served=%q tokens=%d\n", names[e.Kind], e.Status, e.Served, e.Tokens)
	}
	for _, o := range l.done {
		fmt.Fprintf(&out, "done: status=%d served=%q complete=%s", o.Status, o.Served, map[bool]string{true: "unseen", false: fmt.Sprint(o.Complete)}[o.Unseen])
		for word, is := range map[string]bool{" broken": o.Broken, " unclosed": o.Unclosed} {
			if is {
				out.WriteString(word)
			}
		}
		if u := o.Usage; u.Seen {
			fmt.Fprintf(&out, " prompt=%d output=%d cached=%d/%t", u.PromptTokens, u.OutputTokens, u.CachedTokens, u.CachedSeen)
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprintln(&out, "end:", status.Code(end))
	return out.String()
}

func showReply(m *extprocv3.ProcessingResponse) string {
	var text string
	switch r := m.Response.(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		text = "headers" + showCommon(r.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		text = "response-headers" + showCommon(r.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		text = "body" + showCommon(r.RequestBody.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		text = "response-body" + showCommon(r.ResponseBody.GetResponse())
	case *extprocv3.ProcessingResponse_RequestTrailers:
		text = "trailers"
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		text = "response-trailers"
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		i := r.ImmediateResponse
		text = fmt.Sprintf("immediate %d%s %s details=%s", i.GetStatus().GetCode(), showHeaders(i.GetHeaders()), i.GetBody(), i.GetDetails())
	}
	if o := m.GetModeOverride(); o != nil {
		text += fmt.Sprintf(" override request=%v response=%v trailers=%v", o.RequestBodyMode, o.ResponseBodyMode, o.ResponseTrailerMode)
	}
	for ns, s := range m.GetDynamicMetadata().GetFields() {
		var keys []string
		for k, v := range s.GetStructValue().GetFields() {
			keys = append(keys, k+"="+v.GetStringValue())
		}
		sort.Strings(keys)
		text += fmt.Sprintf(" metadata %s%v", ns, keys)
	}
	return text
}

func showCommon(c *extprocv3.CommonResponse) (text string) {
	text = showHeaders(c.GetHeaderMutation())
	if c.GetClearRouteCache() {
		text += " clear-route"
	}
	switch b := c.GetBodyMutation().GetMutation().(type) {
	case *extprocv3.BodyMutation_Body:
		text += " replace " + showBytes(b.Body)
	case *extprocv3.BodyMutation_ClearBody:
		text += " clear"
	case *extprocv3.BodyMutation_StreamedResponse:
		text += " chunk " + showBytes(b.StreamedResponse.Body)
		if b.StreamedResponse.EndOfStream {
			text += " end"
		}
	}
	return text
}

func showHeaders(m *extprocv3.HeaderMutation) (text string) {
	for _, h := range m.GetSetHeaders() {
		text += fmt.Sprintf(" set %s=%s", h.Header.Key, h.Header.RawValue)
		if h.AppendAction != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			text += fmt.Sprintf("(%v)", h.AppendAction)
		}
	}
	for _, name := range m.GetRemoveHeaders() {
		text += " remove " + name
	}
	return text
}

func showBytes(b []byte) string {
	if len(b) > 200 {
		return fmt.Sprintf("%d bytes", len(b))
	}
	return strconv.Quote(string(b))
}
