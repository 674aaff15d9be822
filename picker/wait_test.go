package picker

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// scriptedGate is a Gate whose requests wait once for each expected wait, and then get a permit or
// are refused.
type scriptedGate struct {
	expected []float64
	refusal  error

	calls []string
	held  int // permits held
}

func (g *scriptedGate) Enter(context.Context, *request.Request) (Permit, QueueEntry, error) {
	if len(g.expected) > 0 {
		return Permit{Queue: 1, Handle: 1}, g, nil
	}
	return Permit{Queue: 1, Handle: 1}, nil, g.end()
}

func (g *scriptedGate) end() error {
	if g.refusal == nil {
		g.held++
	}
	return g.refusal
}

func (g *scriptedGate) Expected() float64 { return g.expected[0] }

func (g *scriptedGate) Wait(_ context.Context, most time.Duration) (bool, error) {
	g.calls = append(g.calls, fmt.Sprint("wait ", most))
	if g.expected = g.expected[1:]; len(g.expected) > 0 {
		return true, nil
	}
	return false, g.end()
}

func (g *scriptedGate) Withdraw() { g.calls = append(g.calls, "withdraw") }

func (g *scriptedGate) Leave(p Permit, _ float64) {
	if p != (Permit{}) {
		g.held--
	}
}

// scriptedClusters is one remote cluster that takes requests which wait longer than a limit.
type scriptedClusters struct {
	ep       *endpoint.Endpoint
	engine   *endpoint.Endpoint
	takes    func(wait float64) bool // result of WouldTake
	declines bool                    // Offer keeps the request here
	better   *endpoint.Endpoint      // result of ResolveEndpoint
	calls    []string
	outcomes []RemoteOutcome
	statuses []int // reported to the remote picker
}

func newClusters(takes func(wait float64) bool) *scriptedClusters {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{
		{Name: "gateway", Cluster: "b", Host: "192.0.2.1", Addr: netip.MustParseAddrPort("192.0.2.1:80")},
		{Name: "engine", Cluster: "b", Host: "192.0.2.2", Addr: netip.MustParseAddrPort("192.0.2.2:80")},
	})
	return &scriptedClusters{ep: pool.Snapshot().Endpoints[0], engine: pool.Snapshot().Endpoints[1], takes: takes}
}

func (rc *scriptedClusters) WouldTake(_ *request.Request, wait float64, _ time.Time) bool {
	rc.calls = append(rc.calls, fmt.Sprint("compare ", wait))
	return rc.takes(wait)
}

func (rc *scriptedClusters) Offer(c *cycle.Cycle, refused error) error {
	rc.calls = append(rc.calls, fmt.Sprintf("offer %v %v", c.QueueWait(), refused))
	if rc.declines && refused != nil {
		return request.Errorf(request.ReasonBadRequest, "no cluster takes it")
	}
	if rc.declines {
		return nil
	}
	if c.QueueWait() > 0 || refused != nil {
		at := c.Add(cycle.View{Endpoint: rc.ep, Cost: rc.ep.Cost()}, 30, cycle.Prediction{Own: 2})
		c.Prefer(at, refused == nil)
	}
	return nil
}

func (rc *scriptedClusters) ResolveEndpoint(context.Context, *request.Request, *endpoint.Endpoint, []request.HeaderSet, time.Time) (*endpoint.Endpoint, func(int)) {
	if rc.better == nil {
		return nil, nil
	}
	return rc.better, func(status int) { rc.statuses = append(rc.statuses, status) }
}

func (rc *scriptedClusters) ServedLocally(*request.Request) {
	rc.calls = append(rc.calls, "served here")
}

func (rc *scriptedClusters) Sent(_ *request.Request, ep *endpoint.Endpoint, w endpoint.Work, _ time.Time) {
	rc.calls = append(rc.calls, fmt.Sprintf("sent to %s: %d of %d tokens", ep.Name, w.New, w.Input))
}

func (rc *scriptedClusters) Ended(_ *endpoint.Endpoint, e RemoteOutcome) {
	rc.outcomes = append(rc.outcomes, e)
}

// TestWaitAndRemoteClusters: a request that waits for a permit is compared with remote clusters
// before the wait, and at growing intervals. It leaves the queue for a cluster that takes it, and
// then holds no permit. A request that the queue refuses for lack of capacity may leave too.
func TestWaitAndRemoteClusters(t *testing.T) {
	full := request.Errorf(request.ReasonSaturated, "full")
	long := func(wait float64) bool { return wait >= 5 }
	for _, c := range []struct {
		name     string
		expected []float64
		refusal  error
		takes    func(wait float64) bool
		declines bool

		remote   bool
		fails    error
		clusters []string // calls of RemoteClusters
		gate     []string // calls of the queue's entry
	}{
		{name: "no wait", takes: long, clusters: []string{"offer 0 <nil>", "served here"}},
		{
			name: "unknown wait", expected: []float64{0}, takes: func(float64) bool { return true },
			clusters: []string{"offer 0 <nil>", "served here"}, gate: []string{"wait 250ms"},
		},
		{
			name: "short wait", expected: []float64{1}, takes: long,
			clusters: []string{"compare 1", "offer 0 <nil>", "served here"}, gate: []string{"wait 250ms"},
		},
		{
			name: "long wait", expected: []float64{5}, takes: long, remote: true,
			clusters: []string{"compare 5", "offer 5 <nil>", "sent to gateway: 70 of 100 tokens"}, gate: []string{"withdraw"},
		},
		{
			name: "longer than expected", expected: []float64{1, 2, 3, 4, 4.5, 4.6, 5}, takes: long, remote: true,
			clusters: []string{"compare 1", "compare 2", "compare 3", "compare 4", "compare 4.5", "compare 4.6", "compare 5", "offer 5 <nil>", "sent to gateway: 70 of 100 tokens"},
			gate:     []string{"wait 250ms", "wait 500ms", "wait 1s", "wait 2s", "wait 4s", "wait 4s", "withdraw"},
		},
		{
			name: "no cluster takes it", expected: []float64{6, 7}, takes: long, declines: true,
			clusters: []string{"compare 6", "offer 6 <nil>", "compare 7", "offer 7 <nil>", "offer 0 <nil>", "served here"}, gate: []string{"wait 250ms", "wait 500ms"},
		},
		{
			name: "refused", refusal: full, takes: long, remote: true,
			clusters: []string{"compare 1e+06", "offer 0 full", "sent to gateway: 70 of 100 tokens"},
		},
		{
			name: "refused after a wait", expected: []float64{1}, refusal: full, takes: long, remote: true,
			clusters: []string{"compare 1", "compare 1e+06", "offer 0 full", "sent to gateway: 70 of 100 tokens"}, gate: []string{"wait 250ms"},
		},
		{
			name: "refused, no endpoint here", refusal: request.Errorf(request.ReasonNoEndpoints, "none"), takes: long, remote: true,
			clusters: []string{"compare 1e+06", "offer 0 none", "sent to gateway: 70 of 100 tokens"},
		},
		{name: "refused, and remote clusters are full", refusal: full, takes: func(float64) bool { return false }, fails: full, clusters: []string{"compare 1e+06"}},
		{name: "refused, and no cluster takes it", refusal: full, takes: long, declines: true, fails: full, clusters: []string{"compare 1e+06", "offer 0 full"}},
		{name: "waited too long", refusal: request.Errorf(request.ReasonTTLExpired, "over"), takes: long, fails: request.Errorf(request.ReasonTTLExpired, "over")},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, rc := &scriptedGate{expected: c.expected, refusal: c.refusal}, newClusters(c.takes)
			rc.declines = c.declines
			s := newScheduler(t, Options{Pool: newPool(2), Gate: g, RemoteClusters: rc, SampleBodies: -1})
			r, notified := chatRequest("r", 100), 0
			r.Waits = func() { notified++ }
			d, err := s.Choose(t.Context(), r)
			if diff := cmp.Diff(c.clusters, rc.calls); diff != "" {
				t.Errorf("calls of remote clusters (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.gate, g.calls); diff != "" {
				t.Errorf("calls of the queue (-want +got):\n%s", diff)
			}
			waits := slices.ContainsFunc(c.gate, func(call string) bool { return call != "withdraw" })
			if want := map[bool]int{true: 1}[waits]; notified != want {
				t.Errorf("proxy notified %d times of a wait, want %d", notified, want)
			}
			if c.fails != nil {
				if err == nil || err.Error() != c.fails.Error() || request.ReasonOf(err) != request.ReasonOf(c.fails) {
					t.Errorf("Choose() = %v, want %v", err, c.fails)
				}
				if len(s.Records().Last(1)) > 0 {
					t.Error("a request that the queue refused has a decision record")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if remote := d.Endpoints[0] == "192.0.2.1:80"; remote != c.remote {
				t.Errorf("request goes to %v", d.Endpoints)
			}
			if want := map[bool]int{false: 1}[c.remote]; g.held != want {
				t.Errorf("request holds %d permits, want %d", g.held, want)
			}
			d.Done(request.Outcome{Status: 200, Complete: true})
			if g.held != 0 {
				t.Errorf("%d permits are held after the end", g.held)
			}
		})
	}
}

// TestWaitWithoutRemoteClusters: a request waits without a limit if it cannot leave.
func TestWaitWithoutRemoteClusters(t *testing.T) {
	g := &scriptedGate{expected: []float64{10}}
	s := newScheduler(t, Options{Pool: newPool(1), Gate: g})
	if _, err := s.Choose(t.Context(), chatRequest("r", 100)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"wait 0s"}, g.calls); diff != "" {
		t.Errorf("calls of the queue (-want +got):\n%s", diff)
	}
}

// TestPermitOfRefusedRequests: a request that is refused after its wait returns its permit.
func TestPermitOfRefusedRequests(t *testing.T) {
	g := &scriptedGate{}
	s := newScheduler(t, Options{Pool: newPool(0), Gate: g})
	if _, err := s.Choose(t.Context(), chatRequest("r", 100)); request.ReasonOf(err) != request.ReasonNoEndpoints {
		t.Errorf("Choose() = %v, want no endpoint", err)
	}
	if g.held != 0 {
		t.Errorf("refused request holds %d permits", g.held)
	}
	if e := s.Records().Last(1); len(e) != 1 || e[0].Refused != "no endpoint is ready" {
		t.Errorf("records of the refused request: %+v", e)
	}
}

// TestEndOfRemoteRequests: a remote cluster gets the outcome of its request, and its picker the
// response status, once.
func TestEndOfRemoteRequests(t *testing.T) {
	full := request.Errorf(request.ReasonSaturated, "full")
	for _, c := range []struct {
		name   string
		asked  bool // the remote picker named an engine
		status int
		ends   bool // complete

		statuses []int
		full     bool
		first    time.Duration
		retry    bool
	}{
		{name: "answered by a gateway", status: 200, ends: true, first: 2 * time.Second},
		{name: "answered by an engine", asked: true, status: 200, ends: true, first: 2 * time.Second, statuses: []int{200}},
		{name: "cut off", asked: true, status: 200, first: 2 * time.Second, statuses: []int{0}},
		{name: "saturated", asked: true, status: 429, ends: true, full: true, statuses: []int{429}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rc := newClusters(func(float64) bool { return true })
			if c.asked {
				rc.better = rc.engine
			}
			s := newScheduler(t, Options{Pool: newPool(2), Gate: &scriptedGate{refusal: full}, RemoteClusters: rc, SampleBodies: -1})
			d, err := s.Choose(t.Context(), chatRequest("r", 100))
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{false: "192.0.2.1:80", true: "192.0.2.2:80"}[c.asked]; d.Endpoints[0] != want {
				t.Errorf("request goes to %v, want %s", d.Endpoints, want)
			}
			d.Observe(request.Event{Kind: request.EventHeaders, At: t0.Add(time.Second), Status: c.status, Served: d.Endpoints[0]})
			if c.status == 200 {
				d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(2 * time.Second)})
			}
			usage := request.Usage{CachedSeen: c.ends, CachedTokens: 20}
			d.Done(request.Outcome{At: t0.Add(3 * time.Second), Status: c.status, Complete: c.ends, Usage: usage})
			if diff := cmp.Diff(c.statuses, rc.statuses); diff != "" {
				t.Errorf("statuses reported to the remote picker (-want +got):\n%s", diff)
			}
			if len(rc.outcomes) != 1 {
				t.Fatalf("%d outcomes, want 1", len(rc.outcomes))
			}
			o := rc.outcomes[0]
			if o.Full != c.full || o.Complete != (c.ends && !c.full) || o.First != c.first || !o.Sent.Equal(t0) || o.Held != 30 || o.Predicted.Own != 2 {
				t.Errorf("outcome %+v", o)
			}
			if want := map[bool]int{false: -1, true: 20}[c.ends && !c.full]; o.Cached != want {
				t.Errorf("outcome has %d cached tokens, want %d", o.Cached, want)
			}
			for _, ep := range s.opts.Pool.Snapshot().Endpoints {
				if n := s.opts.Pool.LoadTracker().Local(ep, t0).Requests; n != 0 {
					t.Errorf("%d requests are tracked at a local endpoint", n)
				}
			}
		})
	}
}

// TestWaitForStoredResponse: a request that continues a response waits until its engine is known,
// for at most a quarter of a second, and not longer than its client.
func TestWaitForStoredResponse(t *testing.T) {
	for _, c := range []struct {
		name   string
		known  time.Duration // when the binding arrives
		leaves time.Duration // when the client disconnects
		waits  time.Duration
		pinned bool
		fails  bool
	}{
		{name: "in time", known: 100 * time.Millisecond, leaves: time.Hour, waits: 100 * time.Millisecond, pinned: true},
		{name: "too late", known: time.Second, leaves: time.Hour, waits: 250 * time.Millisecond},
		{name: "the client leaves", known: time.Second, leaves: 50 * time.Millisecond, waits: 50 * time.Millisecond, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(2 * time.Second) // until the binding has arrived
				s := newScheduler(t, Options{Pool: newPool(2), Now: time.Now})
				table := s.Sessions()
				table.OnBind(func(sessions.Binding) {})
				storing := s.opts.Pool.Snapshot().Endpoints[1]
				go func() {
					time.Sleep(c.known)
					table.Merge(sessions.Binding{Session: sessions.ResponseKey("resp_1"), Endpoint: storing.ID, At: time.Now()})
				}()
				ctx, cancel := context.WithTimeout(t.Context(), c.leaves)
				defer cancel()
				r := chatRequest("r", 10)
				r.Kind, r.Previous = request.KindResponses, "resp_1"
				began := time.Now()
				d, err := s.Choose(ctx, r)
				if waited := time.Since(began); waited != c.waits {
					t.Errorf("request waited %v, want %v", waited, c.waits)
				}
				if c.fails {
					if request.ReasonOf(err) != request.ReasonCancelled {
						t.Errorf("Choose() = %v, want cancelled", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if pinned := len(d.Endpoints) == 1 && d.Endpoints[0] == storing.Address; pinned != c.pinned {
					t.Errorf("request goes to %v", d.Endpoints)
				}
				d.Done(request.Outcome{})
			})
		})
	}
}
