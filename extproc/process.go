package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/extproc/internal/follow"
	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/budget"
)

// Processor is the ExternalProcessor service. It starts no goroutine. It requires a server created
// by Open, which sets the codec. It is safe for concurrent use.
type Processor struct {
	extprocv3.UnimplementedExternalProcessorServer
	opts     Options
	metrics  *metrics
	kits     sync.Pool
	served   follow.Counter
	guards   *wire.Guards
	holders  *budget.Holders // of bodies
	verified atomic.Bool     // proxies present verified certificates
	// Set once logged: bodies are not seen, rewrites have no effect, responses keep the engines'
	// model names.
	unseen, blindRules, fixedNames atomic.Bool
	undecoded                      sync.Map // logged reasons for undecoded bodies
}

// New returns a Processor. It returns an error if a required option is missing or the metrics are
// already registered.
func New(opts Options) (*Processor, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, fmt.Errorf("extproc: metrics: %w", err)
	}
	p := &Processor{opts: opts, metrics: m, guards: &wire.Guards{Budget: opts.Budget, Timeout: opts.BodyTimeout}, holders: budget.NewHolders(opts.Budget, budget.Bodies)}
	p.guards.Shed = func(n int) {
		m.shed.Add(float64(n))
		opts.Log.Warn("memory limit reached: ended streams that waited for request bodies", "streams", n)
	}
	p.kits.New = func() any {
		k := &kit{route: wire.RouteWriter{Fallback: opts.FallbackMetadata}}
		k.evict = func() { k.owner.evict() }
		k.starve = func() { k.owner.guard.Evict() }
		return k
	}
	return p, nil
}

// Process serves one HTTP request on gRPC's goroutine. It starts none.
func (p *Processor) Process(out grpc.BidiStreamingServer[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse]) error {
	if compressed(out.Context()) {
		p.metrics.streams.WithLabelValues(endFailed).Inc()
		return errCompressed
	}
	return p.process(out.Context(), out)
}

// errCompressed is the result of streams with compressed messages, which no proxy sends: gRPC would
// decompress each message up to the limit of bodies before it is counted.
var errCompressed = status.Error(codes.Unimplemented, "extproc: compressed messages are not supported")

// compressed reports whether the messages of a stream are compressed.
func compressed(ctx context.Context) bool {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	return ok && s.RecvCompress() != "" && s.RecvCompress() != encoding.Identity
}

// transport is the part of a gRPC stream that Process needs. A message may be reused once SendMsg
// has returned.
type transport interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

func (p *Processor) process(ctx context.Context, t transport) (err error) {
	st := &stream{p: p, ctx: ctx, link: t, kit: p.kits.Get().(*kit), began: p.opts.Now(), guard: wire.GuardOf(ctx)}
	st.kit.owner = st
	p.holders.Begin(&st.in.memory, st.endedFor())
	st.guard.Run()
	p.metrics.active.Inc()
	end := endPanicked
	defer func() {
		if v := recover(); v != nil {
			// One broken request must not crash the others.
			p.opts.Log.Error("stream panicked", "panic", v, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "extproc: internal error")
		}
	}()
	defer func() {
		st.close()
		st.guard.End()
		st.eviction.wait()
		p.metrics.active.Dec()
		p.metrics.streams.WithLabelValues(end).Inc()
		p.metrics.lifetime.Observe(p.opts.Now().Sub(st.began).Seconds())
		if end != endPanicked {
			st.kit.reset()
			p.kits.Put(st.kit)
		}
	}()
	end, err = st.run()
	return err
}

// endedFor returns a function that ends the stream to free its body's memory, or nil if that is
// impossible.
func (st *stream) endedFor() func() {
	if st.guard == nil {
		return nil
	}
	return st.kit.starve
}

// run receives until the stream ends and returns the kind of end. The error is sent to the proxy.
func (st *stream) run() (end string, err error) {
	m := &st.kit.message
	for err == nil {
		m.Free()
		if err = st.link.RecvMsg(m); err == nil {
			err = st.handle(m)
		}
	}
	switch {
	case st.eviction.happened():
		return endEvicted, nil
	case errors.Is(context.Cause(st.ctx), wire.ErrStarved):
		return endStarved, status.Error(codes.ResourceExhausted, wire.ErrStarved.Error())
	case errors.Is(err, errAnswered):
		return endAnswered, nil
	case st.back.ended && (errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled):
		return endComplete, nil
	case errors.Is(err, io.EOF):
		return endClosed, nil
	case status.Code(err) == codes.Canceled || st.ctx.Err() != nil:
		return endCancelled, nil
	default:
		st.p.opts.Log.Debug("stream failed", "error", err)
		return endFailed, err
	}
}
