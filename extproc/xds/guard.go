package xds

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Limits per Envoy. It needs one stream with few names. Its first request lists its build's
// extensions, some tens of kilobytes.
const (
	maxRequest  = 256 << 10
	maxStreams  = 4 // per connection
	maxNames    = 256
	maxName     = 512         // bytes
	streamBytes = 64 << 10    // receive window
	firstAsk    = time.Minute // for a stream's first request, and for a connection without streams
	refusedLog  = 10 * time.Second
)

var (
	errNames  = status.Errorf(codes.InvalidArgument, "xds: more than %d names, or a name of more than %d bytes", maxNames, maxName)
	errSilent = status.Error(codes.DeadlineExceeded, "xds: nothing was asked")
)

// served are the supported resource types. Requests for other types are not answered, as the
// protocol specifies for missing resources, and not stored.
var served = map[string]bool{
	resource.EndpointType: true, resource.ClusterType: true, resource.ListenerType: true,
}

// Limits returns server options that limit the memory of clients of this service.
func (s *Server) Limits() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(64 << 10),
		grpc.InitialWindowSize(streamBytes),
		grpc.InitialConnWindowSize(maxStreams * streamBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: firstAsk, Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			g := &guarded{ServerStream: ss, s: s}
			if err := next(srv, g); err != nil {
				return err
			}
			if fault := g.fault.Load(); fault != nil {
				return *fault // it ends the requests and is not an error of the service
			}
			return nil
		}),
	}
}

// guarded is a stream with limited requests.
type guarded struct {
	grpc.ServerStream
	s     *Server
	asked bool
	fault atomic.Pointer[error] // the receiving goroutine may outlive the service method
	names int                   // of incremental requests, which accumulate
}

// RecvMsg receives the next request for a supported type. It removes fields that are not needed
// here and would be stored for the stream's lifetime.
func (g *guarded) RecvMsg(m any) error {
	for {
		if err := g.receive(m); err != nil {
			return err
		}
		kind, err := g.bound(m)
		if err != nil {
			g.fault.Store(&err)
		}
		if err != nil || served[kind] {
			return err
		}
	}
}

// receive limits the wait for the first request.
func (g *guarded) receive(m any) error {
	if g.asked {
		return g.ServerStream.RecvMsg(m)
	}
	g.asked = true
	came := make(chan error, 1)
	go func() { came <- g.ServerStream.RecvMsg(m) }() // ends with the stream
	late := time.NewTimer(firstAsk)
	defer late.Stop()
	select {
	case err := <-came:
		return err
	case <-late.C:
		return errSilent
	}
}

// bound strips a request and returns its type.
func (g *guarded) bound(m any) (kind string, err error) {
	switch r := m.(type) {
	case *discoveryv3.DiscoveryRequest:
		kind = r.GetTypeUrl()
		g.s.refused(r.GetNode(), kind, r.GetErrorDetail())
		r.Node, r.ErrorDetail, r.ResourceLocators = &corev3.Node{}, nil, nil
		g.names = len(r.GetResourceNames())
		return kind, g.check(r.GetResourceNames())
	case *discoveryv3.DeltaDiscoveryRequest:
		kind = r.GetTypeUrl()
		g.s.refused(r.GetNode(), kind, r.GetErrorDetail())
		r.Node, r.ErrorDetail, r.ResourceLocatorsSubscribe, r.ResourceLocatorsUnsubscribe = &corev3.Node{}, nil, nil, nil
		g.names += len(r.GetResourceNamesSubscribe()) + len(r.GetInitialResourceVersions())
		for name, version := range r.GetInitialResourceVersions() {
			if err := g.check([]string{name, version}); err != nil {
				return kind, err
			}
		}
		return kind, g.check(r.GetResourceNamesSubscribe())
	}
	return "", status.Errorf(codes.Unimplemented, "xds: %T", m)
}

func (g *guarded) check(names []string) error {
	if g.names > maxNames {
		return errNames
	}
	for _, n := range names {
		if len(n) > maxName {
			return errNames
		}
	}
	return nil
}

// refusals logs Envoys that reject their configuration, at a limited rate.
type refusals struct {
	mu   sync.Mutex
	log  *slog.Logger // nil for none
	next time.Time
}

// refused logs that an Envoy rejected an update. It continues with its previous configuration, and
// only this log line reveals it.
func (s *Server) refused(node *corev3.Node, kind string, why *rpcstatus.Status) {
	r := &s.refusals
	if why == nil || r.log == nil {
		return
	}
	r.mu.Lock()
	now := time.Now()
	quiet := now.Before(r.next)
	if !quiet {
		r.next = now.Add(refusedLog)
	}
	r.mu.Unlock()
	if !quiet {
		r.log.Warn("rejected xDS update: Envoy continues with its previous configuration", "node", cut(node.GetId()), "type", cut(kind), "error", cut(why.GetMessage()))
	}
}

func cut(s string) string { return s[:min(len(s), maxName)] }
