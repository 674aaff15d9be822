package share

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	findTimeout = 2 * time.Second
	findEvery   = 30 * time.Second // interval for engines that did not answer or publish nothing
	findAtOnce  = 8
)

// Finder asks engines without a configured event stream where they publish. Safe for concurrent
// use.
type Finder struct {
	pool  *endpoint.Pool
	log   *slog.Logger
	trust events.Trust
	// Inbound is the number of ports, one per rank, at which engines without a known stream may
	// dial in. Set it before Run.
	Inbound int
	// EngineKey returns the API key for engines, "" for none. It may be nil. Set it before Run.
	EngineKey func() string

	mu   sync.Mutex
	at   map[block.EndpointID][]events.Stream
	wake chan struct{}
}

// NewFinder returns a Finder for the configured endpoints of pool. See Run.
func NewFinder(pool *endpoint.Pool, trust events.Trust, log *slog.Logger) *Finder {
	return &Finder{pool: pool, trust: trust, log: log, at: map[block.EndpointID][]events.Stream{}, wake: make(chan struct{}, 1)}
}

// Streams returns an endpoint's configured streams, or the ones that its engine reports if none are
// configured.
func (f *Finder) Streams(ep *endpoint.Endpoint) []events.Stream {
	e := ep.Events
	if e.Inbound {
		return f.dialIn(ep)
	}
	if e.Port > 0 {
		host := e.Host
		if host == "" {
			host = ep.Addr.Addr().String()
		}
		return events.PortStreams(host, e.Port, e.ReplayPort, max(e.Ranks, 1), e.Topic)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.at[ep.ID]; len(at) > 0 || f.Inbound == 0 {
		return at
	}
	return f.dialIn(ep)
}

// dialIn returns the streams of an engine that dials in.
func (f *Finder) dialIn(ep *endpoint.Endpoint) []events.Stream {
	e, host := ep.Events, ep.Addr.Addr().String()
	out := events.PortStreams(host, 0, e.ReplayPort, max(f.Inbound, 1), e.Topic)
	for i := range out {
		out[i].Events = events.InboundFrom(host)
	}
	return out
}

// Publishes reports whether an endpoint is known to have an event stream.
func (f *Finder) Publishes(ep *endpoint.Endpoint) bool { return len(f.Streams(ep)) > 0 }

// Changed handles a change of the pool.
func (f *Finder) Changed(c endpoint.Change) {
	f.mu.Lock()
	for _, ep := range c.Dropped {
		delete(f.at, ep.ID)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run asks engines until ctx ends. It calls news after each new result.
func (f *Finder) Run(ctx context.Context, news func()) {
	client := events.Client(findTimeout)
	if f.EngineKey != nil {
		client = events.Keyed(client, f.EngineKey)
	}
	tick := time.NewTicker(findEvery)
	defer tick.Stop()
	for {
		if f.ask(ctx, client) {
			news()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.wake:
		}
	}
}

// ask asks every endpoint without a configured stream. It reports whether there is a new result.
func (f *Finder) ask(ctx context.Context, client *http.Client) bool {
	var wg sync.WaitGroup
	slots := make(chan struct{}, findAtOnce)
	var mu sync.Mutex
	news := false
	for _, ep := range f.pool.Snapshot().Endpoints {
		if ep.Events.Port > 0 || ep.Events.Inbound || ep.Down() || ctx.Err() != nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			found, err := events.Discover(ctx, client, "http://"+ep.Address, nil, f.trust)
			if err != nil || len(found) == 0 {
				f.log.Debug("engine did not report where it publishes events", "endpoint", ep.Address, "error", err)
				return
			}
			f.mu.Lock()
			same := slices.Equal(f.at[ep.ID], found)
			f.at[ep.ID] = found
			f.mu.Unlock()
			if !same {
				f.log.Info("engine reported where it publishes events", "endpoint", ep.Address, "streams", len(found))
				mu.Lock()
				news = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return news
}
