package cycle

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestSeats: an endpoint with its maximum number of requests is skipped while another one of its
// role has capacity. If none has, all are candidates.
func TestSeats(t *testing.T) {
	p := endpoint.NewPool(endpoint.PoolOptions{})
	list := specs(5)
	for i, role := range []string{"decode", "decode", "prefill", "decode", "prefill"} {
		list[i].Labels = map[string]string{endpoint.LabelRole: role}
	}
	p.Set(list)
	eps := p.Snapshot().Endpoints
	tickets := make([]endpoint.Ticket, 20)
	book := func(i, n int) {
		for range n {
			p.LoadTracker().Open(&tickets[0], eps[i], endpoint.Work{}, t0)
			tickets = tickets[1:]
		}
	}
	f := func(what string, want ...string) {
		t.Helper()
		c := New(Options{Pool: p, Now: t0}, &request.Request{Kind: request.KindChat})
		defer c.Free()
		var got []string
		for k := range c.Len() {
			if v := c.At(k); v.Load.Requests != 0 && v.Name == "e1" {
				t.Error("a view of another endpoint")
			}
			got = append(got, c.At(k).Name)
		}
		if !slices.Equal(got, want) || c.Candidates() != len(want) {
			t.Errorf("%s: candidates %v, want %v", what, got, want)
		}
	}
	book(0, 3)
	f("nobody says how many", "e0", "e1", "e2", "e3", "e4")
	for _, ep := range eps {
		ep.SetPermits(3)
	}
	f("one is full", "e1", "e2", "e3", "e4")
	book(2, 3)
	book(3, 4)
	f("one of each role has room", "e1", "e4")
	book(4, 3)
	f("no prefill endpoint has room", "e1", "e2", "e4")
	eps[1].SetPermits(0)
	f("one has no limit", "e1", "e2", "e4")
	eps[4].SetPermits(9)
	f("the limit of one is raised", "e1", "e4")
}

// TestFullOfARole: engines with full queues are used if no other engine of their role is left, even
// if engines of other roles have capacity.
func TestFullOfARole(t *testing.T) {
	p := endpoint.NewPool(endpoint.PoolOptions{})
	list := specs(3)
	for i, role := range []string{"decode", "prefill", "decode"} {
		list[i].Labels = map[string]string{endpoint.LabelRole: role}
	}
	p.Set(list)
	eps := p.Snapshot().Endpoints
	f := func(want ...string) {
		t.Helper()
		c := New(Options{Pool: p, Now: t0}, &request.Request{Kind: request.KindChat})
		defer c.Free()
		var got []string
		for k := range c.Len() {
			got = append(got, c.At(k).Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("candidates %v, want %v", got, want)
		}
	}
	eps[0].Tracker().SetFull(t0, time.Second)
	f("e1", "e2")
	eps[2].Tracker().SetFull(t0, time.Second)
	f("e0", "e1", "e2")
}

// TestFailsAtMost: endpoints that fail a model are skipped for this model, unless most do.
func TestFailsAtMost(t *testing.T) {
	pool := newPool(4)
	eps := pool.Snapshot().Endpoints
	end := func(ep *endpoint.Endpoint, model string, c health.Cause) {
		w := health.Watch{Traits: health.Traits{endpoint.ModelKey(model)}}
		ep.Tracker().Begin(&w, t0, t0.Add(time.Second))
		w.End(t0, c)
	}
	for i, want := range []int{3, 2, 4, 4} {
		for range 4 {
			end(eps[i], "m", health.Failed)
			end(eps[i], "other", health.None)
		}
		if !eps[i].Tracker().Avoids(endpoint.ModelKey("m"), t0) {
			t.Fatal("it does not fail the model")
		}
		c := New(Options{Pool: pool, Now: t0}, chatRequest("r", 10))
		if c.Len() != want {
			t.Errorf("%d of 4 fail the model: %d candidates, want %d", i+1, c.Len(), want)
		}
		c.Free()
	}
}
