package facts

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// TestDepartedLoad: the requests of a dead replica count until the engine's gauges show that they
// have ended, the engine restarts, the replica reports again, or a time limit is reached. A
// restarted replica is another process: its predecessor's requests still count.
func TestDepartedLoad(t *testing.T) {
	const address = "10.0.0.1:8000"
	type rig struct {
		l    *Load
		pool *endpoint.Pool
		now  *time.Time
	}
	merge := func(r *rig, origin string, process uint64, load endpoint.Load) {
		value := appendLoad(nil, load, *r.now)
		if process != 0 {
			value = binary.AppendUvarint(value, process)
		}
		if err := r.l.Merge(origin, 1, address, value); err != nil {
			t.Fatal(err)
		}
	}
	sample := func(r *rig, running int) {
		*r.now = r.now.Add(time.Second)
		ep := r.pool.Snapshot().Known(address)
		ep.SetGauges(endpoint.Gauges{At: *r.now, Values: gauge.Values{Running: running}})
		r.l.Sampled(ep)
	}
	for _, tc := range []struct {
		name  string
		after func(*rig)
		want  int64
	}{
		{"no sample yet", func(*rig) {}, 7},
		{"the engine runs them", func(r *rig) { sample(r, 7); sample(r, 7); sample(r, 7) }, 7},
		{"one sample crosses a report", func(r *rig) { sample(r, 7); sample(r, 2); sample(r, 7) }, 7},
		{"some have ended", func(r *rig) { sample(r, 5); sample(r, 4); sample(r, 4) }, 4},
		{"all have ended", func(r *rig) { sample(r, 2); sample(r, 2) }, 2},
		{"all have ended, and others follow", func(r *rig) { sample(r, 2); sample(r, 2); sample(r, 9) }, 2},
		{"the engine restarts", func(r *rig) { r.l.Restarted([]*endpoint.Endpoint{r.pool.Snapshot().Known(address)}) }, 2},
		{"the same process reports again", func(r *rig) { merge(r, "b", 7, endpoint.Load{Requests: 4}) }, 6},
		{"a new process reports", func(r *rig) { merge(r, "b", 8, endpoint.Load{Requests: 1}) }, 8},
		{"an older release reports", func(r *rig) { merge(r, "b", 0, endpoint.Load{Requests: 1}) }, 3},
		{"the new process dies too", func(r *rig) { merge(r, "b", 8, endpoint.Load{Requests: 1}); r.l.Drop("b") }, 8},
		{"no sample for a minute", func(r *rig) { r.l.expire(r.now.Add(remainsBlind)) }, 2},
		{"samples for a minute", func(r *rig) { sample(r, 7); sample(r, 7); r.l.expire(r.now.Add(remainsBlind)) }, 7},
		{"samples for too long", func(r *rig) { sample(r, 7); sample(r, 7); r.l.expire(r.now.Add(remainsLimit)) }, 2},
	} {
		now := time.Unix(1_700_000_000, 0)
		r := &rig{now: &now, pool: endpoint.NewPool(endpoint.PoolOptions{})}
		r.l = NewLoad(LoadOptions{
			Pool: r.pool, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
			Group: Group{Gauge: func(string, uint64, cluster.GaugeSink) SetFunc { return nil }},
		})
		r.pool.Set([]endpoint.Spec{{Host: "10.0.0.1", Addr: netip.MustParseAddrPort(address)}})
		merge(r, "b", 7, endpoint.Load{Requests: 5, Waiting: 5, Prefill: 500, Tokens: 500, Rate: 1})
		merge(r, "c", 9, endpoint.Load{Requests: 2, Tokens: 10, Context: 10})
		r.l.Drop("b")
		tc.after(r)
		got := r.pool.LoadTracker().Load(r.pool.Snapshot().Known(address), now)
		if got.Requests != tc.want {
			t.Errorf("%s: %d requests, want %d", tc.name, got.Requests, tc.want)
		}
		if r.l.expire(now.Add(time.Hour)); len(r.l.remains) != 0 || len(r.l.departed) != 0 {
			t.Errorf("%s: state remains after an hour: %v, %v", tc.name, r.l.remains, r.l.departed)
		}
	}
}

// TestDepartedPrefill: an engine without waiting requests has computed the departed replica's prompts.
func TestDepartedPrefill(t *testing.T) {
	r := remains{Load: endpoint.Load{Requests: 4, Waiting: 2, Prefill: 100, Tokens: 400, Context: 300}}
	r.shrink(2, false)
	if r.Requests != 2 || r.Waiting != 1 || r.Prefill != 50 || r.Tokens != 200 || r.Context != 150 {
		t.Errorf("half of the requests: %+v", r.Load)
	}
	r.shrink(2, true)
	if r.Waiting != 0 || r.Prefill != 0 || r.Context != 200 {
		t.Errorf("after the prefill: %+v", r.Load)
	}
}
