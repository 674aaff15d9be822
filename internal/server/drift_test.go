package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestDrift: requests without a reported end that no engine runs any more are reported as drift by
// every replica until they end.
func TestDrift(t *testing.T) {
	g := newGroup(t, 2, 10000, "mesh")
	drift := func(s *Server) (sum float64, shown int) {
		all, err := s.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.GetName() == "grapevine_share_in_flight_drift" {
				for _, m := range f.Metric {
					sum, shown = sum+m.Gauge.GetValue(), shown+1
				}
			}
		}
		return sum, shown
	}
	expect := func(want float64) {
		t.Helper()
		testkit.Eventually(g.t, func() string {
			for _, s := range g.replicas {
				if sum, shown := drift(s); sum != want || shown != groupEngines {
					return fmt.Sprintf("%s: %v of %d engines", s.o.Name, sum, shown)
				}
			}
			return ""
		})
	}
	expect(0)
	var open []*request.Decision
	for n := range 3 {
		r := &request.Request{ID: fmt.Sprint("request-", n), Path: "/v1/completions", Headers: none{}, Body: fmt.Appendf(nil, `{"model":%q,"prompt":"request %d"}`, vocab.Name, n)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := g.replicas[0].scheduler.Choose(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, d)
	}
	expect(3)
	for _, d := range open {
		d.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true})
	}
	expect(0)
}
