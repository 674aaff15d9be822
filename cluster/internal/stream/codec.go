package stream

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Wire names and limits.
const (
	serviceName = "grapevine.cluster.v1.Stream"
	methodName  = "Link"
	fullMethod  = "/" + serviceName + "/" + methodName

	batchBytes = 256 << 10                                         // a message is sent once it exceeds this
	maxMessage = batchBytes + group.MaxFrame + group.MaxPrefix + 4 // so that any frame fits
	maxField   = 255
)

// rawCodec passes messages through unchanged, as *[]byte on both ends.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "grapevine" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("stream: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("stream: cannot receive a %T", v)
	}
	*b = data.Materialize()
	return nil
}

var errBatch = errors.New("stream: malformed batch")

func appendFrame(b, frame []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(frame)))
	return append(b, frame...)
}

// splitBatch calls fn for every frame of a message. It delivers no frame of a malformed message.
func splitBatch(b []byte, fn func(frame []byte)) error {
	for rest := b; len(rest) > 0; {
		n, err := frameLen(rest)
		if err != nil {
			return err
		}
		rest = rest[4+n:]
	}
	for len(b) > 0 {
		n, _ := frameLen(b)
		fn(b[4 : 4+n : 4+n])
		b = b[4+n:]
	}
	return nil
}

func frameLen(b []byte) (int, error) {
	if len(b) < 4 {
		return 0, errBatch
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > group.MaxFrame+group.MaxPrefix || int(n) > len(b)-4 {
		return 0, errBatch
	}
	return int(n), nil
}

// hello is the first message from the dialing end.
type hello struct {
	Label string
	ID    string
	Boot  uint64
	// To and ToBoot name the intended process. Another process may have the same address, and the
	// same certificate if that comes from a file. Older releases leave them empty.
	To     string
	ToBoot uint64
}

const helloMagic = "GVS1"

func (h hello) append(b []byte) []byte {
	b = append(b, helloMagic...)
	b = append(b, byte(len(h.Label)))
	b = append(b, h.Label...)
	b = append(b, byte(len(h.ID)))
	b = append(b, h.ID...)
	b = binary.LittleEndian.AppendUint64(b, h.Boot)
	b = append(append(b, byte(len(h.To))), h.To...)
	return binary.LittleEndian.AppendUint64(b, h.ToBoot)
}

// parseHello reads a hello. It ignores bytes after the known fields, which later versions may add.
func parseHello(b []byte) (h hello, ok bool) {
	if len(b) < len(helloMagic) || string(b[:len(helloMagic)]) != helloMagic {
		return h, false
	}
	b = b[len(helloMagic):]
	if h.Label, b, ok = field(b); !ok {
		return h, false
	}
	if h.ID, b, ok = field(b); !ok || h.ID == "" || len(b) < 8 {
		return h, false
	}
	h.Boot = binary.LittleEndian.Uint64(b)
	if b = b[8:]; len(b) == 0 {
		return h, true
	}
	if h.To, b, ok = field(b); !ok || len(b) < 8 {
		return h, false
	}
	h.ToBoot = binary.LittleEndian.Uint64(b)
	return h, true
}

func field(b []byte) (string, []byte, bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

// Message kinds of the accepting end.
const (
	replyWelcome     = 0
	replyReached     = 1
	replyUnreachable = 2
)
