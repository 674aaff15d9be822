package stream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Streams manages the streams between this member and all peers. Methods are safe for concurrent
// use.
type Streams struct {
	opt      Options
	identity atomic.Pointer[identity]
	lis      net.Listener
	server   *grpc.Server
	handler  Handler
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	setting sync.Mutex // serializes SetPeers

	mu      sync.Mutex
	peers   map[string]*peer
	refused map[string]uint64
	former  map[Fingerprint]bool // certificates of peers that were removed, at most maxFormer
	reports map[string]string    // peers' reports about this member's address; "" when it works
	reached bool                 // a peer has reached this member's address at some time
	closed  bool
}

// New makes the certificate and binds the address. It accepts no stream before Open.
func New(opt Options) (*Streams, error) {
	opt = opt.withDefaults()
	if len(opt.Self.ID) > maxField || opt.Self.ID == "" || len(opt.Label) > maxField {
		return nil, errors.New("stream: member ID or label is empty or too long")
	}
	s := &Streams{opt: opt, peers: map[string]*peer{}, refused: map[string]uint64{}, former: map[Fingerprint]bool{}, reports: map[string]string{}}
	cert := opt.Certificate
	if cert == nil {
		var err error
		if cert, err = selfSigned(opt.Self.ID); err != nil {
			return nil, err
		}
	}
	s.SetCertificate(cert, opt.Roots)
	lis, err := net.Listen("tcp", opt.Bind)
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	s.lis = lis
	if opt.Limit != nil {
		s.lis = opt.Limit(lis)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Addr returns the listen address.
func (s *Streams) Addr() net.Addr { return s.lis.Addr() }

// Fingerprint returns the fingerprint of this member's certificate.
func (s *Streams) Fingerprint() Fingerprint {
	return sha256.Sum256(s.identity.Load().cert.Certificate[0])
}

// Open starts accepting streams. Frames and link changes are reported to h.
func (s *Streams) Open(h Handler) {
	s.handler = h
	s.server = grpc.NewServer(
		grpc.Creds(countingCreds{credentials.NewTLS(s.serverTLS()), s}),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(maxMessage), grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.MaxConcurrentStreams(peerStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.opt.DeadAfter, Timeout: s.opt.DeadAfter}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}),
	)
	s.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: methodName, Handler: s.accept, ServerStreams: true, ClientStreams: true}},
	}, s)
	s.wg.Go(func() {
		_ = s.server.Serve(s.lis) // ends by Stop
	})
}

// SetPeers replaces the set of peers. A peer that changed is redialed, unless only its fingerprint
// changed: the process is then the same and presents the new certificate next time. The old stream
// has ended, and its end is reported, before the new one starts.
func (s *Streams) SetPeers(list []Peer) {
	s.setting.Lock()
	defer s.setting.Unlock()
	want := map[string]Peer{}
	for _, p := range list {
		if p.ID != s.opt.Self.ID && p.ID != "" {
			want[p.ID] = p
		}
	}
	for _, p := range s.part(want) {
		p.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if s.peers[id] == nil {
			s.peers[id] = s.startPeer(want[id])
		}
	}
}

// maxFormer bounds the remembered certificates of removed peers.
const maxFormer = 256

// part removes and returns the peers that are gone or changed.
func (s *Streams) part(want map[string]Peer) (gone []*peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.peers {
		w := want[id]
		if w.Boot == p.Boot && w.Addr == p.Addr {
			p.pin.Store(&w.Fingerprint)
			continue
		}
		gone = append(gone, p)
		if len(s.former) >= maxFormer {
			clear(s.former)
		}
		s.former[p.pinned()] = true
		delete(s.peers, id)
		delete(s.reports, id)
	}
	return gone
}

// Send queues a frame.
func (s *Streams) Send(e group.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.To == nil {
		for _, p := range s.peers {
			p.queue.Push(e.Class, e.Frame, len(e.Frame))
		}
		return
	}
	for _, id := range e.To {
		if p := s.peers[id]; p != nil {
			p.queue.Push(e.Class, e.Frame, len(e.Frame))
		}
	}
}

// Close ends every stream and waits for all goroutines.
func (s *Streams) Close() {
	s.mu.Lock()
	s.closed = true
	peers := slices.Collect(maps.Values(s.peers))
	s.peers = map[string]*peer{}
	s.mu.Unlock()
	s.cancel()
	for _, p := range peers {
		p.stop()
	}
	if s.server != nil {
		s.server.Stop()
	} else {
		_ = s.lis.Close()
	}
	s.wg.Wait()
}

// Queues returns the send queues, by peer ID.
func (s *Streams) Queues() []group.Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []group.Queue
	for id, p := range s.peers {
		q := group.Queue{Peer: id}
		q.Frames, q.Bytes, q.Dropped = p.queue.Stats()
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b group.Queue) int { return strings.Compare(a.Peer, b.Peer) })
	return out
}

// Refused returns the number of refusals, by reason.
func (s *Streams) Refused() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.refused)
}

// WasReached reports whether any peer has ever reached this member at its advertised address. From
// then on the address is right, and failures are those of the network.
func (s *Streams) WasReached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached
}

// Unreachable returns the errors of peers that cannot reach this member, by peer ID, and the number
// of peers that can.
func (s *Streams) Unreachable() (why map[string]string, reached int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why = map[string]string{}
	for id, text := range s.reports {
		if text == "" {
			reached++
		} else {
			why[id] = text
		}
	}
	return why, reached
}

func (s *Streams) refuse(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[reason]++
}

// knows reports whether fp is the fingerprint of a member's certificate.
func (s *Streams) knows(fp Fingerprint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if p.pinned() == fp {
			return true
		}
	}
	return false
}

// knew reports whether fp is the fingerprint of a removed peer's certificate.
func (s *Streams) knew(fp Fingerprint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.former[fp]
}

func (s *Streams) peer(id string) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[id]
}

// hear stores a peer's report about this member's address.
func (s *Streams) hear(id string, kind byte, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[id] == nil {
		return
	}
	switch kind {
	case replyReached:
		s.reports[id], s.reached = "", true
	case replyUnreachable:
		s.reports[id] = text
	}
}
