package monitor

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// BenchmarkStep measures a step over 10,000 endpoints, of which 200 have ended a request since the last
// step, and 200 have one in flight.
func BenchmarkStep(b *testing.B) {
	now := time.Unix(1000, 0)
	m, pool := fleet(b, 10_000, &now)
	eps := pool.Snapshot().Endpoints
	var flying [200]health.Watch
	for i := 0; b.Loop(); i++ {
		now = now.Add(tickMost)
		for k := range flying {
			flying[k].End(now, health.None)
			eps[(i*len(flying)+k)%len(eps)].Tracker().Begin(&flying[k], now, now.Add(time.Minute))
		}
		m.Tick()
	}
}

// BenchmarkModelsKnown measures the step in which the models of 10,000 endpoints become known.
func BenchmarkModelsKnown(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		now := time.Unix(1000, 0)
		m, pool := fleet(b, 10_000, &now)
		for _, ep := range pool.Snapshot().Endpoints {
			pool.SetModels(ep.ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "m"}}}, now)
		}
		b.StartTimer()
		m.Tick()
	}
}

// BenchmarkReplaced measures the change of an endpoint list in which all of 10,000 endpoints are replaced.
func BenchmarkReplaced(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		now := time.Unix(1000, 0)
		_, pool := fleet(b, 10_000, &now)
		b.StartTimer()
		pool.Set(nil)
	}
}

func fleet(b *testing.B, n int, now *time.Time) (*Monitor, *endpoint.Pool) {
	b.Helper()
	clock := func() time.Time { return *now }
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: clock})
	m, err := New(Options{Pool: pool, Now: clock, Publish: func(string, []byte) error { return nil }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	var specs []endpoint.Spec
	for i := range n {
		specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)})
	}
	pool.Set(specs)
	for range 3 {
		*now = now.Add(tickEvery)
		for _, ep := range pool.Snapshot().Endpoints {
			m.Read(ep, scrape.Reading{At: *now, Answered: true, Rest: time.Hour, Page: &scrape.Page{}})
		}
		m.Tick()
	}
	return m, pool
}
