package picker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// course plays a request with a prompt to its end, and releases its body on the way, as proxies'
// streams do. It returns the serving endpoint.
func course(t *testing.T, s *Scheduler, prompt string, events []request.Event, o request.Outcome) *endpoint.Endpoint {
	t.Helper()
	r := chatRequest(prompt, 100)
	r.Body = []byte(prompt)
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Body = nil
	ep := s.opts.Pool.Snapshot().Lookup(d.Endpoints[0])
	for _, e := range events {
		e.At = t0.Add(50 * time.Millisecond)
		d.Observe(e)
	}
	o.At = cmp.Or(o.At, t0.Add(100*time.Millisecond))
	d.Done(o)
	return ep
}

// TestHealthEvidence: the result of a request as evidence about its endpoint.
func TestHealthEvidence(t *testing.T) {
	headers := func(status int) []request.Event { return []request.Event{{Kind: request.EventHeaders, Status: status}} }
	for _, c := range []struct {
		name   string
		events []request.Event
		end    request.Outcome
		want   health.Cause // None: good; Void: no evidence; Left: no sign of life either
	}{
		{"complete", headers(200), request.Outcome{Status: 200, Complete: true}, health.None},
		{"an engine's error", headers(500), request.Outcome{Status: 500, Complete: true}, health.Failed},
		{"the proxy's word", []request.Event{{Kind: request.EventHeaders, Status: 503, Local: true}}, request.Outcome{Status: 503, Complete: true}, health.Broken},
		{"a full queue", headers(503), request.Outcome{Status: 503, Complete: true}, health.Void},
		{"another full queue", headers(429), request.Outcome{Status: 429, Complete: true}, health.Void},
		{"a client's error", headers(400), request.Outcome{Status: 400, Complete: true}, health.Declined},
		{"a redirect", headers(302), request.Outcome{Status: 302, Complete: true}, health.Declined},
		{"an error of the proxy", []request.Event{{Kind: request.EventHeaders, Status: 404, Local: true}}, request.Outcome{Status: 404, Complete: true}, health.Void},
		{"a client that was slow to ask", headers(408), request.Outcome{Status: 408, Complete: true}, health.Void},
		{"an answer without content", headers(200), request.Outcome{Status: 200, Complete: true, Invalid: true}, health.Invalid},
		{"an error inside", headers(200), request.Outcome{Status: 200, Complete: true, Broken: true}, health.Failed},
		{"an end that nobody saw", headers(200), request.Outcome{Status: 200, Complete: true, Unseen: true}, health.None},
		{"an end in the middle", headers(200), request.Outcome{Status: 200}, health.Cut},
		{"no answer", nil, request.Outcome{}, health.Left},
		{"no answer for long", nil, request.Outcome{At: t0.Add(time.Minute)}, health.Cut},
		{"no answer for long, and we ended it", nil, request.Outcome{At: t0.Add(time.Minute), Evicted: true}, health.Left},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScheduler(t, Options{Pool: newPool(1)})
			e := course(t, s, c.name, c.events, c.end).Tracker().Evidence(t0.Add(time.Second))
			got := health.Void
			if e.Moved == health.Never {
				got = health.Left
			}
			if e.Good > 0 {
				got = health.None
			}
			for cause, n := range e.Bad {
				if n > 0 {
					got = health.Cause(cause)
				}
			}
			if got != c.want {
				t.Errorf("it counts as %v, want %v: %+v", got, c.want, e)
			}
		})
	}
}

// TestHarmfulPromptsAreBlamed: if a prompt failed at one endpoint and then at another, the prompt is blamed
// and the second endpoint is not. A prompt that was answered since is not blamed.
func TestHarmfulPromptsAreBlamed(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(6)})
	fail := func(prompt string) (ep *endpoint.Endpoint, bad uint64) {
		ep = course(t, s, prompt, []request.Event{{Kind: request.EventHeaders, Status: 500}}, request.Outcome{Status: 500, Complete: true})
		return ep, ep.Tracker().Evidence(t0.Add(time.Second)).Bad[health.Failed]
	}
	one, bad := fail("poison")
	if bad != 1 {
		t.Fatalf("the first failure counts %d times", bad)
	}
	s.opts.Pool.Set(slices.DeleteFunc(specs(6), func(s endpoint.Spec) bool { return s.Addr.String() == one.Address }))
	for range 3 {
		if ep, bad := fail("poison"); ep == one || bad != 0 {
			t.Errorf("%s is blamed %d times for a prompt that failed elsewhere", ep.Address, bad)
		}
	}
	r := chatRequest("poison", 100)
	r.Body = []byte("poison")
	if d, err := s.Choose(context.Background(), r); err != nil || len(d.Endpoints) != 1 {
		t.Errorf("a suspected prompt may go on to others: %+v, %v", d, err)
	}
	idle := s.opts.Pool.Snapshot().Endpoints[3]
	for _, ep := range s.opts.Pool.Snapshot().Endpoints {
		var tickets [2]endpoint.Ticket
		s.opts.Pool.LoadTracker().Open(&tickets[0], ep, endpoint.Work{Input: 10, New: 10}, t0)
		if ep != idle { // it has more in flight, and no answer that has begun
			tickets[0].FirstToken(t0)
			continue
		}
		s.opts.Pool.LoadTracker().Open(&tickets[1], ep, endpoint.Work{Input: 10, New: 10}, t0)
	}
	for range 3 { // released each time
		d, err := s.Choose(context.Background(), r)
		if err != nil || d.Endpoints[0] != idle.Address {
			t.Errorf("a suspected prompt goes where others are in flight: %+v, %v", d, err)
		}
		d.Done(request.Outcome{At: t0})
	}
	s.opts.RefuseKillers = true
	if d, err := s.Choose(context.Background(), r); err != nil {
		t.Errorf("a prompt that no engine died of is refused: %v", err)
	} else {
		d.Done(request.Outcome{At: t0})
	}
	s.prompts.Died(r.PromptKey(), 0, t0)
	s.prompts.Died(r.PromptKey(), 1, t0)
	if _, err := s.Choose(context.Background(), r); request.ReasonOf(err) != request.ReasonBadRequest {
		t.Errorf("a suspected prompt is placed: %v", err)
	}
	s.opts.RefuseKillers = false
	course(t, s, "poison", []request.Event{{Kind: request.EventHeaders, Status: 200}}, request.Outcome{Status: 200, Complete: true, Unseen: true})
	if _, bad := fail("poison"); bad != 0 {
		t.Error("an answer without an observed end clears a prompt")
	}
	course(t, s, "poison", []request.Event{{Kind: request.EventHeaders, Status: 200}}, request.Outcome{Status: 200, Complete: true})
	if _, bad := fail("poison"); bad != 1 {
		t.Errorf("a failure of a prompt that was answered since counts %d times", bad)
	}
}

// TestCutsOfOneClient: repeated disconnects of one client are no evidence about an endpoint, and
// neither are many at once. Many clients that disconnect one after the other are.
func TestCutsOfOneClient(t *testing.T) {
	cuts := func(gap time.Duration, name func(int) string) uint64 {
		s := newScheduler(t, Options{Pool: newPool(1)})
		var ep *endpoint.Endpoint
		for i := range 8 {
			ep = course(t, s, name(i), []request.Event{{Kind: request.EventHeaders, Status: 200}}, request.Outcome{Status: 200, At: t0.Add(time.Duration(i+1) * gap)})
		}
		return ep.Tracker().Evidence(t0).Bad[health.Cut]
	}
	if n := cuts(time.Second, func(int) string { return "the same" }); n != 1 {
		t.Errorf("%d cuts of one client count, want 1", n)
	}
	if n := cuts(time.Second, func(i int) string { return fmt.Sprint("client ", i) }); n != 8 {
		t.Errorf("%d cuts of 8 clients count", n)
	}
	if n := cuts(time.Millisecond, func(i int) string { return fmt.Sprint("client ", i) }); n != 1 {
		t.Errorf("%d cuts of one moment count, want 1", n)
	}
}

// TestIdleEndpointsLackCapacity: an engine that refuses requests as full, but has no work by its gauges
// and our load tracker, is not full.
func TestIdleEndpointsLackCapacity(t *testing.T) {
	for _, c := range []struct {
		name   string
		gauges endpoint.Gauges
		placed int
		failed uint64
	}{
		{"idle", endpoint.Gauges{At: t0}, 0, 1},
		{"busy by its gauges", endpoint.Gauges{At: t0, Values: gauge.Values{Running: 3}}, 0, 0},
		{"a queue by its gauges", endpoint.Gauges{At: t0, Values: gauge.Values{Waiting: 1}}, 0, 0},
		{"busy by our book", endpoint.Gauges{At: t0}, 4, 0},
		{"gauges of long ago", endpoint.Gauges{At: t0.Add(-time.Minute)}, 0, 0},
	} {
		s := newScheduler(t, Options{Pool: newPool(1)})
		ep := s.opts.Pool.Snapshot().Endpoints[0]
		ep.SetGauges(c.gauges)
		for range c.placed {
			s.opts.Pool.LoadTracker().Open(new(endpoint.Ticket), ep, endpoint.Work{Input: 10, New: 10}, t0)
		}
		e := course(t, s, c.name, []request.Event{{Kind: request.EventHeaders, Status: 503}}, request.Outcome{Status: 503, Complete: true}).Tracker().Evidence(t0)
		if e.Bad[health.Failed] != c.failed {
			t.Errorf("%s: %d failures, want %d", c.name, e.Bad[health.Failed], c.failed)
		}
	}
}

// TestUnclosed: a stream without its closing event was broken off, if the endpoint's streams have
// such an event. Repetitions for one client do not matter.
func TestUnclosed(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(1)})
	end := func(o request.Outcome) health.Evidence {
		o.Status, o.Complete = 200, true
		return course(t, s, "a prompt", []request.Event{{Kind: request.EventHeaders, Status: 200}}, o).Tracker().Evidence(t0)
	}
	if e := end(request.Outcome{Unclosed: true}); e.Bad[health.Cut] != 0 || e.Good != 1 {
		t.Errorf("an engine that closes no stream is blamed for it: %+v", e)
	}
	end(request.Outcome{Closed: true})
	end(request.Outcome{Unclosed: true})
	if e := end(request.Outcome{Unclosed: true}); e.Bad[health.Cut] != 2 {
		t.Errorf("%d of 2 streams that broke off count", e.Bad[health.Cut])
	}
}

// TestPromptKey: the key of a long prompt depends on its ends and its length.
func TestPromptKey(t *testing.T) {
	name := func(b []byte) uint64 { return (&request.Request{Body: b}).PromptKey() }
	long := make([]byte, 100_000)
	base := name(long)
	first, last, longer := append([]byte{1}, long[1:]...), append(append([]byte{}, long[1:]...), 1), append([]byte{0}, long...)
	seen := map[uint64]bool{base: true}
	for _, b := range [][]byte{first, last, longer} {
		if seen[name(b)] {
			t.Error("two prompts have one name")
		}
		seen[name(b)] = true
	}
	if name(nil) != 0 || name(append([]byte{}, long...)) != base {
		t.Error("a name depends on more than the prompt")
	}
}

// TestUnseenEnds: if the proxy did not report the end of an answer, the answer may have broken off.
// It counts as neither complete nor failed, and its duration is ignored.
func TestUnseenEnds(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(1)})
	for range 20 {
		course(t, s, "p", []request.Event{{Kind: request.EventHeaders, Status: 200}}, request.Outcome{Status: 200, Complete: true, Unseen: true})
	}
	for i, want := range []float64{0, 0, 20} {
		if got := testutil.ToFloat64(s.metrics.ended[i]); got != want {
			t.Errorf("%v ended as %d, want %v", got, i, want)
		}
	}
	if limit := s.overruns[endpoint.ModelKey("m")%overrunSlots].whole.Limit(1); limit != new(health.Overrun).Limit(1) {
		t.Errorf("answers of unknown length teach that answers may take %v", limit)
	}
}

// TestOverrunsByModel: the duration of one model's answers does not affect the limit of another
// model, which may reason for minutes.
func TestOverrunsByModel(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(1)})
	for range 100 {
		course(t, s, "p", []request.Event{{Kind: request.EventHeaders, Status: 200}}, request.Outcome{Status: 200, Complete: true})
	}
	unknown := new(health.Overrun).Limit(1)
	if limit := s.overruns[endpoint.ModelKey("m")%overrunSlots].whole.Limit(1); limit >= unknown {
		t.Fatalf("a hundred quick answers teach nothing: they may take %v", limit)
	}
	if limit := s.overruns[endpoint.ModelKey("thinker")%overrunSlots].whole.Limit(1); limit != unknown {
		t.Errorf("answers of another model may take %v, want %v", limit, unknown)
	}
}
