package extproc

import (
	"bytes"
	"context"
	"fmt"
	"io"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// scriptedLink plays a gRPC stream. It delivers messages through the codec, in buffers that are
// overwritten when they are freed. It keeps references to sent bytes until the end, as a slow
// connection would.
type scriptedLink struct {
	in    []*extprocv3.ProcessingRequest
	end   error
	cut   int // bytes per received buffer, 0 for one buffer
	fail  int // SendMsg fails from this message on, 0 never
	out   []*extprocv3.ProcessingResponse
	kept  []mem.BufferSlice
	bytes [][]byte
}

func (l *scriptedLink) RecvMsg(m any) error {
	if len(l.in) == 0 {
		return l.end
	}
	raw, err := proto.Marshal(l.in[0])
	if err != nil {
		return err
	}
	l.in = l.in[1:]
	data := testkit.Pieces(raw, l.cut)
	defer data.Free()
	return wire.NewCodec().Unmarshal(data, m)
}

func (l *scriptedLink) SendMsg(m any) error {
	data, err := wire.NewCodec().Marshal(m)
	if err != nil {
		return err
	}
	l.kept = append(l.kept, data)
	if l.fail > 0 && len(l.out)+1 >= l.fail {
		return io.ErrClosedPipe
	}
	raw := data.Materialize()
	l.bytes = append(l.bytes, raw)
	reply := &extprocv3.ProcessingResponse{}
	if err := proto.Unmarshal(raw, reply); err != nil {
		return fmt.Errorf("sent a malformed message: %w", err)
	}
	l.out = append(l.out, reply)
	return nil
}

// flush releases all sent bytes and reports whether they were still unchanged.
func (l *scriptedLink) flush() error {
	for i, data := range l.kept {
		if i < len(l.bytes) && !bytes.Equal(data.Materialize(), l.bytes[i]) {
			return fmt.Errorf("message %d changed before it was written", i)
		}
		data.Free()
	}
	return nil
}

// ledger is a chooser that records its decisions.
type ledger struct {
	announce string // initial metadata, name=value
	decision request.Decision
	err      error
	hook     func()
	requests []*request.Request
	events   []request.Event
	done     []request.Outcome
}

func (l *ledger) Choose(_ context.Context, r *request.Request) (*request.Decision, error) {
	if l.hook != nil {
		l.hook()
	}
	if l.err != nil {
		return nil, l.err
	}
	kept := *r // the stream drops the body once it is passed on
	l.requests = append(l.requests, &kept)
	d := l.decision
	d.Observe = func(e request.Event) { l.events = append(l.events, e) }
	d.Release = func(o request.Outcome) { l.done = append(l.done, o) }
	return &d, nil
}
