package extproc

import (
	"errors"
	"strings"
	"unsafe"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of envoy.service.ext_proc.v3.ProcessingRequest and below.
const (
	fieldRequestHeaders   = 2
	fieldResponseHeaders  = 3
	fieldRequestBody      = 4
	fieldResponseBody     = 5
	fieldRequestTrailers  = 6
	fieldResponseTrailers = 7
	fieldMetadata         = 8
	fieldAttributes       = 9
	fieldObserve          = 10
	fieldConfig           = 11
)

// errWire is what a message that is not protobuf ends its stream with.
var errWire = errors.New("extproc: malformed message")

// inbound is a received ProcessingRequest, decoded as far as this package
// needs it: headers stay in the message they came in, a body stays in the
// buffer that it was received in, metadata stays encoded. It replaces the
// generated type because that copies every header and every body.
type inbound struct {
	part     protowire.Number // field of the oneof, 0 when none is set
	end      bool             // end_of_stream
	headers  []header
	body     mem.Buffer // nil when the part is no body, or an empty one
	metadata []byte     // encoded config.core.v3.Metadata, not for bodies
	served   string     // upstream.address of the attributes, "" without
	config   protocolConfig
	observe  bool
}

// header is one header; its strings alias the message.
type header struct{ name, value string }

// protocolConfig is what the proxy says about its filter, in the first message.
type protocolConfig struct {
	present  bool
	request  BodyMode
	response BodyMode
	early    bool
}

// free gives up the body. What was kept of it was referenced by its keeper.
func (m *inbound) free() {
	if m.body != nil {
		m.body.Free()
	}
	*m = inbound{}
}

// bytes returns the body's bytes, which live until free.
func (m *inbound) bytes() []byte {
	if m.body == nil {
		return nil
	}
	return m.body.ReadOnlyData()
}

// decode reads a message. data stays the caller's; what m keeps of it is
// referenced or copied.
func (m *inbound) decode(data mem.BufferSlice) error {
	*m = inbound{}
	var whole mem.Buffer
	if len(data) == 1 {
		whole = data[0]
		whole.Ref()
	} else {
		whole = data.MaterializeToBuffer(&buffers)
	}
	defer whole.Free()
	raw := whole.ReadOnlyData()
	r := reader{rest: raw}
	var part, metadata []byte
	var partAt int
	for r.next() {
		switch {
		case r.typ == protowire.BytesType && r.num >= fieldRequestHeaders && r.num <= fieldResponseTrailers:
			m.part, part, partAt = r.num, r.bytes, len(raw)-len(r.rest)-len(r.bytes)
		case r.num == fieldMetadata && r.typ == protowire.BytesType:
			metadata = r.bytes
		case r.num == fieldAttributes && r.typ == protowire.BytesType && m.served == "":
			m.served = upstream(r.bytes)
		case r.num == fieldObserve && r.typ == protowire.VarintType:
			m.observe = r.n != 0
		case r.num == fieldConfig && r.typ == protowire.BytesType:
			m.config.decode(r.bytes)
		}
	}
	if r.broken {
		return errWire
	}
	switch m.part {
	case fieldRequestBody, fieldResponseBody:
		return m.decodeBody(whole, part, partAt)
	case 0:
		return nil
	}
	if _, owned := whole.(mem.SliceBuffer); !owned {
		// Headers outlive the message; pooled memory must not be kept.
		n := len(part)
		kept := append(append(make([]byte, 0, n+len(metadata)), part...), metadata...)
		part, metadata = kept[:n:n], kept[n:]
	}
	m.metadata = metadata
	return m.decodeHeaders(part)
}

// decodeBody reads an HttpBody that stands at offset at of whole.
func (m *inbound) decodeBody(whole mem.Buffer, part []byte, at int) error {
	r := reader{rest: part}
	from, to := 0, 0
	for r.next() {
		switch {
		case r.num == 1 && r.typ == protowire.BytesType:
			to = at + len(part) - len(r.rest)
			from = to - len(r.bytes)
		case r.num == 2 && r.typ == protowire.VarintType:
			m.end = r.n != 0
		}
	}
	if r.broken {
		return errWire
	}
	if from < to {
		m.body = whole.Slice(from, to)
	}
	return nil
}

// decodeHeaders reads an HttpHeaders or HttpTrailers; trailers say nothing of
// the end.
func (m *inbound) decodeHeaders(part []byte) error {
	r := reader{rest: part}
	for r.next() {
		switch {
		case r.num == 1 && r.typ == protowire.BytesType:
			if !m.decodeMap(r.bytes) {
				return errWire
			}
		case r.num == 3 && r.typ == protowire.VarintType && m.part <= fieldResponseHeaders:
			m.end = r.n != 0
		}
	}
	if r.broken {
		return errWire
	}
	return nil
}

// decodeMap reads a HeaderMap.
func (m *inbound) decodeMap(b []byte) bool {
	if m.headers == nil {
		m.headers = make([]header, 0, 24)
	}
	r := reader{rest: b}
	for r.next() {
		if r.num != 1 || r.typ != protowire.BytesType {
			continue
		}
		h, ok := decodeHeader(r.bytes)
		if !ok {
			return false
		}
		m.headers = append(m.headers, h)
	}
	return !r.broken
}

// decodeHeader reads a HeaderValue: raw_value, which Envoy fills, or value,
// which other proxies fill.
func decodeHeader(b []byte) (h header, ok bool) {
	var value, raw []byte
	r := reader{rest: b}
	for r.next() {
		if r.typ != protowire.BytesType {
			continue
		}
		switch r.num {
		case 1:
			h.name = lower(r.bytes)
		case 2:
			value = r.bytes
		case 3:
			raw = r.bytes
		}
	}
	if len(raw) == 0 {
		raw = value
	}
	h.value = alias(raw)
	return h, !r.broken
}

func (c *protocolConfig) decode(b []byte) {
	c.present = true
	r := reader{rest: b}
	for r.next() {
		if r.typ != protowire.VarintType {
			continue
		}
		switch r.num {
		case 1:
			c.request = BodyMode(r.n)
		case 2:
			c.response = BodyMode(r.n)
		case 3:
			c.early = r.n != 0
		}
	}
}

// lower returns a header name in lower case, as Envoy sends it; other proxies
// may send it as the client wrote it.
func lower(name []byte) string {
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			return strings.ToLower(string(name))
		}
	}
	return alias(name)
}

// alias returns b as a string without a copy; nobody writes to b any more.
func alias(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// reader walks over the fields of one protobuf message.
type reader struct {
	rest   []byte
	num    protowire.Number
	typ    protowire.Type
	n      uint64 // value of a varint field
	bytes  []byte // value of a bytes field
	broken bool
}

// next reads the next field and skips fields of other types than varint and
// bytes. It returns false at the end, or where the message is broken.
func (r *reader) next() bool {
	for len(r.rest) > 0 {
		num, typ, n := protowire.ConsumeTag(r.rest)
		if n < 0 {
			break
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
			break
		}
		r.rest = r.rest[n:]
		if typ == protowire.VarintType || typ == protowire.BytesType {
			return true
		}
	}
	r.broken = len(r.rest) > 0
	return false
}
