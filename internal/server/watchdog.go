package server

import (
	"context"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/ticks"
)

// onStall takes this replica out of service while one of its loops is stalled: health checks fail,
// and peers receive nothing, as from a crashed replica.
func (s *Server) onStall(stalled []string) {
	s.readiness.SetStalled(len(stalled) > 0)
	if len(stalled) > 0 {
		s.flight.Trigger(flightrecorder.Health, "stalled: "+strings.Join(stalled, ", "))
	}
	if s.node != nil {
		s.node.SetMuted(len(stalled) > 0)
	}
}

// longWork is the time limit for changes of thousands of endpoints. Requests never wait for such a
// change: they read a snapshot of the pool.
const longWork = 10 * time.Second

// watchLocks registers the mutexes of requests and loops with the watchdog.
func (s *Server) watchLocks() {
	s.dog.Probe("cluster lock", 0, func() { s.node.Phase() })
	s.dog.Probe("engine health lock", longWork, s.health.Probe) // its loop reports progress while it holds the lock
	s.dog.Probe("metrics pages lock", 0, s.scrape.Probe)
	s.dog.Probe("endpoint list lock", longWork, s.pool.Expire)
	s.dog.Probe("event streams lock", longWork, func() { s.share.StreamsRead() })
}

// publishSetup shares the models that this replica uses, until ctx ends. The first read of a large
// vocabulary may take seconds, which readiness does not wait for.
func publishSetup(ctx context.Context, setup *facts.Setup, searching func() bool) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		if !searching() { // until then, peers would see a difference that is none
			setup.Publish()
		}
		tick.Reset(ticks.Until(250 * time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
