package flow

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestStatusHasEveryField compares the state of a core in which every field has a value: one replica
// lives, one has become silent, and requests of this replica were evicted.
func TestStatusHasEveryField(t *testing.T) {
	c := New(rules.Options{Evict: true, Default: rules.Band{Fairness: rules.Places}})
	c.SetCapacity(1, rules.Capacity{Permits: 9, Endpoints: 2})
	ended := offer(t, c, 1, rules.Request{Flow: "old"}, rules.Dispatched)
	c.Release(1+2000*ms, ended, 2)
	now := 1 + 2000*ms
	offer(t, c, now, rules.Request{Flow: "old"}, rules.Dispatched)
	for range 3 {
		offer(t, c, now, rules.Request{Flow: "batch", Priority: -3, Endable: true}, rules.Dispatched)
	}
	shares := []rules.Gauge{{Flow: "b", Priority: 7, InFlight: 2}}
	c.ReceiveShares(now, "live", shares)
	c.ReceiveShares(now, "gone", []rules.Gauge{{Flow: "c", Priority: 7, InFlight: 1}})
	for range 10 { // without news of the second replica
		now += 500 * ms
		c.ReceiveShares(now, "live", shares)
		c.ObserveRunning(now, now, 7)
		c.Advance(now)
	}
	c.SetCapacity(now, rules.Capacity{Permits: 7, Endpoints: 2})
	shares[0].Waiting, shares[0].Requests, shares[0].Bytes = 5, 4, 50
	c.ReceiveShares(now, "live", shares)
	offer(t, c, now, rules.Request{Flow: "a", Priority: 7, Bytes: 300, Permits: 2}, rules.Queued)
	last := offer(t, c, now+100*ms, rules.Request{Flow: "a", Priority: 7, Bytes: 20}, rules.Queued)
	now += 500 * ms

	got := c.Status(now, 5)
	for _, name := range fields.Unset(got, "Model") { // the caller sets it
		t.Errorf("%s is not set", name)
	}
	for name := range got.Outcomes {
		if got.Outcomes[name] == 0 {
			delete(got.Outcomes, name)
		}
	}
	backlog := 8 * 2. / 7 // eight permits, of requests that take two seconds
	want := rules.Status{
		Permits: 7, Endpoints: 2, Own: 4, InFlight: 7, Replicas: 2, Silent: 1, Lost: 1, Evicting: 2, Waiting: 2, Backlog: &backlog,
		Bands: []rules.BandStatus{
			{Priority: 7, Waiting: 2, Bytes: 320, Others: 4, OldestS: .5, Flows: []rules.Tenant{
				{Flow: "b", Waiting: 4, InFlight: 2, Share: 3}, {Flow: "a", Waiting: 2, Share: 3}, {Flow: "c", InFlight: 1, Share: 1},
			}},
			{Priority: 0, InFlight: 1, Flows: []rules.Tenant{{Flow: "old", InFlight: 1}}},
			{Priority: -3, InFlight: 3, Flows: []rules.Tenant{{InFlight: 3}}},
		},
		Outcomes: map[string]uint64{"dispatched": 5, "evicted": 2},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("Status() (-want +got):\n%s", diff)
	}
	gauges := c.Gauges(nil)
	wantGauges := []rules.Gauge{
		{Priority: -3, InFlight: 3}, {Flow: "a", Priority: 7, Requests: 2, Bytes: 320, Waiting: 3}, {Flow: "old", InFlight: 1},
	}
	if diff := cmp.Diff(wantGauges, gauges, cmpopts.SortSlices(func(x, y rules.Gauge) bool { return x.Flow < y.Flow })); diff != "" {
		t.Errorf("Gauges() (-want +got):\n%s", diff)
	}
	wantPosition := rules.QueuePosition{
		Tenant: want.Bands[0].Flows[1], Priority: 7, WaitedS: .4, ExpectedS: 2 * 3 * 2. / 7, Ahead: 1, Reason: "1 requests of its flow are ahead",
	}
	position, waits := c.Position(now, last)
	if diff := cmp.Diff(wantPosition, position, cmpopts.EquateApprox(0, 1e-9)); diff != "" || !waits {
		t.Errorf("Position() = %v (-want +got):\n%s", waits, diff)
	}
}
