package facts

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestLoadOnTheWire: a load decodes to the encoded one, with times by the reader's clock. Older
// peers send fewer fields.
func TestLoadOnTheWire(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	said := endpoint.Load{
		Requests: 5, Waiting: 2, Prefill: 700, Pairs: 90, Tokens: 800, Context: 100, Rate: .5, Busy: .25, Moving: 60,
		LastFirst: now.Add(-time.Second).UnixNano(),
	}
	f := func(b []byte, want endpoint.Load) {
		t.Helper()
		want.RatesAt = now.UnixNano()
		got, _, err := readLoad(b, now)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	b := appendLoad(nil, said, now)
	f(b, said)
	older := said
	older.Moving = 0
	f(b[:len(b)-1], older)
	older.Busy = 0
	f(b[:len(b)-9], older)
	f(appendLoad(nil, endpoint.Load{Rate: 1}, now), endpoint.Load{Rate: 1})
	said.Busy = -1
	for _, bad := range [][]byte{nil, b[:4], b[:len(b)-2], appendLoad(nil, said, now)} {
		if l, _, err := readLoad(bad, now); err == nil {
			t.Errorf("%x was decoded as %+v", bad, l)
		}
	}
}

// The remote load of an endpoint is the sum of the latest value of each replica, including for
// endpoints that joined later. A replica that departs without requests does not count.
func TestLoadOfTheOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := endpoint.NewPool(endpoint.PoolOptions{})
	said := map[string][]byte{}
	l := NewLoad(LoadOptions{
		Pool: p, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		Group: Group{Gauge: func(string, uint64, cluster.GaugeSink) SetFunc {
			return func(address string, value []byte) error { said[address] = value; return nil }
		}},
	})
	const e0, e1 = "10.0.0.1:8000", "10.0.0.2:8000"
	spec := func(addresses ...string) (specs []endpoint.Spec) {
		for _, a := range addresses {
			specs = append(specs, endpoint.Spec{Host: "10.0.0.1", Addr: netip.MustParseAddrPort(a)})
		}
		return specs
	}
	p.Set(spec(e0))
	merge := func(origin, address string, requests int64) {
		t.Helper()
		if err := l.Merge(origin, 1, address, appendLoad(nil, endpoint.Load{Requests: requests, Tokens: 10 * requests}, now)); err != nil {
			t.Fatal(err)
		}
	}
	believed := func(address string, want int64) {
		t.Helper()
		got := p.LoadTracker().Load(p.Snapshot().Known(address), now)
		if got.Requests != want || got.Tokens != 10*want {
			t.Errorf("%s: %d requests of %d tokens, want %d", address, got.Requests, got.Tokens, want)
		}
	}
	merge("b", e0, 3)
	merge("c", e0, 4)
	merge("c", e1, 6)
	believed(e0, 7)
	merge("b", e0, 2)
	believed(e0, 6)
	l.Joined(p.Set(spec(e0, e1)).Added)
	believed(e1, 6)
	if err := l.Merge("b", 2, e0, nil); err != nil {
		t.Fatal(err)
	}
	believed(e0, 4)
	merge("c", e0, 0)
	merge("c", e1, 0)
	l.Drop("c")
	believed(e0, 0)
	believed(e1, 0)
	l.Withdraw([]*endpoint.Endpoint{p.Snapshot().Known(e0)})
	l.Flush()
	if _, ok := said[e0]; !ok {
		t.Error("changed endpoint was not sent")
	}
	if err := l.Merge("b", 3, e0, []byte{1}); err == nil {
		t.Error("malformed value was accepted")
	}
}

// TestTotals: the incremental total always equals the full sum.
func TestTotals(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := NewLoad(LoadOptions{
		Pool: endpoint.NewPool(endpoint.PoolOptions{}), Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		Group: Group{Gauge: func(string, uint64, cluster.GaugeSink) SetFunc { return nil }},
	})
	rng, kept := rand.New(rand.NewPCG(1, 2)), 0
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }
	for step := range 20_000 {
		now = now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
		address, origin := fmt.Sprint("e", rng.IntN(3)), fmt.Sprint("m", rng.IntN(6))
		var value []byte
		if rng.IntN(10) > 0 {
			value = appendLoad(nil, endpoint.Load{
				Requests: rng.Int64N(9), Waiting: rng.Int64N(5), Prefill: rng.Int64N(9000), Pairs: float64(rng.Int64N(1e9)), Tokens: rng.Int64N(1e5),
				Context: rng.Int64N(1e5), Moving: rng.Int64N(100), Rate: 3 * rng.Float64(), Busy: rng.Float64(),
				LastFirst: now.Add(-time.Duration(rng.IntN(10_000))*time.Millisecond).UnixNano() * rng.Int64N(2),
			}, now)
			value = binary.AppendUvarint(value, uint64(1+rng.IntN(2)))
		}
		if rng.IntN(500) == 0 {
			l.Drop(origin)
		} else if err := l.Merge(origin, 1, address, value); err != nil {
			t.Fatal(err)
		}
		var want endpoint.Load
		for load := range l.loads.Values(address) {
			want = want.Add(load)
		}
		for _, r := range l.remains[address] {
			want = want.Add(r.Load)
		}
		got := l.sums[address]
		if got.changes > 1 {
			kept++
		}
		want, sum := want.Add(endpoint.Load{RatesAt: now.UnixNano()}), got.Add(endpoint.Load{RatesAt: now.UnixNano()})
		if !near(sum.Rate, want.Rate) || !near(sum.Busy, want.Busy) {
			t.Fatalf("step %d: rates of %+v, want %+v", step, sum, want)
		}
		sum.Rate, sum.Busy = want.Rate, want.Busy
		if diff := cmp.Diff(want, sum); diff != "" {
			t.Fatalf("step %d: -want +got:\n%s", step, diff)
		}
	}
	if kept < 15_000 || len(l.sums) > 3 {
		t.Errorf("%d of 20000 sums were kept; %d sums held", kept, len(l.sums))
	}
}

// TestOldReportsStand checks that a report counts as the present load while its writer reports no
// change, also when a later report of another replica is withdrawn.
func TestOldReportsStand(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: clock})
	l := NewLoad(LoadOptions{
		Pool: pool, Now: clock, Log: slog.New(slog.DiscardHandler),
		Group: Group{Gauge: func(string, uint64, cluster.GaugeSink) SetFunc { return nil }},
	})
	const address = "10.0.0.1:8000"
	pool.Set([]endpoint.Spec{{Host: "10.0.0.1", Addr: netip.MustParseAddrPort(address)}})
	want := endpoint.Load{Requests: 1, Waiting: 1, Prefill: 100_000, Pairs: 5e9, Tokens: 100_000, Rate: .1}
	if err := l.Merge("a", 1, address, appendLoad(nil, want, now)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if err := l.Merge("b", 1, address, appendLoad(nil, endpoint.Load{Requests: 1, Rate: .1}, now)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(3 * time.Second)
	if err := l.Merge("b", 1, address, nil); err != nil {
		t.Fatal(err)
	}
	if got := pool.LoadTracker().Remote(pool.Snapshot().Known(address)); got.Waiting != 1 || got.Prefill != want.Prefill {
		t.Errorf("%d requests with %d tokens wait, want 1 with %d", got.Waiting, got.Prefill, want.Prefill)
	}
}
