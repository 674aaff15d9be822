package picker

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestReserveEndpoints: an only destination has endpoints behind it that were left out, but none
// that is out, nor one that a filter might have left out.
func TestReserveEndpoints(t *testing.T) {
	f := func(what string, change func(eps []*endpoint.Endpoint, p *cycle.Profile), want ...string) {
		t.Helper()
		pool := newPool(4)
		profile := &cycle.Profile{Name: "default", Scorers: []cycle.ProfileScorer{{Name: "new", Weight: 1, Scorer: fewestNew{}}}, Picker: best{3}}
		change(pool.Snapshot().Endpoints, profile)
		s := newScheduler(t, Options{Pool: pool, Rules: &Rules{Handler: single{profile}}})
		d, err := s.Choose(t.Context(), chatRequest("r", 10))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Done(request.Outcome{})
		if !slices.Equal(d.Endpoints, want) {
			t.Errorf("%s: %v, want %v", what, d.Endpoints, want)
		}
	}
	full := func(eps ...*endpoint.Endpoint) {
		for _, ep := range eps {
			ep.Tracker().SetFull(t0, 1)
		}
	}
	f("two are left", func(eps []*endpoint.Endpoint, _ *cycle.Profile) { full(eps[:2]...) }, "10.0.0.2:8000", "10.0.0.3:8000")
	f("one is left", func(eps []*endpoint.Endpoint, _ *cycle.Profile) { full(eps[:3]...) }, "10.0.0.3:8000", "10.0.0.0:8000", "10.0.0.1:8000")
	f("one is out", func(eps []*endpoint.Endpoint, _ *cycle.Profile) { full(eps[1:3]...); eps[0].SetDown(true) }, "10.0.0.3:8000", "10.0.0.1:8000", "10.0.0.2:8000")
	f("a filter", func(eps []*endpoint.Endpoint, p *cycle.Profile) { full(eps[:3]...); p.Filters = testProfile().Filters }, "10.0.0.3:8000")
}

// TestRetryAfter: a full endpoint gets no requests for the time in its Retry-After, within limits.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ says, want time.Duration }{{0, time.Second}, {4 * time.Second, 4 * time.Second}, {time.Hour, 10 * time.Second}} {
		s := newScheduler(t, Options{Pool: newPool(1)})
		at := t0.Add(50 * time.Millisecond) // of the answer
		ep := course(t, s, "r", []request.Event{{Kind: request.EventHeaders, Status: 429, RetryAfter: c.says}}, request.Outcome{Status: 429, Complete: true})
		if tr := ep.Tracker(); !tr.FullAt(at.Add(c.want-1).UnixNano()) || tr.FullAt(at.Add(c.want).UnixNano()) {
			t.Errorf("health %v, avoided for %v", c.says, c.want)
		}
	}
}
