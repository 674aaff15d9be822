package outcomes

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

func tallySpecs(models []string, ports ...uint16) (list []endpoint.Spec) {
	for _, p := range ports {
		list = append(list, endpoint.Spec{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), p), Models: models})
	}
	return list
}

func tallyRig(t *testing.T, models []string, ports ...uint16) (*endpoint.Pool, *Counter, *prometheus.Registry) {
	t.Helper()
	pool, reg := endpoint.NewPool(endpoint.PoolOptions{}), prometheus.NewRegistry()
	x, err := New(pool, reg)
	if err != nil {
		t.Fatal(err)
	}
	pool.Set(tallySpecs(models, ports...))
	return pool, x, reg
}

// TestUserErrors distinguishes errors seen by users from client errors, lack of capacity, and
// unknown outcomes.
func TestUserErrors(t *testing.T) {
	pool, x, reg := tallyRig(t, []string{"m"}, 8000)
	ep := pool.Snapshot().Endpoints[0]
	for _, e := range []End{
		{Status: 200, Complete: true},
		{Status: 200, Complete: true, Cause: health.Late},
		{Status: 404, Complete: true, Cause: health.Void},
		{Status: 429, Complete: true, Cause: health.Void},
		{Status: 503, Complete: true, Cause: health.Void},
		{Status: 503, Complete: true, Cause: health.Broken}, // answered by the proxy
		{Status: 500, Complete: true, Cause: health.Failed},
		{Status: 200, Complete: true, Broken: true, Cause: health.Failed},
		{Status: 200, Cause: health.Cut},
		{Status: 0, Cause: health.Void},
	} {
		e.Endpoint, e.Model = ep, "m"
		x.Ended(&e)
	}
	x.Refused("m", false)
	x.Refused("m", true)
	x.Refused("m", true)
	x.Refused("nobody's", true)
	want := `
# HELP grapevine_user_errors_total Requests that failed for users without a client error, by model and cause.
# TYPE grapevine_user_errors_total counter
grapevine_user_errors_total{cause="engine",model="m"} 1
grapevine_user_errors_total{cause="full",model="m"} 2
grapevine_user_errors_total{cause="in_answer",model="m"} 1
grapevine_user_errors_total{cause="no_answer",model="m"} 1
grapevine_user_errors_total{cause="refused",model="m"} 1
grapevine_user_errors_total{cause="engine",model="other"} 0
grapevine_user_errors_total{cause="full",model="other"} 0
grapevine_user_errors_total{cause="in_answer",model="other"} 0
grapevine_user_errors_total{cause="no_answer",model="other"} 0
grapevine_user_errors_total{cause="refused",model="other"} 0
# HELP grapevine_user_requests_total User requests, placed or not, by model.
# TYPE grapevine_user_requests_total counter
grapevine_user_requests_total{model="m"} 13
grapevine_user_requests_total{model="other"} 1
# HELP grapevine_user_unfinished_total Responses that ended early or never started, by model: the engine failed or the client disconnected.
# TYPE grapevine_user_unfinished_total counter
grapevine_user_unfinished_total{model="m"} 2
grapevine_user_unfinished_total{model="other"} 0
# HELP grapevine_requests_total Placed requests that ended, by the endpoint that served last, the model and the status class; none: the status is unknown.
# TYPE grapevine_requests_total counter
grapevine_requests_total{class="none",endpoint="10.0.0.1:8000",model="m"} 1
grapevine_requests_total{class="2xx",endpoint="10.0.0.1:8000",model="m"} 4
grapevine_requests_total{class="4xx",endpoint="10.0.0.1:8000",model="m"} 2
grapevine_requests_total{class="5xx",endpoint="10.0.0.1:8000",model="m"} 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "grapevine_user_errors_total", "grapevine_user_requests_total", "grapevine_user_unfinished_total", "grapevine_requests_total"); err != nil {
		t.Error(err)
	}
}

// TestFirstTokensOfUsers counts first tokens of successful requests by model.
func TestFirstTokensOfUsers(t *testing.T) {
	pool, x, reg := tallyRig(t, []string{"m"}, 8000)
	ep := pool.Snapshot().Endpoints[0]
	for _, e := range []End{
		{Status: 200, First: 15 * time.Millisecond}, {Status: 200, First: 3 * time.Second}, {Status: 200, First: time.Hour},
		{Status: 200}, {Status: 500, First: time.Second},
	} {
		e.Endpoint, e.Model, e.Complete = ep, "m", true
		x.Ended(&e)
	}
	var want strings.Builder
	want.WriteString("# HELP grapevine_user_first_token_seconds Time from the decision to the first token of users' requests, where observed, by model.\n" +
		"# TYPE grapevine_user_first_token_seconds histogram\n")
	for _, b := range []struct {
		bound string
		n     int
	}{
		{"0.01", 0}, {"0.02", 1}, {"0.0501", 1}, {"0.1", 1}, {"0.1995", 1}, {"0.5012", 1}, {"1", 1}, {"1.9953", 1}, {"5.0119", 2}, {"10", 2},
		{"19.9526", 2}, {"50.1187", 2}, {"100", 2}, {"199.5262", 2}, {"501.1872", 2}, {"+Inf", 3},
	} {
		fmt.Fprintf(&want, "grapevine_user_first_token_seconds_bucket{model=\"m\",le=%q} %d\n", b.bound, b.n)
	}
	want.WriteString("grapevine_user_first_token_seconds_sum{model=\"m\"} 3603.015\ngrapevine_user_first_token_seconds_count{model=\"m\"} 3\n")
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want.String()), "grapevine_user_first_token_seconds"); err != nil {
		t.Error(err)
	}
}

// TestTotals: totals count every request once, and errors and cached tokens by endpoint.
func TestTotals(t *testing.T) {
	pool, x, _ := tallyRig(t, []string{"m", "n"}, 8000, 8001)
	a, b := pool.Snapshot().Endpoints[0], pool.Snapshot().Endpoints[1]
	x.Ended(&End{Endpoint: a, Model: "m", Status: 200, Complete: true, PromptTokens: 100, CachedTokens: 40})
	x.Ended(&End{Endpoint: a, Model: "n", Status: 200, Complete: true, PromptTokens: 50, CachedTokens: 50})
	x.Ended(&End{Endpoint: a, Model: "n", Status: 500, Complete: true, Cause: health.Failed})
	x.Ended(&End{Endpoint: a, Model: "n", Cause: health.Void})
	x.Refused("other", false)
	if got, want := x.Totals(), (Totals{Requests: 5, Errors: 2, Unfinished: 1}); got != want {
		t.Errorf("Totals() = %+v, want %+v", got, want)
	}
	if got, want := x.Endpoint(a), (EndpointTotals{Requests: 4, Errors: 1, PromptTokens: 150, CachedTokens: 90}); got != want {
		t.Errorf("Endpoint(a) = %+v, want %+v", got, want)
	}
	if got := x.Endpoint(b); got != (EndpointTotals{}) {
		t.Errorf("Endpoint(b) = %+v, want none", got)
	}
}

// TestModelTotals: the totals of a model count requests, errors, tokens and first tokens.
func TestModelTotals(t *testing.T) {
	pool, x, _ := tallyRig(t, []string{"m"}, 8000)
	a := pool.Snapshot().Endpoints[0]
	x.Ended(&End{Endpoint: a, Model: "m", Status: 200, Complete: true, First: time.Second, Whole: 2 * time.Second, PromptTokens: 100, CachedTokens: 40})
	x.Ended(&End{Endpoint: a, Model: "m", Status: 500, Complete: true, Cause: health.Failed})
	got := x.Models()["m"]
	if got.First == (FirstTokens{}) {
		t.Error("no first token is counted, want one")
	}
	got.First = FirstTokens{}
	if want := (ModelTotals{Requests: 2, Errors: 1, PromptTokens: 100, CachedTokens: 40}); got != want {
		t.Errorf("Models() = %+v, want %+v", got, want)
	}
}

// TestSeriesAreBounded: unserved names get no series, an endpoint has a limited number, and series
// end with their endpoint and model.
func TestSeriesAreBounded(t *testing.T) {
	var names []string
	for i := range 2 * maxModels {
		names = append(names, fmt.Sprintf("model-%03d", i))
	}
	pool, x, reg := tallyRig(t, names, 8000, 8001)
	count := func(name string) int {
		n, err := testutil.GatherAndCount(reg, name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	eps := pool.Snapshot().Endpoints
	for _, name := range append(names, "made up", "and another") {
		for _, ep := range eps {
			x.Ended(&End{Endpoint: ep, Model: name, Status: 200, Complete: true, First: time.Second, Whole: 2 * time.Second})
		}
	}
	if n := count("grapevine_requests_total"); n != 2*2*(modelsOfOne+1) {
		t.Errorf("%d series of requests, want those of %d models and the rest at 2 endpoints in 2 classes", n, modelsOfOne)
	}
	if n := count("grapevine_user_requests_total"); n != maxModels+1 {
		t.Errorf("%d series of users, want %d", n, maxModels+1)
	}
	pool.Set(tallySpecs(names[:3], 8001))
	if n := count("grapevine_request_seconds"); n != 1 {
		t.Errorf("%d series of times, want those of the endpoint that is left", n)
	}
	if n := count("grapevine_user_requests_total"); n != 4 {
		t.Errorf("%d series of users after all but 3 models went", n)
	}
	x.Ended(&End{Endpoint: eps[0], Model: names[0], Status: 200, Complete: true}) // it ends after its endpoint was removed
	if n := count("grapevine_request_seconds"); n != 1 || len(x.rows) != 1 {
		t.Errorf("a request that ended late made %d series, %d endpoints", n, len(x.rows))
	}
}

// TestManyModels: with a hundred models on 64 endpoints and adapters that come and go, there are
// only series of present models and endpoints.
func TestManyModels(t *testing.T) {
	const models, endpoints, rounds = 100, 64, 6
	var ports []uint16
	for i := range endpoints {
		ports = append(ports, uint16(8000+i))
	}
	pool, x, reg := tallyRig(t, nil, ports...)
	serve := func(round int) {
		for _, ep := range pool.Snapshot().Endpoints {
			var list endpoint.ModelList
			for m := range models {
				list.Models = append(list.Models, endpoint.Model{Name: fmt.Sprintf("model-%d-%d", round, m)})
			}
			pool.SetModels(ep.ID, list, time.Unix(1000, 0))
		}
	}
	for round := range rounds {
		serve(round)
		for i, ep := range pool.Snapshot().Endpoints {
			for m := range models {
				x.Ended(&End{Endpoint: ep, Model: fmt.Sprintf("model-%d-%d", round, (m+i)%models), Status: 200, Complete: true, Whole: time.Second})
			}
		}
	}
	series := func(name string) (n, others int) {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.GetMetric() {
				n++
				for _, l := range m.GetLabel() {
					if l.GetName() == "model" && !strings.HasPrefix(l.GetValue(), fmt.Sprintf("model-%d-", rounds-1)) {
						others++
					}
				}
			}
		}
		return n, others
	}
	if n, others := series("grapevine_requests_total"); n > endpoints*(modelsOfOne+1)*2 || others != endpoints*2 {
		t.Errorf("%d series by endpoint and model, %d of them of no model that is served", n, others)
	}
	if n, others := series("grapevine_user_requests_total"); n != models || others != 0 {
		t.Errorf("%d series by model, %d of them of no model that is served", n, others)
	}
	pool.Set(nil)
	if n, _ := series("grapevine_requests_total"); n != 0 {
		t.Errorf("%d series of endpoints that are gone", n)
	}
}
