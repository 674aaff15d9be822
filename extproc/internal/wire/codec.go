package wire

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec used as fallback
	"google.golang.org/grpc/mem"
)

// codec handles this package's message types and passes others, such as health checks, to protobuf.
type codec struct{ proto encoding.CodecV2 }

// NewCodec returns the codec for ext_proc servers.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if o, ok := v.(*Outbound); ok {
		return o.encode(), nil
	}
	return c.proto.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*Inbound); ok {
		return m.Decode(data)
	}
	return c.proto.Unmarshal(data, v)
}

// Name implements encoding.CodecV2.
func (c codec) Name() string { return c.proto.Name() }
