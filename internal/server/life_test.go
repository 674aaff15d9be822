package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// An engine that restarts at its address is a new incarnation, detected by its start time or its
// event stream. Every replica immediately drops the previous incarnation's in-flight load and
// failures. Requests that end later change nothing.
func TestEngineRestart(t *testing.T) {
	parts.Full(t)
	for _, unnamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("unnamed %v", unnamed), func(t *testing.T) {
			g := newGroupWith(t, 2, 40, group{share: "mesh", unnamed: unnamed})
			g.churn(60)
			g.agree(g.replicas...)
			e, now := g.fleet.Engines()[0], time.Now()
			at := func(s *Server) *endpoint.Endpoint { return s.pool.Snapshot().Lookup(e.Addr()) }
			tickets := make([]endpoint.Ticket, len(g.replicas))
			for i, s := range g.replicas {
				s.pool.LoadTracker().Open(&tickets[i], at(s), endpoint.Work{Input: 100, New: 100}, now)
			}
			loads := func(want int64) {
				t.Helper()
				testkit.Eventually(g.t, func() string {
					for _, s := range g.replicas {
						if l := s.pool.LoadTracker().Load(at(s), time.Now()); l.Requests != want {
							return fmt.Sprintf("%s: %+v", s.o.Name, l)
						}
					}
					return ""
				})
			}
			loads(2)
			id := at(g.replicas[0]).ID
			if err := e.Restart(sim.RestartOptions{Down: 1100 * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			loads(0)
			if ep := at(g.replicas[0]); ep.ID != id {
				t.Errorf("id %d, was %d", ep.ID, id)
			}
			var fresh endpoint.Ticket
			g.replicas[0].pool.LoadTracker().Open(&fresh, at(g.replicas[0]), endpoint.Work{Input: 10, New: 10}, time.Now())
			loads(1)
			for i := range tickets {
				tickets[i].Release()
			}
			loads(1)
			fresh.Release()
			loads(0)
			testkit.Eventually(g.t, func() string {
				for _, s := range append(g.replicas, g.alone) {
					if c := contents(s)[e.Addr()]; c.count > 0 {
						return fmt.Sprintf("%s: %v; %s", s.o.Name, c, describe(s))
					}
				}
				return ""
			})
			g.churn(30)
			g.same()
		})
	}
}
