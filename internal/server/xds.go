package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/extproc/xds"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// XDSOptions configures the discovery service for Envoy.
type XDSOptions struct {
	Listen string // host:port of the discovery service, with the TLS of ext_proc; "" for none
	// Listener is Envoy's listen address for clients. If set, Envoy also gets listener and clusters
	// and needs only a bootstrap configuration.
	Listener string
	// Advertise is the ip:port at which Envoy reaches this replica's ext_proc service. The default
	// is the listener's address, or an address of this host if it listens on all.
	Advertise string
}

const (
	keyExtProc = "ext_proc"
	xdsEvery   = 250 * time.Millisecond
	xdsSoon    = 50 * time.Millisecond // until this replica is ready
	xdsGoodbye = time.Second           // for streams to end
)

// xdsShareOptions are what an xdsShare needs.
type xdsShareOptions struct {
	XDS       XDSOptions
	TLS       listen.TLS // of the discovery service
	BodyLimit int        // of the listener that Envoy gets; 0: the default
	Pool      *endpoint.Pool
	Group     facts.Group
	Listeners *budget.Listeners
	Ready     func() bool // whether this replica accepts requests
	Settled   func() bool // whether it has ever been ready to
	Log       *slog.Logger
}

// xdsShare publishes the address of this replica's ext_proc service to the group while it is ready,
// its lateness, and the addresses of all ready replicas to Envoy. A crashed replica is removed when its gauges
// are dropped. It is safe for concurrent use.
type xdsShare struct {
	o     xdsShareOptions
	share facts.SetFunc
	srv   *xds.Server
	grpc  *grpc.Server
	addr  net.Addr
	wg    sync.WaitGroup

	mu     sync.Mutex
	remote facts.Origins[string]        // ext_proc addresses, under keyExtProc
	lates  facts.Origins[time.Duration] // under keyLate

	pace ownPace
}

func newXDSShare(o xdsShareOptions) *xdsShare {
	x := &xdsShare{o: o}
	x.share = o.Group.Gauge(facts.StateReplicas, facts.StateVersion, x)
	return x
}

// open starts the discovery service, if configured, and the updates. extProc is the address of this
// replica's ext_proc service.
func (x *xdsShare) open(ctx context.Context, extProc net.Addr) error {
	self, err := listen.Advertised(x.o.XDS.Advertise, extProc)
	if err != nil {
		return err
	}
	if x.o.XDS.Listen != "" {
		if err := x.listen(x.o.XDS); err != nil {
			return err
		}
	}
	x.wg.Go(func() { x.run(ctx, self) })
	return nil
}

func (x *xdsShare) listen(o XDSOptions) error {
	if o.Listener != "" {
		if _, err := netip.ParseAddrPort(o.Listener); err != nil {
			return fmt.Errorf("server: xds listener: %w", err)
		}
	}
	x.srv = xds.New(x.o.Log)
	creds, err := x.o.TLS.Credentials("xds", x.o.Listeners.Paced, x.o.Log)
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("server: xds: %w", err)
	}
	x.grpc, x.addr = grpc.NewServer(append(x.srv.Limits(), grpc.Creds(creds))...), lis.Addr()
	lis = x.o.Listeners.Limit("xds", 8, lis)
	x.srv.Register(x.grpc)
	x.wg.Go(func() {
		if err := x.grpc.Serve(lis); err != nil {
			x.o.Log.Error("xds listener ended", "error", err)
		}
	})
	x.o.Log.Info("xds listening", "address", x.addr.String(), "tls", !x.o.TLS.Plaintext, "listener", o.Listener)
	return nil
}

// run publishes changes.
func (x *xdsShare) run(ctx context.Context, self string) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	told, due := "", time.Now()
	var pool *endpoint.Snapshot
	var last []string
	for {
		if late := x.pace.step(time.Now(), due, x); late != nil {
			if err := x.share(keyLate, late); err != nil {
				x.o.Log.Warn("lateness not shared", "error", err)
			}
		}
		ready := ""
		if x.o.Ready() {
			ready = self
		}
		if ready != told {
			told = ready
			var value []byte
			if ready != "" {
				value = []byte(ready)
			}
			if err := x.share(keyExtProc, value); err != nil {
				x.o.Log.Warn("address of ext_proc not shared", "error", err)
			}
		}
		if now, replicas := x.o.Pool.Snapshot(), x.replicas(ready); x.srv != nil && (now != pool || !slices.Equal(replicas, last)) {
			pool, last = now, replicas
			x.publish(ctx, pool, replicas)
		}
		every := xdsEvery
		if ready == "" {
			every = xdsSoon
		}
		wait := ticks.Until(every)
		due = time.Now().Add(wait)
		tick.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// publish sends Envoy a new state.
func (x *xdsShare) publish(ctx context.Context, pool *endpoint.Snapshot, replicas []string) {
	if len(pool.Endpoints) == 0 {
		return // nothing is known yet; Envoy keeps its state
	}
	st := xds.State{Replicas: replicas}
	for _, ep := range pool.Endpoints {
		st.Endpoints = append(st.Endpoints, ep.Address)
	}
	if at := x.o.XDS.Listener; at != "" {
		st.Listener = &envoyconf.Params{Listen: at, Plaintext: x.o.TLS.Plaintext, BodyLimit: x.o.BodyLimit}
	}
	if err := x.srv.Set(ctx, st); err != nil && ctx.Err() == nil {
		x.o.Log.Error("xds state refused; Envoy keeps the previous one", "error", err)
		return
	}
	x.o.Log.Info("xds state", "version", x.srv.Version(), "endpoints", len(st.Endpoints), "replicas", len(replicas))
}

// replicas lists the ext_proc addresses of ready replicas, sorted.
func (x *xdsShare) replicas(self string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	if self != "" {
		out = append(out, self)
	}
	for a := range x.remote.Values(keyExtProc) {
		out = append(out, a)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Merge implements cluster.GaugeSink.
func (x *xdsShare) Merge(origin string, _ uint64, key string, value []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch key {
	case keyLate:
		return mergeLate(&x.lates, origin, value)
	case keyExtProc:
	default:
		return nil // from a later version
	}
	if value == nil {
		x.remote.Delete(key, origin)
		return nil
	}
	at, err := netip.ParseAddrPort(string(value))
	if err != nil {
		return fmt.Errorf("server: ext_proc address of %s: %w", origin, err)
	}
	x.remote.Set(key, origin, at.String())
	return nil
}

// Drop implements cluster.GaugeSink.
func (x *xdsShare) Drop(origin string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remote.Drop(origin)
	x.lates.Drop(origin)
}

// close ends the streams after the context of open has ended.
func (x *xdsShare) close() {
	if x == nil {
		return
	}
	if x.grpc != nil {
		x.srv.Close()
		cut := time.AfterFunc(xdsGoodbye, x.grpc.Stop)
		x.grpc.GracefulStop()
		cut.Stop()
	}
	x.wg.Wait()
}
