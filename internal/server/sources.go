package server

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	findTimeout = 2 * time.Second
	findEvery   = 30 * time.Second // engines that did not answer, or say that they publish nothing
	findAtOnce  = 8
)

// finder asks engines for which the endpoints file names no event stream where
// they publish. It is safe for concurrent use.
type finder struct {
	s    *Server
	mu   sync.Mutex
	at   map[indexer.EndpointID][]events.Stream
	wake chan struct{}
}

func newFinder(s *Server) *finder {
	return &finder{s: s, at: map[indexer.EndpointID][]events.Stream{}, wake: make(chan struct{}, 1)}
}

// streams returns where an endpoint publishes: what the file says, else what the
// engine said.
func (f *finder) streams(ep *endpoint.Endpoint) []events.Stream {
	if e := ep.Events; e.Port > 0 {
		host := e.Host
		if host == "" {
			host = ep.Addr.Addr().String()
		}
		return events.PortStreams(host, e.Port, e.ReplayPort, max(e.Ranks, 1), e.Topic)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[ep.ID]
}

// publishes reports whether an endpoint is known to have an event stream.
func (f *finder) publishes(ep *endpoint.Endpoint) bool { return len(f.streams(ep)) > 0 }

// changed follows the pool.
func (f *finder) changed(c endpoint.Change) {
	f.mu.Lock()
	for _, ep := range c.Removed {
		delete(f.at, ep.ID)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run asks until ctx ends.
func (f *finder) run(ctx context.Context) {
	client := &http.Client{Timeout: findTimeout}
	tick := time.NewTicker(findEvery)
	defer tick.Stop()
	for {
		if f.ask(ctx, client) {
			f.s.follow()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.wake:
		}
	}
}

// ask asks every endpoint without a configured stream; true when something new is known.
func (f *finder) ask(ctx context.Context, client *http.Client) bool {
	var wg sync.WaitGroup
	slots := make(chan struct{}, findAtOnce)
	var mu sync.Mutex
	news := false
	for _, ep := range f.s.pool.Snapshot().Endpoints {
		if ep.Events.Port > 0 || ep.Down() || ctx.Err() != nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			found, err := events.Discover(ctx, client, "http://"+ep.Address, nil)
			if err != nil || len(found) == 0 {
				return
			}
			f.mu.Lock()
			same := slices.Equal(f.at[ep.ID], found)
			f.at[ep.ID] = found
			f.mu.Unlock()
			if !same {
				f.s.o.Log.Info("engine told where it publishes events", "endpoint", ep.Address, "streams", len(found))
				mu.Lock()
				news = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return news
}
