package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// failing opens a replica with engines of which the first few answer 500. The returned function
// schedules a request, completes it with the engine's answer, and returns the engine.
func failing(t *testing.T, engines, sick int) (*Server, *fleet.Fleet, func() string) {
	t.Helper()
	fleet, o := options(t, fleet.Options{Engines: engines})
	bad := map[string]*sim.Engine{}
	for _, e := range fleet.Engines()[:sick] {
		e.SetFaults(faults.Faults{ErrorShare: 1})
		bad[e.Addr()] = e
	}
	s := open(t, o)
	testkit.Await(t, "all endpoints", func() bool { return len(s.Status().Endpoints) == engines })
	n, open := 0, make(chan func(), engines)
	t.Cleanup(func() {
		for len(open) > 0 {
			(<-open)()
		}
	})
	return s, fleet, func() string {
		n++
		r := &request.Request{ID: fmt.Sprint("request-", n), Path: "/v1/completions", Headers: none{}, Body: fmt.Appendf(nil, `{"model":%q,"prompt":"request %d"}`, vocab.Name, n)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := s.scheduler.Choose(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		status := 200
		if e := bad[d.Endpoints[0]]; e != nil && e.Faults().ErrorShare > 0 {
			status = 500
		}
		open <- func() {
			now := time.Now()
			d.Observe(request.Event{Kind: request.EventHeaders, At: now, Status: status, Served: d.Endpoints[0]})
			d.Done(request.Outcome{At: now, Status: status, Complete: true})
		}
		if len(open) == cap(open) { // without requests in flight, the engine that was the fastest first would get all
			(<-open)()
		}
		return d.Endpoints[0]
	}
}

type none struct{}

func (none) Get(string) string { return "" }

// TestFailingEngine: an engine that answers 500 is ejected within a few requests, and reinstated when
// it recovers. Status, metrics and explain show the reason.
func TestFailingEngine(t *testing.T) {
	parts.Full(t)
	s, fleet, place := failing(t, 4, 1)
	sick := fleet.Engines()[0].Addr()
	shown := func() HealthStatus {
		for _, e := range s.Status().Endpoints {
			if e.Address == sick {
				return e.Health
			}
		}
		return HealthStatus{}
	}
	testkit.Eventually(t, func() string {
		place()
		if h := shown(); h.State != "out" {
			return fmt.Sprintf("the sick engine is %+v", h)
		}
		return ""
	})
	if h := shown(); h.Cause != "failed" && h.Cause != "probe" || !strings.Contains(h.Evidence, "answers with status 500") || !strings.Contains(h.BackBy, "probes") || h.Share != 0 {
		t.Errorf("status: %+v", h)
	}
	testkit.Eventually(t, func() string { // the prefix index can become complete after the ejection
		if st := s.Status(); st.State != "ready" {
			return fmt.Sprintf("one of four engines is out, and the replica is %s: %s", st.State, st.Reason)
		}
		return ""
	})
	for range 50 {
		if at := place(); at == sick {
			t.Fatal("a request went to an engine that is out")
		}
	}
	ex, ok := s.scheduler.Records().Last(1)[0], true
	if !ok || len(ex.Health) != 1 || ex.Health[0].Endpoint != sick || ex.Health[0].State != "out" || ex.Health[0].Used {
		t.Errorf("explanation: %+v", ex)
	}
	fleet.Engines()[0].SetFaults(faults.Faults{})
	testkit.Await(t, "the engine back", func() bool {
		place()
		state := shown().State
		// With the race detector on a busy machine, late answers can interrupt the last step again and again.
		return state == "healthy" || testkit.Raced && state == "returning"
	})
}

// TestAllEnginesFail: when most engines look unhealthy, all are used unchanged, and the replica reports
// the problem. When they recover, it is ready again.
func TestAllEnginesFail(t *testing.T) {
	parts.Full(t)
	s, fleet, place := failing(t, 4, 4)
	testkit.Await(t, "the replica says so", func() bool {
		place()
		st := s.Status()
		return st.State == "degraded" && strings.Contains(st.Reason, "engines fail 100% of the requests")
	})
	used := map[string]bool{}
	testkit.Await(t, "every engine used", func() bool { used[place()] = true; return len(used) == 4 })
	for _, e := range fleet.Engines() {
		e.SetFaults(faults.Faults{})
	}
	testkit.Await(t, "ready again", func() bool {
		place()
		for _, ep := range s.pool.Snapshot().Endpoints {
			if s.pool.Health().View(int(ep.ID)).State != health.Healthy {
				return false
			}
		}
		return poolProblem(s.pool) == ""
	})
}

// TestAllRefuse: when no engine accepts connections, nothing can be ignored, and the replica
// is not called ready.
func TestAllRefuse(t *testing.T) {
	parts.Full(t)
	s, fleet, _ := failing(t, 3, 0)
	testkit.Await(t, "a replica that is ready", func() bool { return s.Status().State == "ready" })
	if err := fleet.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the replica says so", func() bool {
		st := s.Status()
		return st.State == "degraded" && strings.Contains(st.Reason, "3 of 3 endpoints are out (") && strings.Contains(st.Reason, "connections are refused")
	})
}
