package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/outbox"
)

// peer is the stream that this member dials to one peer. One goroutine owns it.
type peer struct {
	Peer   // its Fingerprint is the initial one, see pinned
	s      *Streams
	pin    atomic.Pointer[Fingerprint]
	queue  *outbox.Queue[[]byte]
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	linked  bool
	err     error         // why the last dial failed
	changed chan struct{} // closed when linked or err changes
}

// Timeouts for dialing.
const (
	// helloTimeout covers TCP, TLS, HTTP/2 and the hello, of four round trips, and a lost packet.
	// Nothing is measured yet.
	helloTimeout = 4*group.MaxRoundTrip + time.Second
	backoffFirst = 50 * time.Millisecond
	backoffMost  = time.Second
)

// Limits of an incoming connection. A member opens one stream.
const (
	handshakeTimeout = 5 * time.Second
	peerStreams      = 4
	maxHeaders       = 8 << 10
)

// startPeer starts dialing. The caller holds s.mu.
func (s *Streams) startPeer(p Peer) *peer {
	ctx, cancel := context.WithCancel(s.ctx)
	q := &peer{
		Peer: p, s: s, queue: outbox.New[[]byte](s.opt.QueueBytes), cancel: cancel,
		done: make(chan struct{}), changed: make(chan struct{}),
	}
	q.pin.Store(&p.Fingerprint)
	go q.run(ctx)
	return q
}

// pinned returns the certificate fingerprint that the peer must present.
func (p *peer) pinned() Fingerprint { return *p.pin.Load() }

// stop ends the stream and waits for its goroutine.
func (p *peer) stop() {
	p.cancel()
	<-p.done
}

// run maintains a stream to the peer until stop.
func (p *peer) run(ctx context.Context) {
	defer close(p.done)
	wait := backoffFirst
	for ctx.Err() == nil {
		linked, err := p.session(ctx)
		if linked {
			wait = backoffFirst
		}
		p.set(false, err)
		if ctx.Err() != nil {
			return
		}
		p.s.opt.Logger.Debug("stream ended", "member", p.ID, "addr", p.Addr, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
		// A peer that does not list this member yet will do so soon.
		if status.Code(err) != codes.NotFound {
			wait = min(2*wait, backoffMost)
		}
	}
}

// session dials, sends a hello, and sends frames until the stream breaks. linked reports whether
// the peer accepted the stream.
func (p *peer) session(ctx context.Context) (linked bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := p.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	timer := time.AfterFunc(helloTimeout, func() { cancel(errors.New("stream: no answer to hello")) })
	defer timer.Stop()
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: methodName, ServerStreams: true, ClientStreams: true},
		fullMethod, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return false, cause(ctx, err)
	}
	b := hello{
		Label: p.s.opt.Label, ID: p.s.opt.Self.ID, Boot: p.s.opt.Self.Boot, To: p.ID, ToBoot: p.Boot,
	}.append(nil)
	if err := st.SendMsg(&b); err != nil {
		return false, cause(ctx, st.RecvMsg(&b))
	}
	if err := st.RecvMsg(&b); err != nil {
		return false, cause(ctx, err)
	}
	if len(b) == 0 || b[0] != replyWelcome {
		return false, fmt.Errorf("stream: %s does not speak this protocol", p.Addr)
	}
	if !timer.Stop() {
		return false, context.Cause(ctx)
	}
	p.queue.SetOpen(true)
	defer p.queue.SetOpen(false)
	p.set(true, nil)
	return true, p.pump(ctx, cancel, st)
}

// pump sends queued frames while a second goroutine reads replies.
func (p *peer) pump(ctx context.Context, cancel context.CancelCauseFunc, st grpc.ClientStream) error {
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		cancel(p.listen(st))
	}()
	defer func() { <-heard }()
	defer cancel(nil)
	for {
		var b []byte
		ok := p.queue.Pop(func(frame []byte) bool {
			b = appendFrame(b, frame)
			return len(b) < batchBytes
		})
		if ok {
			if err := st.SendMsg(&b); err != nil {
				return cause(ctx, err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.queue.Ready():
		}
	}
}

// listen handles messages of the accepting end until the stream breaks.
func (p *peer) listen(st grpc.ClientStream) error {
	for {
		var b []byte
		if err := st.RecvMsg(&b); err != nil {
			return err
		}
		if len(b) > 0 && len(b) < 1024 {
			p.s.hear(p.ID, b[0], string(b[1:]))
		}
	}
}

func (p *peer) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+p.Addr,
		grpc.WithTransportCredentials(credentials.NewTLS(p.s.clientTLS(p))),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(4<<20),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: p.s.opt.DeadAfter}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: helloTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
}

// set stores the stream's state and reports link changes.
func (p *peer) set(linked bool, err error) {
	p.mu.Lock()
	was := p.linked
	p.linked, p.err = linked, err
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if was != linked {
		p.s.handler.Link(p.ID, linked)
	}
}

// state returns whether the stream works, the reason if it does not, and a channel that is closed
// on the next change.
func (p *peer) state() (linked bool, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.linked, p.changed, p.err
}

// cause returns the context's cancellation cause if there is one, else gRPC's error.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		return c
	}
	return err
}
