package sizing

import (
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// TestMetricAgrees: in a pool of the size that replay finds, the metric for autoscalers asks for about
// that size, within one engine or 20%. With half as many engines again, it does not ask for more.
func TestMetricAgrees(t *testing.T) {
	for _, c := range []struct {
		workload, machine, unit string
		rate                    float64
		target                  string
	}{
		{"chat", "70b", "1", 2, "p90=3s"}, {"chat", "70b", "1", 4, "p90=3s"}, {"chat", "70b", "1", 8, "p90=3s"},
		{"chat", "8b", "1", 8, "p90=2s"}, {"documents", "8b", "1", 8, "p90=2s"}, {"chat", "70b", "1+1x0.5", 4, "p90=3s"},
	} {
		t.Run(c.workload+" "+c.machine+" "+c.unit, func(t *testing.T) {
			t.Parallel()
			q := question(t, c.rate, c.machine, c.target)
			w, err := trace.Named(c.workload)
			if err != nil {
				t.Fatal(err)
			}
			q.Source = sweep.WorkloadSource(w, 0, trace.GenerateOptions{Length: 12 * time.Minute})
			if q.Unit, err = replay.ParseFleet(c.unit); err != nil {
				t.Fatal(err)
			}
			q.Seeds, q.Base.Replicas, q.Base.Share = []uint64{1}, 3, 50*time.Millisecond
			a := find(t, q)
			s := &search{Question: &q, ctx: t.Context(), sizes: map[int]*Size{}}
			units := a.Engines / len(q.Unit.Kinds)
			for _, n := range []int{units, (3*units + 1) / 2} {
				one, err := s.run(n, 1)
				if err != nil {
					t.Fatal(err)
				}
				engines, want := n*len(q.Unit.Kinds), float64(a.Engines)
				t.Logf("%g requests per second on %d engines: the metric is %.1f, replay says %d", c.rate, engines, one.wanted, a.Engines)
				if one.wanted == 0 || one.wanted > want+max(1, .2*want) || n == units && one.wanted < want-max(1, .2*want) {
					t.Errorf("%d engines: the metric asks for %.1f, want about %d", engines, one.wanted, a.Engines)
				}
				replicasAgree(t, one.result)
			}
		})
	}
}

// replicasAgree checks that three replicas of a group ask for about the same number.
func replicasAgree(t *testing.T, r *replay.Result) {
	t.Helper()
	apart, n := 0.0, 0
	for _, w := range r.Wanted {
		low, high := math.MaxInt, 0
		for _, v := range w.Replicas {
			low, high = min(low, v), max(high, v)
		}
		if low > 0 {
			apart, n = apart+float64(high-low), n+1
		}
	}
	if n == 0 || apart/float64(n) > 1.5 {
		t.Errorf("replicas differ by %.2f engines on average over %d readings", apart/float64(max(n, 1)), n)
	}
}
