package stream

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// accept handles one incoming stream. It authenticates the peer, then delivers frames until the
// stream ends or the member leaves or changes.
func (s *Streams) accept(_ any, st grpc.ServerStream) error {
	p, err := s.welcome(st)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	s.wg.Go(func() { ended <- s.receive(st, p) }) // ends with the stream
	return s.sendReports(st, p, ended)
}

// receive delivers the stream's frames.
func (s *Streams) receive(st grpc.ServerStream, p *peer) error {
	for {
		var b []byte
		if err := st.RecvMsg(&b); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			if status.Code(err) == codes.ResourceExhausted {
				s.refuse(RefusedFrame) // larger than maxMessage
			}
			return err
		}
		if s.peer(p.ID) != p {
			return errGone
		}
		err := splitBatch(b, func(frame []byte) { s.handler.Receive(p.ID, frame) })
		if err != nil {
			s.refuse(RefusedFrame)
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
}

var errGone = status.Error(codes.NotFound, "no longer a member, or replaced by another process")

// welcome reads the hello and compares it with the certificate.
func (s *Streams) welcome(st grpc.ServerStream) (*peer, error) {
	var b []byte
	got := make(chan error, 1)
	s.wg.Go(func() { got <- st.RecvMsg(&b) }) // ends with the stream at the latest
	select {
	case err := <-got:
		if err != nil {
			return nil, err
		}
	case <-time.After(helloTimeout):
		s.refuse(RefusedFrame)
		return nil, status.Error(codes.DeadlineExceeded, "no hello")
	}
	h, ok := parseHello(b)
	if !ok {
		s.refuse(RefusedFrame)
		return nil, status.Error(codes.InvalidArgument, "malformed hello")
	}
	if h.Label != s.opt.Label {
		s.refuse(RefusedLabel)
		return nil, status.Error(codes.PermissionDenied, "another group")
	}
	if h.To != "" && (h.To != s.opt.Self.ID || h.ToBoot != s.opt.Self.Boot) {
		return nil, status.Error(codes.FailedPrecondition, "another process has this address")
	}
	p := s.peer(h.ID)
	if p == nil || p.Boot != h.Boot {
		return nil, status.Error(codes.NotFound, "not a member yet")
	}
	if fp, ok := certificateOf(st.Context()); !ok || fp != p.pinned() {
		s.refuse(RefusedIdentity)
		return nil, status.Error(codes.PermissionDenied, "certificate is not the member's")
	}
	welcome := []byte{replyWelcome}
	return p, st.SendMsg(&welcome)
}

func certificateOf(ctx context.Context) (Fingerprint, bool) {
	pr, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return Fingerprint{}, false
	}
	info, ok := pr.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return Fingerprint{}, false
	}
	return fingerprintOf(info.State)
}

// sendReports reports to the peer whether this member's own dial to it works. It sends a message whenever
// that changes, until the stream ends.
func (s *Streams) sendReports(st grpc.ServerStream, p *peer, broken <-chan error) error {
	said := byte(replyWelcome)
	for {
		linked, changed, err := p.state()
		kind, text := byte(replyReached), ""
		if !linked {
			kind = replyUnreachable
			if err != nil {
				text = err.Error()
			}
		}
		ended := errors.Is(err, context.Canceled) // by this member: not a failure of the peer's address
		if kind != said && (linked || err != nil && !ended) {
			said = kind
			b := append([]byte{kind}, text[:min(len(text), 512)]...)
			if err := st.SendMsg(&b); err != nil {
				return err
			}
		}
		select {
		case err := <-broken:
			return err
		case <-p.done:
			return errGone
		case <-changed:
		}
	}
}
