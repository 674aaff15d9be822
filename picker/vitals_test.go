package picker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// course plays a request with a prompt to its end, and lets go of its body on the
// way, as proxies' streams do. It returns who served it.
func course(t *testing.T, s *Scheduler, prompt string, events []Event, o Outcome) *endpoint.Endpoint {
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
	o.At = t0.Add(100 * time.Millisecond)
	d.Done(o)
	return ep
}

// TestVitals: what the course of a request says of its endpoint.
func TestVitals(t *testing.T) {
	headers := func(status int) []Event { return []Event{{Kind: EventHeaders, Status: status}} }
	for _, c := range []struct {
		name   string
		events []Event
		end    Outcome
		want   health.Cause // None: it is good; Void: it says nothing
	}{
		{"complete", headers(200), Outcome{Status: 200, Complete: true}, health.None},
		{"an engine's error", headers(500), Outcome{Status: 500, Complete: true}, health.Failed},
		{"the proxy's word", []Event{{Kind: EventHeaders, Status: 503, Local: true}}, Outcome{Status: 503, Complete: true}, health.Broken},
		{"a full queue", headers(503), Outcome{Status: 503, Complete: true}, health.Void},
		{"another full queue", headers(429), Outcome{Status: 429, Complete: true}, health.Void},
		{"a client's error", headers(400), Outcome{Status: 400, Complete: true}, health.Void},
		{"an error inside", headers(200), Outcome{Status: 200, Complete: true, Broken: true}, health.Failed},
		{"an end in the middle", headers(200), Outcome{Status: 200}, health.Cut},
		{"no answer", nil, Outcome{}, health.Void},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScheduler(t, Options{Pool: newPool(1)})
			e := course(t, s, c.name, c.events, c.end).Tracker().Evidence(t0.Add(time.Second))
			got := health.Void
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

// TestPoisonIsBlamed: a prompt that failed at one endpoint and then at another is
// to blame, and the second one is not; one that was answered since is not.
func TestPoisonIsBlamed(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(6)})
	fail := func(prompt string) (ep *endpoint.Endpoint, bad uint64) {
		ep = course(t, s, prompt, []Event{{Kind: EventHeaders, Status: 500}}, Outcome{Status: 500, Complete: true})
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
	s.opts.RefuseKillers = true
	if _, err := s.Choose(context.Background(), r); request.ReasonOf(err) != request.ReasonBadRequest {
		t.Errorf("a suspected prompt is placed: %v", err)
	}
	s.opts.RefuseKillers = false
	course(t, s, "poison", []Event{{Kind: EventHeaders, Status: 200}}, Outcome{Status: 200, Complete: true})
	if _, bad := fail("poison"); bad != 1 {
		t.Errorf("a failure of a prompt that was answered since counts %d times", bad)
	}
}

// TestCutsOfOneClient: a client that goes away again and again says nothing of an
// endpoint; many do.
func TestCutsOfOneClient(t *testing.T) {
	cuts := func(name func(int) string) uint64 {
		s := newScheduler(t, Options{Pool: newPool(1)})
		var ep *endpoint.Endpoint
		for i := range 8 {
			ep = course(t, s, name(i), []Event{{Kind: EventHeaders, Status: 200}}, Outcome{Status: 200})
		}
		return ep.Tracker().Evidence(t0).Bad[health.Cut]
	}
	if n := cuts(func(int) string { return "the same" }); n != 1 {
		t.Errorf("%d cuts of one client count, want 1", n)
	}
	if n := cuts(func(i int) string { return fmt.Sprint("client ", i) }); n != 8 {
		t.Errorf("%d cuts of 8 clients count", n)
	}
}

// TestPromptKey: long prompts are named by their ends and their length.
func TestPromptKey(t *testing.T) {
	name := func(b []byte) uint64 { return promptKey(&request.Request{Body: b}) }
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
