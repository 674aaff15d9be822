package picker

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestSeats: an endpoint that has as many requests as it is to have is passed over while
// another of its role has room; when none has, all are candidates.
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
			p.Book().Open(&tickets[0], eps[i], endpoint.Work{}, t0)
			tickets = tickets[1:]
		}
	}
	f := func(what string, want ...string) {
		t.Helper()
		c := NewCycle(CycleOptions{Pool: p, Now: t0}, &request.Request{Kind: request.KindChat})
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
		ep.SetPlaces(3)
	}
	f("one is full", "e1", "e2", "e3", "e4")
	book(2, 3)
	book(3, 4)
	f("one of each role has room", "e1", "e4")
	book(4, 3)
	f("no prefill endpoint has room", "e1", "e2", "e4")
	eps[1].SetPlaces(0)
	f("one has no limit", "e1", "e2", "e4")
	eps[4].SetPlaces(9)
	f("the limit of one is raised", "e1", "e4")
}

// TestReserve: an only destination has endpoints behind it that were left out, but none
// that is out, nor one that a filter might have left out.
func TestReserve(t *testing.T) {
	f := func(what string, change func(eps []*endpoint.Endpoint, p *Profile), want ...string) {
		t.Helper()
		pool := newPool(4)
		profile := &Profile{Name: "default", Scorers: []ProfileScorer{{"new", 1, fewestNew{}}}, Picker: best{3}}
		change(pool.Snapshot().Endpoints, profile)
		s := newScheduler(t, Options{Pool: pool, Rules: &Rules{Handler: single{profile}}})
		d, err := s.Choose(t.Context(), chatRequest("r", 10))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Done(Outcome{})
		if !slices.Equal(d.Endpoints, want) {
			t.Errorf("%s: %v, want %v", what, d.Endpoints, want)
		}
	}
	full := func(eps ...*endpoint.Endpoint) {
		for _, ep := range eps {
			ep.Tracker().SetFull(t0, 1)
		}
	}
	f("two are left", func(eps []*endpoint.Endpoint, _ *Profile) { full(eps[:2]...) }, "10.0.0.2:8000", "10.0.0.3:8000")
	f("one is left", func(eps []*endpoint.Endpoint, _ *Profile) { full(eps[:3]...) }, "10.0.0.3:8000", "10.0.0.0:8000", "10.0.0.1:8000")
	f("one is out", func(eps []*endpoint.Endpoint, _ *Profile) { full(eps[1:3]...); eps[0].SetDown(true) }, "10.0.0.3:8000", "10.0.0.1:8000", "10.0.0.2:8000")
	f("a filter", func(eps []*endpoint.Endpoint, p *Profile) { full(eps[:3]...); p.Filters = testProfile().Filters }, "10.0.0.3:8000")
}

// TestRetryAfter: an endpoint without room is left alone for as long as it says, within limits.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ says, want time.Duration }{{0, time.Second}, {4 * time.Second, 4 * time.Second}, {time.Hour, 10 * time.Second}} {
		s := newScheduler(t, Options{Pool: newPool(1)})
		at := t0.Add(50 * time.Millisecond) // of the answer
		ep := course(t, s, "r", []Event{{Kind: EventHeaders, Status: 429, RetryAfter: c.says}}, Outcome{Status: 429, Complete: true})
		if tr := ep.Tracker(); !tr.FullAt(at.Add(c.want-1).UnixNano()) || tr.FullAt(at.Add(c.want).UnixNano()) {
			t.Errorf("it says %v, and is not left alone for %v", c.says, c.want)
		}
	}
}

// TestFullOfARole: engines whose queues are full are used when nobody else of their role is
// left, whoever else has room.
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
		c := NewCycle(CycleOptions{Pool: p, Now: t0}, &request.Request{Kind: request.KindChat})
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

// TestFailsAtMost: endpoints that fail a model are passed over for it, unless most do.
func TestFailsAtMost(t *testing.T) {
	pool := newPool(4)
	eps := pool.Snapshot().Endpoints
	end := func(ep *endpoint.Endpoint, model string, c health.Cause) {
		w := health.Watch{Model: endpoint.ModelKey(model)}
		ep.Tracker().Begin(&w, t0, t0.Add(time.Second))
		w.End(t0, c)
	}
	for i, want := range []int{3, 2, 4, 4} {
		for range 4 {
			end(eps[i], "m", health.Failed)
			end(eps[i], "other", health.None)
		}
		if !eps[i].Tracker().Shuns(endpoint.ModelKey("m"), t0) {
			t.Fatal("it does not fail the model")
		}
		c := NewCycle(CycleOptions{Pool: pool, Now: t0}, chatRequest("r", 10))
		if c.Len() != want {
			t.Errorf("%d of 4 fail the model: %d candidates, want %d", i+1, c.Len(), want)
		}
		c.Free()
	}
}
