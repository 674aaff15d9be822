package wire

import (
	"bytes"
	"errors"
	"slices"
	"unsafe"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of envoy.service.ext_proc.v3.ProcessingRequest and nested messages.
const (
	FieldRequestHeaders   = 2
	FieldResponseHeaders  = 3
	FieldRequestBody      = 4
	FieldResponseBody     = 5
	FieldRequestTrailers  = 6
	FieldResponseTrailers = 7
	fieldMetadata         = 8
	fieldAttributes       = 9
	fieldObserve          = 10
	fieldConfig           = 11
)

// errWire ends a stream with a malformed message.
var errWire = errors.New("extproc: malformed message")

// Inbound is a received ProcessingRequest, decoded as far as needed: headers point into the
// message, a body stays in its receive buffer, metadata stays encoded. The generated type would
// copy every header and every body.
type Inbound struct {
	Part     protowire.Number // field of the oneof, 0 if none is set
	End      bool             // end_of_stream
	Headers  []Header
	Body     mem.Buffer // nil if the part is not a body, or an empty one
	Metadata []byte     // encoded config.core.v3.Metadata, not for bodies
	Served   string     // upstream.address from the attributes, or ""
	Config   protocolConfig
	Observe  bool
}

// Header is one header; its strings alias the message.
type Header struct{ Name, Value string }

// protocolConfig is the proxy's filter configuration, in the first message.
type protocolConfig struct {
	Present  bool
	Request  filterv3.ProcessingMode_BodySendMode
	Response filterv3.ProcessingMode_BodySendMode
	Early    bool
}

// Free releases the body. Code that kept a part holds its own references.
func (m *Inbound) Free() {
	if m.Body != nil {
		m.Body.Free()
	}
	*m = Inbound{}
}

// Bytes returns the body's bytes. They are valid until Free.
func (m *Inbound) Bytes() []byte {
	if m.Body == nil {
		return nil
	}
	return m.Body.ReadOnlyData()
}

// Decode decodes a message. data stays the caller's; m references or copies the parts that it
// keeps.
func (m *Inbound) Decode(data mem.BufferSlice) error {
	*m = Inbound{}
	var whole mem.Buffer
	if len(data) == 1 {
		whole = data[0]
		whole.Ref()
	} else {
		whole = data.MaterializeToBuffer(&Buffers)
	}
	defer whole.Free()
	raw := whole.ReadOnlyData()
	r := reader{rest: raw}
	var part, metadata []byte
	var partAt int
	for r.next() {
		switch {
		case r.typ == protowire.BytesType && r.num >= FieldRequestHeaders && r.num <= FieldResponseTrailers:
			m.Part, part, partAt = r.num, r.bytes, len(raw)-len(r.rest)-len(r.bytes)
		case r.num == fieldMetadata && r.typ == protowire.BytesType:
			metadata = r.bytes
		case r.num == fieldAttributes && r.typ == protowire.BytesType && m.Served == "":
			m.Served = upstream(r.bytes)
		case r.num == fieldObserve && r.typ == protowire.VarintType:
			m.Observe = r.n != 0
		case r.num == fieldConfig && r.typ == protowire.BytesType:
			m.Config.decode(r.bytes)
		}
	}
	if r.broken {
		return errWire
	}
	switch m.Part {
	case FieldRequestBody, FieldResponseBody:
		return m.decodeBody(whole, part, partAt)
	case FieldRequestTrailers, FieldResponseTrailers: // only their presence matters
		part = nil
	case 0:
		return nil
	}
	if _, owned := whole.(mem.SliceBuffer); !owned {
		// Headers outlive the message, and pooled memory must not be kept.
		n := len(part)
		kept := append(append(make([]byte, 0, n+len(metadata)), part...), metadata...)
		part, metadata = kept[:n:n], kept[n:]
	}
	m.Metadata = metadata
	return m.decodeHeaders(part)
}

// decodeBody decodes an HttpBody at offset at of whole.
func (m *Inbound) decodeBody(whole mem.Buffer, part []byte, at int) error {
	r := reader{rest: part}
	from, to := 0, 0
	for r.next() {
		switch {
		case r.num == 1 && r.typ == protowire.BytesType:
			to = at + len(part) - len(r.rest)
			from = to - len(r.bytes)
		case r.num == 2 && r.typ == protowire.VarintType:
			m.End = r.n != 0
		}
	}
	if r.broken {
		return errWire
	}
	if from < to {
		m.Body = whole.Slice(from, to)
	}
	return nil
}

// decodeHeaders decodes an HttpHeaders.
func (m *Inbound) decodeHeaders(part []byte) error {
	r := reader{rest: part}
	for r.next() {
		switch {
		case r.num == 1 && r.typ == protowire.BytesType:
			if !m.decodeMap(r.bytes) {
				return errWire
			}
		case r.num == 3 && r.typ == protowire.VarintType:
			m.End = r.n != 0
		}
	}
	if r.broken {
		return errWire
	}
	return nil
}

// decodeMap decodes a HeaderMap.
func (m *Inbound) decodeMap(b []byte) bool {
	if m.Headers == nil {
		m.Headers = make([]Header, 0, 24)
	}
	r := reader{rest: b}
	for at := r; r.next(); at = r {
		if r.num != 1 || r.typ != protowire.BytesType {
			continue
		}
		h, ok := decodeHeader(r.bytes)
		if !ok {
			return false
		}
		if len(m.Headers) == cap(m.Headers) {
			m.Headers = slices.Grow(m.Headers, at.count(1)) // once: thousands of headers would be copied repeatedly
		}
		m.Headers = append(m.Headers, h)
	}
	return !r.broken
}

// count returns how many fields with a number remain, as far as they are readable.
func (r reader) count(num protowire.Number) (n int) {
	for r.next() {
		if r.num == num {
			n++
		}
	}
	return n
}

// decodeHeader decodes a HeaderValue: raw_value, which Envoy uses, or value, which other proxies
// use.
func decodeHeader(b []byte) (h Header, ok bool) {
	var value, raw []byte
	r := reader{rest: b}
	for r.next() {
		if r.typ != protowire.BytesType {
			continue
		}
		switch r.num {
		case 1:
			h.Name = lower(r.bytes)
		case 2:
			value = r.bytes
		case 3:
			raw = r.bytes
		}
	}
	if len(raw) == 0 {
		raw = value
	}
	h.Value = alias(raw)
	return h, !r.broken
}

func (c *protocolConfig) decode(b []byte) {
	c.Present = true
	r := reader{rest: b}
	for r.next() {
		if r.typ != protowire.VarintType {
			continue
		}
		switch r.num {
		case 1:
			c.Request = filterv3.ProcessingMode_BodySendMode(r.n)
		case 2:
			c.Response = filterv3.ProcessingMode_BodySendMode(r.n)
		case 3:
			c.Early = r.n != 0
		}
	}
}

// lower returns a header name with ASCII letters in lower case, as Envoy sends it. Other proxies
// may keep the client's spelling.
func lower(name []byte) string {
	for i, c := range name {
		if c < 'A' || 'Z' < c {
			continue
		}
		name = bytes.Clone(name)
		for k, c := range name[i:] {
			if 'A' <= c && c <= 'Z' {
				name[i+k] = c + 'a' - 'A'
			}
		}
		break
	}
	return alias(name)
}

// alias returns b as a string without copying. b must not be modified afterwards.
func alias(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// reader iterates over the fields of a protobuf message.
type reader struct {
	rest   []byte
	num    protowire.Number
	typ    protowire.Type
	n      uint64 // value of a varint field
	bytes  []byte // value of a bytes field
	broken bool
}

// next reads the next varint or bytes field and skips other types. It returns false at the end or
// at malformed data.
func (r *reader) next() bool {
	for len(r.rest) > 0 {
		num, typ, n := protowire.ConsumeTag(r.rest)
		if n < 0 {
			r.broken = true
			return false
		}
		r.num, r.typ, r.rest = num, typ, r.rest[n:]
		switch typ {
		case protowire.VarintType:
			r.n, n = protowire.ConsumeVarint(r.rest)
		case protowire.BytesType:
			r.bytes, n = protowire.ConsumeBytes(r.rest)
		default:
			n = protowire.ConsumeFieldValue(num, typ, r.rest)
		}
		if n < 0 {
			r.broken = true
			return false
		}
		r.rest = r.rest[n:]
		if typ == protowire.VarintType || typ == protowire.BytesType {
			return true
		}
	}
	return false
}
