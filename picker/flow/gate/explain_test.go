package gate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestExplain: a waiting request is explained by why it waits, a refused one by the reason.
// Dispatched and unknown requests are not found.
func TestExplain(t *testing.T) {
	now := time.Unix(1000, 0)
	g, err := New(Options{Pool: pool(1), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	g.Configure(&Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: 1}, Queue: func() rules.Options {
		return rules.Options{TTL: time.Minute, Default: rules.Band{Fairness: rules.Places}, MaxRequests: 4}
	}})
	offer := func(id, tenant string, priority int) {
		r := asks(tenant)
		r.ID, r.Priority = id, priority
		_, _, _ = g.Offer(context.Background(), r, func(error) {})
	}
	offer("runs", "a", 0)
	offer("first", "a", 0)
	now = now.Add(time.Second)
	offer("second", "a", 0)
	offer("other", "b", 0)
	for id, want := range map[string]string{
		"first":  "1 of 1 permits are held, and its priority may use 100% of them",
		"second": "1 requests of its flow are ahead",
	} {
		e, ok := g.Explain(id)
		if !ok || e.Queue == nil || e.Queue.Reason != want || e.Queue.Flow != "a" || e.Queue.FlowWaiting != 2 || e.Queue.Permits != 1 || e.Queue.InFlight != 1 || e.Refused != "" {
			t.Errorf("%s: %v %+v %+v, want %q", id, ok, e, e.Queue, want)
		}
	}
	if e, _ := g.Explain("first"); e.Queue.Waited != 1000 {
		t.Errorf("Waited = %g ms", e.Queue.Waited)
	}
	offer("high", "c", 5)
	if e, _ := g.Explain("first"); !strings.Contains(e.Queue.Reason, "1 requests of priority 5 are waiting at this replica") {
		t.Errorf("while a higher priority waits: %q", e.Queue.Reason)
	}
	long := strings.Repeat("x", 10_000)
	offer(long, "b", -1)
	if e, ok := g.Explain(long); !ok || e.Queue.Outcome != "refused_full" || !strings.Contains(e.Refused, "the queue for priority") || len(e.RequestID) > 1000 {
		t.Errorf("refused: %v %+v %+v", ok, e, e.Queue)
	}
	now = now.Add(2 * time.Minute)
	g.Poll()
	if e, ok := g.Explain("first"); !ok || e.Queue.Outcome != "expired" || e.Queue.Waited != 121_000 || e.Refused == "" {
		t.Errorf("expired: %v %+v %+v", ok, e, e.Queue)
	}
	for _, id := range []string{"runs", "nobody", ""} {
		if e, ok := g.Explain(id); ok {
			t.Errorf("%q: %+v", id, e)
		}
	}
	for range 2 * keptRefusals { // only the last ones are kept
		g.refused(&request.Request{ID: "flood"}, rules.RefusedFull, 0)
	}
	if _, ok := g.Explain("first"); ok {
		t.Error("refusals are not bounded")
	}
}
