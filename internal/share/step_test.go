package share

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// atRest is an Index with that many shared, idle sources.
func atRest(tb testing.TB, n int) *Index {
	tb.Helper()
	specs, names := make([]endpoint.Spec, n), make([]string, n)
	for i := range specs {
		specs[i] = endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)}
		names[i] = SourceName(specs[i].Addr.String(), 0)
	}
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(specs)
	m := newBenchMember(tb, "a", names)
	x := m.store.share
	x.ctx, x.began, x.log, x.reading = tb.Context(), time.Now(), m.log, nil
	x.o.Node, x.o.Index, x.o.Pool = m.node, m.index, pool
	x.o.Ready, x.o.Seeded = func() bool { return true }, func() bool { return true }
	x.o.Conflict = func(*endpoint.Endpoint) string { return "" }
	x.o.Source = func(ep *endpoint.Endpoint) events.EndpointSource { return events.EndpointSource{ID: ep.ID} }
	x.events = events.Open(events.Options{Index: streamIndex{x}, Log: x.o.Log, Registry: prometheus.NewRegistry()})
	x.pool = pool.Snapshot()
	tb.Cleanup(func() { _ = x.events.Close() })
	x.order = inOrder(*x.byName.Load())
	by := map[block.EndpointID][]*source{}
	for _, s := range x.order {
		s.ep, s.plan = x.pool.Lookup(strings.TrimSuffix(s.name, "/0")), plan.New(true)
		s.src.Endpoint = s.ep.ID
		s.plan.Answer(0, plan.Answer{Started: 1}, plan.Facts{})
		by[s.ep.ID] = []*source{s}
	}
	x.byEndpoint.Store(&by)
	x.relist = true
	for range 3 {
		x.step()
	}
	return x
}

// A step without events does not allocate memory per source.
func TestStepAtRest(t *testing.T) {
	const n, steps = 1000, 20
	x := atRest(t, n)
	if len(x.names) != n || x.order[n-1].view == nil || x.order[0].view.Name != x.order[0].name {
		t.Fatalf("%d sources listed, view of the last: %+v", len(x.names), x.order[n-1].view)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range steps {
		x.step()
	}
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / steps; per > 8*n {
		t.Errorf("a step allocates %d bytes for %d sources", per, n)
	}
}

// BenchmarkStep measures a step with 10,000 sources; an idle replica runs four per second.
func BenchmarkStep(b *testing.B) {
	x := atRest(b, 10_000)
	b.ReportAllocs()
	start := used()
	for b.Loop() {
		x.step()
	}
	b.ReportMetric(float64((used()-start).Microseconds())/float64(b.N), "cpu-µs/step")
}
