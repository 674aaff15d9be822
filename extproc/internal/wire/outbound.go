package wire

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Field numbers of envoy.service.ext_proc.v3.ProcessingResponse and nested messages.
const (
	ReplyRequestHeaders  = 1
	ReplyResponseHeaders = 2
	ReplyRequestBody     = 3
	ReplyResponseBody    = 4
	ReplyRequestTrailers = 5
	replyMetadata        = 8

	CommonHeaderMutation = 2
	commonBodyMutation   = 3
	commonClearRoute     = 5

	mutationBody     = 1
	mutationStreamed = 3
)

// overwrite is HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD.
const overwrite = 2

// inlineBody is the largest chunk that is copied after its envelope instead
// of being referenced. Below it, one buffer is cheaper than two.
const inlineBody = 1 << 10

// Outbound is a ProcessingResponse to send: a completely encoded message, or an envelope around a
// chunk in full duplex.
type Outbound struct {
	Whole []byte // encoded; immutable
	Reply protowire.Number
	Body  mem.Buffer // the chunk, with this message's own reference; nil for an empty one
	End   bool
}

// encode transfers the message to gRPC, including its reference to the body.
func (o *Outbound) encode() mem.BufferSlice {
	if o.Whole != nil {
		return mem.BufferSlice{mem.SliceBuffer(o.Whole)}
	}
	n := 0
	if o.Body != nil {
		n = o.Body.Len()
	}
	if n > inlineBody {
		return mem.BufferSlice{mem.SliceBuffer(o.envelope(n, 0)), o.Body}
	}
	b := o.envelope(n, n)
	if n > 0 {
		b = append(b, o.Body.ReadOnlyData()...)
		o.Body.Free()
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}
}

// envelope encodes a chunk message of n bytes without the chunk, which comes last, and reserves
// room after it.
func (o *Outbound) envelope(n, room int) []byte {
	chunk := 0 // StreamedBodyResponse
	if o.End {
		chunk += 2
	}
	if n > 0 {
		chunk += nested(n)
	}
	mutation := nested(chunk)  // BodyMutation
	common := nested(mutation) // CommonResponse
	body := nested(common)     // BodyResponse
	b := make([]byte, 0, nested(body)-n+room)
	b = appendLength(b, o.Reply, body)
	b = appendLength(b, 1, common)
	b = appendLength(b, commonBodyMutation, mutation)
	b = appendLength(b, mutationStreamed, chunk)
	if o.End {
		b = appendTrue(b, 2)
	}
	if n > 0 {
		b = appendLength(b, 1, n)
	}
	return b
}

// nested returns the size of a field with n bytes and a number below 16.
func nested(n int) int { return 1 + protowire.SizeBytes(n) }

func appendLength(b []byte, num protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(n))
}

// AppendBytes appends a bytes field.
func AppendBytes(b []byte, num protowire.Number, p []byte) []byte {
	return append(appendLength(b, num, len(p)), p...)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	return append(appendLength(b, num, len(s)), s...)
}

func appendTrue(b []byte, num protowire.Number) []byte {
	return append(protowire.AppendTag(b, num, protowire.VarintType), 1)
}

// RouteWriter encodes the message with a request's destination. It reuses its memory.
type RouteWriter struct {
	Fallback                  bool // also send the older fallback key
	Mutation, Common, Reply   []byte
	header, option, lb, entry []byte
}

// SetHeader adds a header to set.
func (w *RouteWriter) SetHeader(name, value string) {
	w.header = appendString(appendString(w.header[:0], 1, name), 3, value)
	w.option = AppendBytes(w.option[:0], 1, w.header)
	w.option = append(protowire.AppendTag(w.option, 3, protowire.VarintType), overwrite)
	w.Mutation = AppendBytes(w.Mutation, 1, w.option)
}

// RemoveHeader removes a header from the request. The proxy removes before it sets, so a header
// that is also set stays.
func (w *RouteWriter) RemoveHeader(name string) {
	w.Mutation = appendString(w.Mutation, 2, name)
}

// Room is how many headers, and bytes of names and values, a mutation may add to a request. A
// proxy that finds more answers the request with 500 instead of passing it on.
type Room struct{ Headers, Bytes int }

// take reports whether headers fit, and takes their room.
func (r *Room) take(headers ...request.HeaderSet) bool {
	size := 0
	for _, h := range headers {
		size += len(h.Name) + len(h.Value)
	}
	if len(headers) > r.Headers || size > r.Bytes {
		return false
	}
	r.Headers, r.Bytes = r.Headers-len(headers), r.Bytes-size
	return true
}

// Begin fills the mutation from a decision, as far as there is room, and encodes the metadata,
// which also names the destination. The decision's own headers are set together or not at all. It
// reports whether they are set.
func (w *RouteWriter) Begin(d *request.Decision, destination string, room *Room) (all bool) {
	w.Mutation, w.lb = w.Mutation[:0], w.lb[:0]
	if all = room.take(request.HeaderSet{Name: HeaderDestination, Value: destination}); all {
		w.SetHeader(HeaderDestination, destination)
	}
	if fits := room.take(d.SetHeaders...); fits {
		for _, h := range d.SetHeaders {
			w.SetHeader(h.Name, h.Value)
		}
	} else {
		all = false
	}
	w.destination(d, destination)
	return all
}

// destination encodes the metadata.
func (w *RouteWriter) destination(d *request.Decision, destination string) {
	w.metadata(keyDestination, destination)
	if w.Fallback {
		w.metadata(keyFallback, d.Endpoints[min(1, len(d.Endpoints)-1)])
	}
}

// Tries sets Envoy's behavior if the first endpoint fails before its response.
func (w *RouteWriter) Tries(t request.Tries, room *Room) {
	if int(t) >= len(tries) {
		return
	}
	headers := tries[t]
	if !room.take(headers...) {
		return
	}
	for _, h := range headers {
		w.SetHeader(h.Name, h.Value)
	}
}

// Trace sets the headers that continue the request's trace, together or not at all.
func (w *RouteWriter) Trace(headers []tracing.Header, room *Room) {
	for _, h := range headers {
		if !room.take(request.HeaderSet(h)) {
			return
		}
	}
	for _, h := range headers {
		w.SetHeader(h.Name, h.Value)
	}
}

// RetryRefusal makes Envoy retry a 429 of the first endpoint.
func (w *RouteWriter) RetryRefusal(retry bool, room *Room) {
	if h := (request.HeaderSet{Name: headerRetryCodes, Value: "429"}); retry && room.take(h) {
		w.SetHeader(h.Name, h.Value)
	}
}

var tries = [...][]request.HeaderSet{
	request.TriesOnce: {{Name: headerRetryOn, Value: "reset"}, {Name: headerMaxRetries, Value: "1"}},
	request.TriesNone: {{Name: headerMaxRetries, Value: "0"}},
}

// metadata adds a string to the load balancer's namespace.
func (w *RouteWriter) metadata(key, value string) {
	w.header = appendString(w.header[:0], 3, value) // Value.string_value
	w.entry = AppendBytes(appendString(w.entry[:0], 1, key), 2, w.header)
	w.lb = AppendBytes(w.lb, 1, w.entry)
}

// Finish encodes the message as a reply to headers, to a body (which body may replace), or to
// trailers.
func (w *RouteWriter) Finish(kind protowire.Number, body []byte) []byte {
	w.Reply = w.Reply[:0]
	if kind != ReplyRequestTrailers {
		if w.Common = w.Common[:0]; len(w.Mutation) > 0 { // the proxy checks its limits only where there is one
			w.Common = AppendBytes(w.Common, CommonHeaderMutation, w.Mutation)
		}
		if body != nil {
			w.entry = AppendBytes(w.entry[:0], mutationBody, body)
			w.Common = AppendBytes(w.Common, commonBodyMutation, w.entry)
		}
		w.Common = appendTrue(w.Common, commonClearRoute)
		w.Reply = AppendBytes(w.Reply, 1, w.Common)
	}
	w.header = AppendBytes(w.header[:0], 5, w.lb) // Value.struct_value
	w.entry = AppendBytes(appendString(w.entry[:0], 1, NamespaceLB), 2, w.header)
	w.option = AppendBytes(w.option[:0], 1, w.entry)
	out := make([]byte, 0, nested(len(w.Reply))+nested(len(w.option)))
	out = AppendBytes(out, kind, w.Reply)
	return AppendBytes(out, replyMetadata, w.option)
}

// Fixed encodes a constant message.
func Fixed(m *extprocv3.ProcessingResponse) *Outbound {
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err) // a bug in a constant of this package
	}
	return &Outbound{Whole: raw}
}
