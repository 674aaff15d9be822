package server

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// A replica drops shared state about endpoints together with the endpoints. Pools whose endpoints
// change their addresses all the time must not fill a table.
func TestGoneEndpointsAreForgotten(t *testing.T) {
	g := newGroupWith(t, 2, 10000, group{share: "mesh", change: func(o *Options) { o.Keep = -1 }})
	teller, told := g.replicas[0], g.replicas[1]
	for _, ep := range teller.pool.Snapshot().Endpoints {
		ep.ObservePrefill(&endpoint.Queued{Own: endpoint.Work{Input: 1000, New: 1000}, At: time.Unix(1, 0)}, time.Second)
	}
	constants := func(n int) func() string {
		return func() string {
			if got := told.costs.Endpoints(); got != n {
				return fmt.Sprintf("of %d endpoints", got)
			}
			return ""
		}
	}
	testkit.Eventually(g.t, constants(groupEngines))
	one, err := fleet.Open(fleet.Options{Engines: 1, Engine: sim.Options{Speed: math.Inf(1), Events: &sim.EventOptions{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if err := one.WriteEndpoints(filepath.Join(g.dir, "endpoints.yaml")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(g.t, constants(0))
}

// TestDrainingReplicaIsCounted checks that a stopping replica stays in the group until its last
// request ends: the others count that request, and the stopping replica counts their requests.
func TestDrainingReplicaIsCounted(t *testing.T) {
	g := newGroupWith(t, 2, 10000, group{share: "mesh"})
	leaver, other := g.replicas[0], g.replicas[1]
	inFlight := func(s *Server) (n int64) {
		for _, ep := range s.pool.Snapshot().Endpoints {
			n += s.pool.LoadTracker().Load(ep, time.Now()).Requests
		}
		return n
	}
	want := func(s *Server, n int64) {
		t.Helper()
		testkit.Eventually(g.t, func() string {
			if got := inFlight(s); got != n {
				return fmt.Sprintf("%d requests in flight, want %d", got, n)
			}
			return ""
		})
	}
	place := func(s *Server) *request.Decision {
		t.Helper()
		r := &request.Request{ID: "r", Path: "/v1/completions", Headers: none{}, Body: fmt.Appendf(nil, `{"model":%q,"prompt":"hello"}`, vocab.Name)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := s.scheduler.Choose(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	running := place(leaver)
	want(other, 1)

	leaver.Drain(t.Context())
	second := place(other)
	want(leaver, 2) // it is still told
	want(other, 2)  // and still counted
	second.Done(request.Outcome{Complete: true})
	running.Done(request.Outcome{Complete: true})
	want(other, 0)
}
