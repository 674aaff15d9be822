package extproc

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/grapevine-epp/grapevine/picker"
)

// Field numbers of envoy.service.ext_proc.v3.ProcessingResponse and below.
const (
	replyRequestHeaders  = 1
	replyResponseHeaders = 2
	replyRequestBody     = 3
	replyResponseBody    = 4
	replyRequestTrailers = 5
	replyMetadata        = 8

	commonHeaderMutation = 2
	commonBodyMutation   = 3
	commonClearRoute     = 5

	mutationBody     = 1
	mutationStreamed = 3
)

// overwrite is HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD.
const overwrite = 2

// inlineBody is the largest chunk that is copied behind its envelope instead
// of being referenced: below it, one buffer is cheaper than two.
const inlineBody = 1 << 10

// outbound is a ProcessingResponse to be sent: a whole encoded message, or an
// envelope around a chunk in full duplex.
type outbound struct {
	whole []byte // encoded; never written to again
	reply protowire.Number
	body  mem.Buffer // the chunk; this message's own reference, nil for an empty one
	end   bool
}

// encode hands the message over to gRPC, its reference to the body included.
func (o *outbound) encode() mem.BufferSlice {
	if o.whole != nil {
		return mem.BufferSlice{mem.SliceBuffer(o.whole)}
	}
	n := 0
	if o.body != nil {
		n = o.body.Len()
	}
	if n > inlineBody {
		return mem.BufferSlice{mem.SliceBuffer(o.envelope(n, 0)), o.body}
	}
	b := o.envelope(n, n)
	if n > 0 {
		b = append(b, o.body.ReadOnlyData()...)
		o.body.Free()
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}
}

// envelope encodes everything of a chunk of n bytes but the chunk itself,
// which ends the message, and leaves room behind it.
func (o *outbound) envelope(n, room int) []byte {
	chunk := 0 // StreamedBodyResponse
	if o.end {
		chunk += 2
	}
	if n > 0 {
		chunk += nested(n)
	}
	mutation := nested(chunk)  // BodyMutation
	common := nested(mutation) // CommonResponse
	body := nested(common)     // BodyResponse
	b := make([]byte, 0, nested(body)-n+room)
	b = appendLength(b, o.reply, body)
	b = appendLength(b, 1, common)
	b = appendLength(b, commonBodyMutation, mutation)
	b = appendLength(b, mutationStreamed, chunk)
	if o.end {
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

func appendBytes(b []byte, num protowire.Number, p []byte) []byte {
	return append(appendLength(b, num, len(p)), p...)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	return append(appendLength(b, num, len(s)), s...)
}

func appendTrue(b []byte, num protowire.Number) []byte {
	return append(protowire.AppendTag(b, num, protowire.VarintType), 1)
}

// routeWriter encodes the message that tells where a request goes. Its memory
// is reused from request to request.
type routeWriter struct {
	fallback                  bool // also send the older fallback key
	mutation, common, reply   []byte
	header, option, lb, entry []byte
}

// setHeader adds a header to the mutation.
func (w *routeWriter) setHeader(name, value string) {
	w.header = appendString(appendString(w.header[:0], 1, name), 3, value)
	w.option = appendBytes(w.option[:0], 1, w.header)
	w.option = append(protowire.AppendTag(w.option, 3, protowire.VarintType), overwrite)
	w.mutation = appendBytes(w.mutation, 1, w.option)
}

// removeHeader takes a header off the request. The proxy removes before it
// sets, so one that is also set stays.
func (w *routeWriter) removeHeader(name string) {
	w.mutation = appendString(w.mutation, 2, name)
}

// begin fills the mutation from a decision and encodes the metadata.
func (w *routeWriter) begin(d *picker.Decision, destination string) {
	w.mutation, w.lb = w.mutation[:0], w.lb[:0]
	w.setHeader(headerDestination, destination)
	for _, h := range d.SetHeaders {
		w.setHeader(h.Name, h.Value)
	}
	w.metadata(keyDestination, destination)
	if w.fallback {
		w.metadata(keyFallback, d.Endpoints[min(1, len(d.Endpoints)-1)])
	}
}

// metadata adds a string to the load balancer's namespace.
func (w *routeWriter) metadata(key, value string) {
	w.header = appendString(w.header[:0], 3, value) // Value.string_value
	w.entry = appendBytes(appendString(w.entry[:0], 1, key), 2, w.header)
	w.lb = appendBytes(w.lb, 1, w.entry)
}

// finish encodes the message as an answer of the given kind: to headers, to a
// body, which body may replace, or to trailers.
func (w *routeWriter) finish(kind protowire.Number, body []byte) []byte {
	w.reply = w.reply[:0]
	if kind != replyRequestTrailers {
		w.common = appendBytes(w.common[:0], commonHeaderMutation, w.mutation)
		if body != nil {
			w.entry = appendBytes(w.entry[:0], mutationBody, body)
			w.common = appendBytes(w.common, commonBodyMutation, w.entry)
		}
		w.common = appendTrue(w.common, commonClearRoute)
		w.reply = appendBytes(w.reply, 1, w.common)
	}
	w.header = appendBytes(w.header[:0], 5, w.lb) // Value.struct_value
	w.entry = appendBytes(appendString(w.entry[:0], 1, namespaceLB), 2, w.header)
	w.option = appendBytes(w.option[:0], 1, w.entry)
	out := make([]byte, 0, nested(len(w.reply))+nested(len(w.option)))
	out = appendBytes(out, kind, w.reply)
	return appendBytes(out, replyMetadata, w.option)
}

// fixed encodes a message that is the same for every request.
func fixed(m *extprocv3.ProcessingResponse) *outbound {
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err) // a constant of this package is wrong
	}
	return &outbound{whole: raw}
}
