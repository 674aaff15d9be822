package plugins

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type headerMap map[string]string

func (h headerMap) Get(name string) string { return h[name] }

func labelled(pairs ...string) one {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return one{labels: m}
}

func TestRoleFilters(t *testing.T) {
	role := func(r string) one { return labelled(endpoint.LabelRole, r) }
	f := newFleet(one{}, role("decode"), role("prefill"), role("both"), role("prefill-decode"), role("encode"),
		role("encode-prefill"), role("encode-prefill-decode"))
	for name, want := range map[string]string{"decode-filter": "01347", "prefill-filter": "23467", "encode-filter": "567"} {
		if got := f.kept(t, ask(1), name, ""); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestLabelFilters(t *testing.T) {
	f := newFleet(labelled("a", "1", "b", "x"), labelled("a", "2"), labelled("b", "y"), one{})
	check := func(typ, params, want string) {
		t.Helper()
		if got := f.kept(t, ask(1), typ, params); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
	check("label-selector-filter", `{"matchLabels":{"a":"1","b":"x"}}`, "0")
	check("by-label-selector", `{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"NotIn","values":["x"]}]}`, "")
	check("label-selector-filter", `{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}`, "01")
	check("label-selector-filter", `{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}`, "123")
	check("label-selector-filter", `{"matchExpressions":[{"key":"a","operator":"Exists"},{"key":"b","operator":"DoesNotExist"}]}`, "1")
	check("by-label", `{"label":"a","validValues":["2","3"]}`, "1")
	check("by-label", `{"label":"a","validValues":["2"],"allowsNoLabel":true}`, "123")
	check("label-selector-filter", `{"label":"b","validValues":["y"]}`, "2")
}

func TestPrefixAffinity(t *testing.T) {
	late := endpoint.Load{Requests: 5, Waiting: 5, Prefill: 6000}
	f := newFleet(one{held: 900, cost: taught()}, one{held: 800, cost: taught()}, one{held: 799, cost: taught()}, one{cost: taught()})
	params := `{}`
	check := func(params, want string) {
		t.Helper()
		if got := f.kept(t, ask(1000), "prefix-cache-affinity-filter", params); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
	check(params, "01")
	check(`{"explorationProbability":1}`, "0123")
	check(`{"explorationProbability":0,"affinityThreshold":0.95}`, "0123")
	for i := range 2 {
		f.pool.LoadTracker().SetRemote(f.pool.Snapshot().Endpoints[i], late)
	}
	check(params, "01") // 6000 tokens at 15928 per second: 377 ms later
	check(`{"maxTTFTPenaltyMs":376}`, "0123")
	check(`{"maxTTFTPenaltyMs":377}`, "01")
	check(`{"maxTTFTPenaltyMs":1000,"peakPrefillThroughput":5999}`, "0123")
	check(`{"maxTTFTPenaltyMs":0}`, "01")
	// By learned costs: 6.1 s against 0.2 s.
	check(`{"ttftSource":"latencyPredictor","maxTTFTPenaltyMs":5000}`, "0123")
	check(`{"ttftSource":"latencyPredictor","maxTTFTPenaltyMs":7000}`, "01")
	check(`{"affinityThreshold":0}`, "0123")
	f = newFleet(one{held: 900, cost: &simple, load: late}, one{cost: &simple})
	check(`{"ttftSource":"latencyPredictor","maxTTFTPenaltyMs":1}`, "0") // nothing was learned
}

func TestSLOTier(t *testing.T) {
	f := newFleet(one{cost: taught()}, one{cost: taught(), load: endpoint.Load{Requests: 1, Waiting: 1, Prefill: 500}})
	check := func(ttft time.Duration, epsilon, want string) {
		t.Helper()
		r := ask(100)
		r.SLOTTFT = ttft
		if got := f.kept(t, r, "slo-headroom-tier-filter", `{"epsilonExploreNeg":`+epsilon+`}`); got != want {
			t.Errorf("%v: %q, want %q", ttft, got, want)
		}
	}
	check(0, "0", "01")
	check(200*time.Millisecond, "0", "0")
	check(200*time.Millisecond, "1", "1")
	check(time.Second, "0", "01")
	check(time.Millisecond, "0", "01")
	r := ask(100)
	r.SLOTPOT = 11500 * time.Microsecond // steps: 11 and 11 ms
	if got := f.kept(t, r, "slo-headroom-tier-filter", ""); got != "01" {
		t.Error(got)
	}
	f = newFleet(one{cost: &simple}, one{cost: &simple, load: endpoint.Load{Requests: 1, Waiting: 1, Prefill: 500}})
	check(200*time.Millisecond, "0", "01") // nothing was learned
}

// TestBeyondTargets: expected first tokens of 100 tokens after .110 and .610 s, steps of 11 and 12
// ms; the third endpoint has no estimates yet.
func TestBeyondTargets(t *testing.T) {
	known := func(f *fleet) *fleet {
		cost := simple
		cost.PrefillSeen, cost.DecodeSeen = trustedSamples, trustedSamples
		for _, ep := range f.pool.Snapshot().Endpoints {
			if _, young := ep.Label("young"); !young {
				ep.SetRemoteCost(cost)
			}
		}
		return f
	}
	idle, busy := one{}, one{load: endpoint.Load{Requests: 2, Waiting: 1, Prefill: 500}}
	two := known(newFleet(idle, busy))
	check := func(f *fleet, ttft, tpot time.Duration, want bool) {
		t.Helper()
		refused := 0
		for range 1000 {
			r := ask(100)
			r.SLOTTFT, r.SLOTPOT = ttft, tpot
			c := f.cycle(r)
			if MissesTarget(c) {
				refused++
			}
			c.Free()
		}
		if want && (refused < 970 || refused == 1000) || !want && refused > 0 {
			t.Errorf("%v and %v: %d of 1,000 refused", ttft, tpot, refused)
		}
	}
	ms := time.Millisecond
	check(two, 0, 0, false)
	check(two, 111*ms, 0, false)
	check(two, 109*ms, 0, true)
	check(two, 109*ms, time.Second, true)
	check(two, 0, 10*ms, true)
	check(two, 0, 11500*time.Microsecond, false)
	check(known(newFleet(idle, busy, labelled("young", "yes"))), 109*ms, 0, false)
	// With separate prefill endpoints, the first token is early, and the steps are the decode
	// endpoint's.
	prefill, encode := labelled(endpoint.LabelRole, "prefill"), labelled(endpoint.LabelRole, "encode")
	check(known(newFleet(busy, prefill)), 111*ms, 0, false)
	check(known(newFleet(busy, prefill)), 0, 11500*time.Microsecond, true)
	check(known(newFleet(busy, encode)), 111*ms, 0, true)
}

func TestUtilizationFilter(t *testing.T) {
	g := func(waiting, running int, kv float64, requests int64) one {
		return one{gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: waiting, Running: running, KVUse: kv}}, load: endpoint.Load{Requests: requests}}
	}
	f := newFleet(g(0, 10, .95, 10), g(9, 2, .5, 11), g(1, 1, .1, 1), one{})
	check := func(params, want string) {
		t.Helper()
		if got := f.kept(t, ask(1), "utilization-filter", params); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
	check(`{"conditions":[{"metric":"kv-cache-utilization","maxValue":0.9}]}`, "123")
	check(`{"conditions":[{"metric":"waiting-queue","maxValue":1},{"metric":"running-requests","maxValue":9}]}`, "23")
	check(`{"conditions":[{"metric":"active-requests","maxValue":10}]}`, "023")
	f = newFleet(g(0, 0, .5, 0))
	check(`{"conditions":[{"metric":"kv-cache-utilization","maxValue":0.1}]}`, "")
	check(`{"conditions":[{"metric":"kv-cache-utilization","maxValue":0.1}],"fallbackOnEmpty":true}`, "0")
}

func TestTopology(t *testing.T) {
	host, zone := "kubernetes.io/hostname", "topology.kubernetes.io/zone"
	f := newFleet(labelled(host, "h1", zone, "z1"), labelled(host, "h2", zone, "z1"), labelled(host, "h3", zone, "z2"), one{})
	check := func(peer int, params, want string) {
		t.Helper()
		c := f.cycle(ask(1))
		defer c.Free()
		if peer >= 0 {
			c.Peer = c.At(peer).Endpoint
		}
		if got := left(c, build(t, "topology-affinity-filter", params).Filter); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
	check(-1, "", "0123")
	check(0, "", "0")
	check(0, `{"minAffinity":"zone"}`, "01")
	check(3, "", "0123") // the peer names no zone
	check(0, `{"minAffinity":"zone","loadAllowance":2}`, "01")
	for i := range 2 {
		f.pool.LoadTracker().SetRemote(f.pool.Snapshot().Endpoints[i], endpoint.Load{Requests: 3})
	}
	check(0, `{"minAffinity":"zone","loadAllowance":2}`, "0123")
	check(0, `{"minAffinity":"zone","loadAllowance":3}`, "01")
	check(0, `{"hostLabel":"topology.kubernetes.io/zone"}`, "01")
}

func TestHeaderTesting(t *testing.T) {
	f := newFleet(one{}, one{}, one{})
	check := func(list, want string, scores ...float64) {
		t.Helper()
		r := ask(1)
		r.Headers = headerMap{request.HeaderTestSelection: list}
		if got := f.kept(t, r, "header-based-testing-filter", ""); got != want {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
		if got := f.scores(t, r, "header-based-testing-filter", ""); !near(got, scores) {
			t.Errorf("%s: %v, want %v", list, got, scores)
		}
	}
	check("", "012", 0, 0, 0)
	check("10.0.0.2:8000, 10.0.0.0", "02", .5, 0, 1)
	check("10.9.9.9:8000", "", 0, 0, 0)
}

func TestDetectors(t *testing.T) {
	g := func(waiting int, kv float64, age time.Duration) one {
		return one{gauges: &endpoint.Gauges{At: t0.Add(-age), Values: gauge.Values{Waiting: waiting, KVUse: kv}}}
	}
	fresh := 100 * time.Millisecond
	// queue/5 and kv/.8: .4, .5, then stale and unknown as 1.
	f := newFleet(g(2, .1, fresh), g(1, .4, fresh), g(0, 0, time.Second), one{})
	saturation := func(typ, params string) float64 {
		c := f.cycle(ask(1))
		defer c.Free()
		return build(t, typ, params).Detector(c)
	}
	check := func(got, want float64) {
		t.Helper()
		if !near([]float64{got}, []float64{want}) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(saturation("utilization-detector", ""), (.4+.5+1+1)/4)
	check(saturation("utilization-detector", `{"metricsStalenessThreshold":"2s"}`), (.4+.5+0+1)/4)
	check(saturation("utilization-detector", `{"stalenessPolicy":"ignore"}`), (.4+.5)/4)
	check(saturation("utilization-detector", `{"queueDepthThreshold":1,"kvCacheUtilThreshold":0.5}`), (2+1+1+1)/4.)
	if got := f.kept(t, ask(1), "utilization-detector", ""); got != "01" {
		t.Error(got)
	}
	if got := f.kept(t, ask(1), "utilization-detector", `{"queueDepthThreshold":2}`); got != "1" {
		t.Error("at the limit is out:", got)
	}
	if got := f.kept(t, ask(1), "utilization-detector", `{"queueDepthThreshold":2,"headroom":1}`); got != "01" {
		t.Error(got)
	}
	if got := f.kept(t, ask(1), "utilization-detector", `{"queueDepthThreshold":1}`); got != "0123" {
		t.Error("no endpoint is under the limit:", got)
	}
	f = newFleet(one{load: endpoint.Load{Requests: 150, Tokens: 5_000_000, Prefill: 1_000_000}}, one{load: endpoint.Load{Requests: 10}})
	check(saturation("concurrency-detector", ""), .8)
	check(saturation("concurrency-detector", `{"concurrencyMode":"tokens"}`), .5)
	if got := f.kept(t, ask(1), "concurrency-detector", ""); got != "1" {
		t.Error(got)
	}
	for params, want := range map[string]string{
		`{"headroom":0.5}`: "1", `{"headroom":0.51}`: "01", `{"maxConcurrency":10}`: "",
		`{"concurrencyMode":"tokens"}`: "1", `{"concurrencyMode":"tokens","headroom":0.1}`: "01", `{"concurrencyMode":"hybrid","headroom":0.1}`: "1",
	} {
		if got := f.kept(t, ask(1), "concurrency-detector", params); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
}
