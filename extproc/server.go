package extproc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/listen"
)

const (
	// messageSlack is the allowance of a message in addition to the maximum body. A body slightly
	// over the limit must still arrive, to be answered with 413.
	messageSlack = 4 << 20
	// handshakeTimeout bounds the time of a connection's handshake.
	handshakeTimeout = 10 * time.Second
	// maxStreams is the maximum number of open requests per Envoy connection.
	maxStreams = 1 << 20
	// streamWorkers is the number of goroutines that serve one stream after the other. A stream that
	// finds them all busy gets a new goroutine, which grows its stack again: 9% of a short request's
	// CPU time.
	streamWorkers = 64
	// streamWindow lets a typical request body arrive without waiting for a
	// window update; connWindow is shared by the streams of one connection.
	streamWindow = 1 << 20
	connWindow   = 16 << 20
	// maxMetadata is the maximum size of a stream's headers as counted by gRPC. The request's
	// headers are inside its messages.
	maxMetadata = 64 << 10
	// Limits of the health listener: a name, and a watch per checker.
	maxHealthMessage = 16 << 10
	maxHealthStreams = 32
)

// Listen configures the listeners of a Server.
type Listen struct {
	Address string // host:port; port 0 takes a free one
	TLS     listen.TLS

	// HealthAddress is a second, plaintext listener with the health service only; "" opens none.
	// The health service is always available on Address.
	HealthAddress string

	// Linger is how long Stop accepts streams after the health service reports not serving. It must
	// cover the proxies' health check interval, or requests in that interval are rejected.
	Linger time.Duration

	// Listeners bounds the connections; nil means no limit.
	Listeners *budget.Listeners

	// Readiness feeds the health service; required.
	Readiness *listen.Readiness
}

// Server serves a Processor and the health service until Stop.
type Server struct {
	main, health         *grpc.Server
	mainAddr, healthAddr net.Addr
	stopped              atomic.Bool
	ready                *listen.Readiness
	linger               time.Duration
	checks               healthpb.HealthServer
	stopWatches          context.CancelFunc
	group                errgroup.Group
}

// errNoReadiness is returned by Open without a readiness source.
var errNoReadiness = errors.New("extproc: listen: a readiness source is required")

// Open listens and serves p. It does not change the readiness: set it when requests are accepted.
func Open(p *Processor, l Listen) (*Server, error) {
	if l.Readiness == nil {
		return nil, errNoReadiness
	}
	creds, err := l.TLS.Credentials("ext_proc", l.Listeners.Paced, p.opts.Log)
	if err != nil {
		return nil, err
	}
	p.verified.Store(l.TLS.ClientCA != "")
	s := &Server{main: grpc.NewServer(append(serverOptions(p), grpc.Creds(creds))...), ready: l.Readiness, linger: l.Linger}
	stopping, stop := context.WithCancel(context.Background())
	s.checks, s.stopWatches = l.Readiness.Service(stopping), stop
	extprocv3.RegisterExternalProcessorServer(s.main, p)
	healthpb.RegisterHealthServer(s.main, s.checks)
	lis, err := net.Listen("tcp", l.Address)
	if err != nil {
		stop()
		return nil, fmt.Errorf("extproc: listen: %w", err)
	}
	s.mainAddr, lis = lis.Addr(), l.Listeners.Limit("ext_proc", 2, lis)
	if err := s.openHealth(l, p.opts.Log); err != nil {
		stop()
		lis.Close()
		return nil, err
	}
	s.group.Go(func() error { return unlessStopped(s.main.Serve(lis)) })
	p.opts.Log.Info("ext_proc listening", "address", s.mainAddr.String(), "tls", !l.TLS.Plaintext)
	return s, nil
}

// OpenHealth listens on HealthAddress and serves the health service alone, for a process whose
// processors have listeners of their own.
func OpenHealth(l Listen, log *slog.Logger) (*Server, error) {
	if l.Readiness == nil {
		return nil, errNoReadiness
	}
	s := &Server{ready: l.Readiness}
	stopping, stop := context.WithCancel(context.Background())
	s.checks, s.stopWatches = l.Readiness.Service(stopping), stop
	if err := s.openHealth(l, log); err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

// openHealth serves the health service on its own address, if configured.
func (s *Server) openHealth(l Listen, log *slog.Logger) error {
	if l.HealthAddress == "" {
		return nil
	}
	lis, err := net.Listen("tcp", l.HealthAddress)
	if err != nil {
		return fmt.Errorf("extproc: listen for health: %w", err)
	}
	pacing := &listen.Pacing{Listener: "health", Paced: func() { l.Listeners.Paced("health") }, Log: log}
	s.health = grpc.NewServer(grpc.Creds(pacing.Over(insecure.NewCredentials())), grpc.ConnectionTimeout(handshakeTimeout), grpc.MaxRecvMsgSize(maxHealthMessage), grpc.MaxConcurrentStreams(maxHealthStreams), grpc.MaxHeaderListSize(maxHealthMessage), keepAlive, keepAliveAsked)
	s.healthAddr, lis = lis.Addr(), l.Listeners.LimitShort("health", 16, lis)
	healthpb.RegisterHealthServer(s.health, s.checks)
	s.group.Go(func() error { return unlessStopped(s.health.Serve(lis)) })
	return nil
}

// unlessStopped ignores the error of a stop before the first connection.
func unlessStopped(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

func serverOptions(p *Processor) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.MaxRecvMsgSize(p.opts.MaxBody + messageSlack),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.InTapHandle(p.guards.Tap),
		experimental.BufferPool(p.guards.Pool()),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		keepAlive, keepAliveAsked,
	}
}

// A proxy that disappeared without closing its connection must not keep requests in flight.
var (
	keepAlive      = grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second})
	keepAliveAsked = grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})
)

// Addr returns the address of the ext_proc service.
func (s *Server) Addr() net.Addr { return s.mainAddr }

// HealthAddr returns the address of the separate health service, nil without one.
func (s *Server) HealthAddr() net.Addr { return s.healthAddr }

// Wait blocks until the listeners have ended, after Stop or with the error of a failed listener.
func (s *Server) Wait() error { return s.group.Wait() }

// Stop reports not serving, lingers, accepts no new streams, waits for the open ones until ctx
// ends, then cuts the rest. It returns once every goroutine of the server has ended, with the error
// of a listener that failed earlier. Further calls wait for the first one.
func (s *Server) Stop(ctx context.Context) error {
	if s.stopped.Swap(true) {
		return s.group.Wait()
	}
	s.ready.Set(false)
	select {
	case <-time.After(s.linger):
	case <-ctx.Done():
	}
	s.stopWatches()
	s.stopMain(ctx)
	if s.health != nil {
		s.health.Stop()
	}
	return s.group.Wait()
}

// stopMain waits for the open streams until ctx ends, then cuts the rest.
func (s *Server) stopMain(ctx context.Context) {
	if s.main == nil {
		return
	}
	drained := make(chan struct{})
	go func() {
		s.main.GracefulStop()
		close(drained)
	}()
	select {
	case <-drained:
	case <-ctx.Done():
		s.main.Stop()
		<-drained
	}
}
