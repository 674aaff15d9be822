package picker_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// headerMap implements request.Headers.
type headerMap map[string]string

func (h headerMap) Get(name string) string { return h[name] }

// client is a request of one client, as a proxy passes it on.
type client struct {
	name    string
	headers headerMap
	trusted bool
}

// request returns the parsed request after the trust rules.
func (c client) request(t *testing.T, limits request.Limits) *request.Request {
	t.Helper()
	r := &request.Request{ID: c.name, Headers: c.headers, Path: "/v1/completions", Body: []byte(`{"model":"m","prompt":"hi"}`)}
	if err := request.Parse(r); err != nil {
		t.Fatal(err)
	}
	trust := &request.Trust{Proxies: []string{"trusted"}, Others: limits}
	trust.Apply(r, map[bool][]string{true: {"trusted"}}[c.trusted], nil)
	return r
}

// notifyingGate reports each request that has to wait.
type notifyingGate struct {
	*gate.Gate
	queued chan struct{}
}

// Enter implements picker.Gate.
func (g notifyingGate) Enter(ctx context.Context, r *request.Request) (picker.Permit, picker.QueueEntry, error) {
	p, entry, err := g.Gate.Enter(ctx, r)
	if entry != nil {
		g.queued <- struct{}{}
	}
	return p, entry, err
}

// anyEndpoint prefers the endpoint of the request's session.
type anyEndpoint struct{}

// Handle implements cycle.ProfileHandler.
func (anyEndpoint) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	plan.Order = append(plan.Order, int32(max(c.Bound(), 0)))
	return nil
}

func poolOf(n int) *endpoint.Pool {
	pool, specs := endpoint.NewPool(endpoint.PoolOptions{}), []endpoint.Spec(nil)
	for i := range n {
		specs = append(specs, endpoint.Spec{Addr: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", i+1))})
	}
	pool.Set(specs)
	return pool
}

// servedOrder returns the order in which clients get their decisions. They arrive one after the
// other while the pool's only permit is in use.
func servedOrder(t *testing.T, limits request.Limits, band rules.Band, clients ...client) []string {
	t.Helper()
	pool := poolOf(1)
	g, err := gate.New(gate.Options{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	g.Configure(&gate.Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: 1}, Queue: func() rules.Options { return rules.Options{Default: band, Negative: band} }})
	queue := notifyingGate{g, make(chan struct{})}
	s, err := picker.New(picker.Options{Pool: pool, Gate: queue, Rules: &picker.Rules{
		Handler: anyEndpoint{}, Names: request.Names{Objectives: map[string]int{"vip": 100, "batch": -1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	holder, err := s.Choose(t.Context(), client{name: "holder"}.request(t, limits))
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		name string
		d    *request.Decision
	}
	results := make(chan result)
	for _, c := range clients {
		r := c.request(t, limits)
		go func() {
			d, err := s.Choose(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			results <- result{c.name, d}
		}()
		<-queue.queued
	}
	var order []string
	for d := holder; len(order) < len(clients); {
		d.Done(request.Outcome{Status: 200, Complete: true})
		next := <-results
		order = append(order, next.name)
		if d = next.d; d == nil {
			break
		}
	}
	return order
}

// TestTrustAndQueue: claims in headers change the order in which a full pool serves requests, if the
// client is trusted. Those of untrusted clients change it only within the operator's limits.
func TestTrustAndQueue(t *testing.T) {
	vip, batch := headerMap{request.HeaderObjective: "vip"}, headerMap{request.HeaderObjective: "batch"}
	fair := rules.Band{Fairness: rules.Work}
	soon := headerMap{request.HeaderSLOTTFT: "1"}
	flow := func(name string) headerMap { return headerMap{request.HeaderFairness: name} }
	none, open := request.Limits{}, request.Limits{MaxPriority: 100, Fairness: true, Latency: true}
	for _, c := range []struct {
		name    string
		limits  request.Limits
		band    rules.Band
		clients []client
		want    []string
	}{
		{"trusted priority", none, rules.Band{}, []client{{"plain", nil, true}, {"vip", vip, true}}, []string{"vip", "plain"}},
		{"untrusted priority", none, rules.Band{}, []client{{"plain", nil, true}, {"vip", vip, false}}, []string{"plain", "vip"}},
		{"untrusted priority that is allowed", open, rules.Band{}, []client{{"plain", nil, true}, {"vip", vip, false}}, []string{"vip", "plain"}},
		{"untrusted clients are limited below others", request.Limits{MaxPriority: -1}, rules.Band{}, []client{{"vip", vip, false}, {"plain", nil, true}}, []string{"plain", "vip"}},
		{"untrusted clients may ask for less", none, rules.Band{}, []client{{"batch", batch, false}, {"plain", nil, true}}, []string{"plain", "batch"}},
		{"trusted flows", none, fair, []client{{"a1", flow("a"), true}, {"a2", flow("a"), true}, {"b1", flow("b"), true}}, []string{"a1", "b1", "a2"}},
		{
			"untrusted flows", none, fair,
			[]client{{"a1", flow("a"), true}, {"a2", flow("a"), true}, {"x1", flow("x"), false}, {"y1", flow("y"), false}},
			[]string{"a1", "x1", "a2", "y1"},
		},
		{
			"untrusted flows that are allowed", open, fair,
			[]client{{"a1", flow("a"), true}, {"a2", flow("a"), true}, {"x1", flow("x"), false}, {"y1", flow("y"), false}},
			[]string{"a1", "x1", "y1", "a2"},
		},
		{"trusted latency target", none, rules.Band{Ordering: rules.LatencyTarget}, []client{{"plain", nil, true}, {"soon", soon, true}}, []string{"soon", "plain"}},
		{"untrusted latency target", none, rules.Band{Ordering: rules.LatencyTarget}, []client{{"plain", nil, true}, {"soon", soon, false}}, []string{"plain", "soon"}},
		{"untrusted latency target that is allowed", open, rules.Band{Ordering: rules.LatencyTarget}, []client{{"plain", nil, true}, {"soon", soon, false}}, []string{"soon", "plain"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, servedOrder(t, c.limits, c.band, c.clients...)); diff != "" {
				t.Errorf("order of service (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTrustAndDecision: the model and the session of a decision follow the headers of trusted
// clients, and those of untrusted clients within the operator's limits.
func TestTrustAndDecision(t *testing.T) {
	rewrite := headerMap{request.HeaderModelRewrite: "secret"}
	for _, c := range []struct {
		name   string
		limits request.Limits
		client client
		want   string
	}{
		{"trusted rewrite", request.Limits{}, client{"r", rewrite, true}, "secret"},
		{"untrusted rewrite", request.Limits{}, client{"r", rewrite, false}, "configured"},
		{"untrusted rewrite that is allowed", request.Limits{Rewrite: true}, client{"r", rewrite, false}, "secret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := picker.New(picker.Options{Pool: poolOf(1), Rules: &picker.Rules{
				Handler: anyEndpoint{}, Names: request.Names{Rewrites: map[string]request.Rewrite{"m": {{Model: "configured", Weight: 1}}}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			d, err := s.Choose(t.Context(), c.client.request(t, c.limits))
			if err != nil {
				t.Fatal(err)
			}
			if d.ModelTarget != c.want {
				t.Errorf("engine gets model %q, want %q", d.ModelTarget, c.want)
			}
		})
	}

	// A session of a tenant is bound to the second endpoint. The first one serves all others.
	session := func(tenant string) headerMap {
		return headerMap{request.HeaderFairness: tenant, "x-session": "s"}
	}
	for _, c := range []struct {
		name   string
		limits request.Limits
		client client
		want   string
	}{
		{"same tenant", request.Limits{}, client{"r", session("a"), true}, "10.0.0.2:8000"},
		{"other tenant", request.Limits{}, client{"r", session("b"), true}, "10.0.0.1:8000"},
		{"untrusted client that names the tenant", request.Limits{}, client{"r", session("a"), false}, "10.0.0.1:8000"},
		{"untrusted client that may name the tenant", request.Limits{Fairness: true}, client{"r", session("a"), false}, "10.0.0.2:8000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := poolOf(2)
			s, err := picker.New(picker.Options{Pool: pool, Rules: &picker.Rules{Handler: anyEndpoint{}, Sessions: []request.SessionSource{{Header: "x-session"}}}})
			if err != nil {
				t.Fatal(err)
			}
			second := client{"first", session("a"), true}.request(t, c.limits)
			second.Subset, second.HasSubset = []string{"10.0.0.2:8000"}, true
			if d, err := s.Choose(t.Context(), second); err != nil || d.Endpoints[0] != "10.0.0.2:8000" {
				t.Fatalf("first request goes to %v, %v", d, err)
			}
			d, err := s.Choose(t.Context(), c.client.request(t, c.limits))
			if err != nil {
				t.Fatal(err)
			}
			if d.Endpoints[0] != c.want {
				t.Errorf("request goes to %v, want %s", d.Endpoints, c.want)
			}
		})
	}
}
