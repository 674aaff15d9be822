package remotecluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/plugins/predicted"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var (
	t0      = time.Unix(1_700_000_000, 0)
	poolKey = federation.PoolKey{Namespace: "ns", Name: "pool"}
)

// world is this cluster, a, with two engines, and the announcements of others.
type world struct {
	t       testing.TB
	now     time.Time
	pool    *endpoint.Pool
	secret  *filter.Secret
	view    *federation.View
	fleet   *Fleet
	s       *picker.Scheduler
	stayed  int
	asks    Pick // at remote clusters; nil: not asked
	version uint64
}

func newWorld(t testing.TB, change func(*Options), others ...*federation.Remote) *world {
	t.Helper()
	w := &world{t: t, now: t0, pool: endpoint.NewPool(endpoint.PoolOptions{})}
	var err error
	if w.secret, err = filter.NewSecret([]byte("a secret of the federation")); err != nil {
		t.Fatal(err)
	}
	w.pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}, {Addr: netip.MustParseAddrPort("10.0.0.2:8000")}})
	o := Options{Self: "a", Region: "eu", Pool: poolKey, Use: UseAlways, Hops: federation.NewHops(w.secret, "a"), Stays: func(*filter.Secret, []block.Key) { w.stayed++ }}
	if change != nil {
		change(&o)
	}
	w.fleet = New(o)
	w.tell(others...)
	w.open(nil)
	return w
}

// remoteClusters is a world's fleet as the scheduler uses it.
type remoteClusters struct {
	*Fleet
	w *world
}

// ResolveEndpoint implements picker.RemoteClusters.
func (rc remoteClusters) ResolveEndpoint(_ context.Context, r *request.Request, ep *endpoint.Endpoint, headers []request.HeaderSet, now time.Time) (*endpoint.Endpoint, func(int)) {
	if rc.w.asks == nil {
		return nil, nil
	}
	return rc.Fleet.ResolveEndpoint(r, ep, headers, now, rc.w.asks)
}

// open makes a new scheduler, optionally with a gate.
func (w *world) open(g picker.Gate) {
	w.t.Helper()
	scorer := predicted.New(predicted.Defaults, nil)
	var err error
	w.s, err = picker.New(picker.Options{
		Pool: w.pool, Gate: g, RemoteClusters: remoteClusters{w.fleet, w}, Now: func() time.Time { return w.now }, Seed: 1, SampleBodies: -1,
		Rules: &picker.Rules{Handler: single{&cycle.Profile{
			Name: "default", Scorers: []cycle.ProfileScorer{{Name: "predicted", Weight: 1, Scorer: scorer}}, Picker: best{},
		}}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// single runs one profile.
type single struct{ *cycle.Profile }

func (s single) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	plan.Order = append(plan.Order, s.Run(c).Order...)
	return nil
}

// best picks all candidates, best first.
type best struct{}

func (best) Pick(_ *cycle.Cycle, totals []float64, order []int32) []int32 {
	for k := range totals {
		order = append(order, int32(k))
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(totals[b], totals[a]) })
	return order
}

// tell replaces the announcements of other clusters.
func (w *world) tell(others ...*federation.Remote) {
	w.version++
	v := &federation.View{Self: "a", Version: w.version, Secret: w.secret}
	for _, r := range others {
		v.Clusters = append(v.Clusters, &federation.Cluster{Name: r.Cluster, State: r.State, RTT: r.RTT, Pools: []*federation.Remote{r}})
	}
	w.view = v
	w.fleet.Update(v)
}

// other is an idle cluster with four engines, 20 ms away.
func other(name string, change func(*federation.Remote)) *federation.Remote {
	r := &federation.Remote{
		Cluster: name, State: federation.Live, RTT: 20 * time.Millisecond, ReceivedAt: t0, Until: t0.Add(5 * time.Second),
		Export: &federation.Export{
			Pool: poolKey, Region: "us", Gateways: []federation.Address{{HostPort: "192.0.2." + fmt.Sprint(int(name[0])) + ":80"}},
			Ready: []federation.Ready{{Model: "m", Count: 4}},
		},
	}
	if change != nil {
		change(r)
	}
	return r
}

// busy adds that many waiting requests of 4,000 tokens to each local engine.
func (w *world) busy(requests int64) {
	for _, ep := range w.pool.Snapshot().Endpoints {
		n := 4000 * requests
		w.pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: requests, Waiting: requests, Prefill: n, Tokens: n, Pairs: float64(n) * 2000, LastFirst: w.now.UnixNano()})
	}
}

func prompt(words int, seed string) *request.Request {
	text := strings.Repeat(seed+" ", words)
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": text, "stream": true, "max_tokens": 50})
	if err != nil {
		panic(err)
	}
	r := &request.Request{ID: seed, Path: "/v1/completions", Body: body}
	if err := request.Parse(r); err != nil {
		panic(err)
	}
	return r
}

// place makes a decision and returns it with the reason for each cluster not chosen.
func (w *world) place(r *request.Request) (*request.Decision, map[string]string, error) {
	w.t.Helper()
	d, err := w.s.Choose(context.Background(), r)
	why := map[string]string{}
	for _, e := range w.s.Records().Last(1) {
		for _, c := range e.Clusters {
			why[c.Cluster] = c.Result
		}
	}
	return d, why, err
}

func (w *world) expect(r *request.Request, cluster, why string) *request.Decision {
	w.t.Helper()
	d, got, err := w.place(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if got[cluster] != why {
		w.t.Errorf("%s is %q, want %q: %v %v", cluster, got[cluster], why, got, w.terms())
	}
	if gone := !strings.HasPrefix(d.Endpoints[0], "10."); gone != (why == "chosen") {
		w.t.Errorf("request goes to %v although %s is %q", d.Endpoints, cluster, got[cluster])
	}
	return d
}

func (w *world) terms() string {
	b, _ := json.Marshal(w.s.Records().Last(1)[0].Clusters)
	return string(b)
}

// finish ends a request successfully, with its first token after that time.
func (w *world) finish(d *request.Decision, first time.Duration) {
	w.now = w.now.Add(first)
	d.Observe(request.Event{Kind: request.EventHeaders, At: w.now, Status: 200, Served: d.Endpoints[0]})
	d.Observe(request.Event{Kind: request.EventFirstToken, At: w.now})
	d.Done(request.Outcome{At: w.now, Status: 200, Complete: true, Served: d.Endpoints[0]})
}

// broken ends a request whose endpoint was unreachable: the proxy answered.
func (w *world) broken(d *request.Decision) {
	d.Observe(request.Event{Kind: request.EventHeaders, At: w.now, Status: 503, Local: true, Attempts: 1})
	d.Done(request.Outcome{At: w.now, Status: 503, Complete: true})
}

// TestSpill: requests stay while this cluster has capacity and leave otherwise. Local endpoints are
// the fallback, the hop token is set, and the record contains the terms.
func TestSpill(t *testing.T) {
	w := newWorld(t, nil, other("b", nil))
	w.finish(w.expect(prompt(500, "quiet"), "b", "dearer"), 50*time.Millisecond)
	if w.stayed != 1 {
		t.Errorf("%d prompts recorded as served here, want 1", w.stayed)
	}
	w.busy(10)
	d := w.expect(prompt(500, "loud"), "b", "chosen")
	if want := []string{"192.0.2.98:80", "10.0.0.1:8000", "10.0.0.2:8000"}; len(d.Endpoints) < 2 || d.Endpoints[0] != want[0] {
		t.Errorf("destinations %v, want %v", d.Endpoints, want)
	}
	token := ""
	for _, h := range d.SetHeaders {
		if h.Name == request.HeaderHop {
			token = h.Value
		}
	}
	if hop, err := federation.NewHops(w.secret, "b").Verify(token, w.now); err != nil || hop.From != "a" || hop.Count != 1 {
		t.Errorf("token %q: %+v, %v", token, hop, err)
	}
	e := w.s.Records().Last(1)[0]
	var here, there explanation.Cluster
	for _, c := range e.Clusters {
		if c.Cluster == "a" {
			here = c
		} else {
			there = c
		}
	}
	if here.Result != "here" || here.Price <= there.Price || there.RoundTrip != 20 || there.Predicted.Own <= 0 || e.Choice != "192.0.2.98:80" {
		t.Errorf("terms %+v %+v of %q", here, there, e.Choice)
	}
	for _, ep := range w.pool.Snapshot().Endpoints {
		if l := w.pool.LoadTracker().Local(ep, w.now); l.Requests != 0 {
			t.Errorf("remote request is in the load of %s", ep.Address)
		}
	}
	w.finish(d, 100*time.Millisecond)
}

// TestWhyNot: each reason for excluding a cluster.
func TestWhyNot(t *testing.T) {
	ask := func(change func(*request.Request)) *request.Request {
		r := prompt(500, "p")
		if change != nil {
			change(r)
		}
		return r
	}
	named := func(o *Options) { o.Use = UseNamed }
	for _, c := range []struct {
		want   string
		b      func(*federation.Remote)
		r      func(*request.Request)
		change func(*Options)
	}{
		{want: "chosen"},
		{want: "not named by the route", change: named},
		{want: "not named by the route", change: func(o *Options) { o.Use = UseNever }},
		{want: "not named by the route", change: named, r: func(r *request.Request) { r.Import = "ns/another" }},
		{want: "chosen", change: named, r: func(r *request.Request) { r.Import = "ns/pool" }},
		{want: "chosen", change: named, r: func(r *request.Request) {
			r.Subset, r.HasSubset = []string{"10.0.0.1:8000", "192.0.2.98:80"}, true
		}},
		{want: "not named by the route", change: named, r: func(r *request.Request) { r.Subset, r.HasSubset = []string{"10.0.0.1:8000"}, true }},
		{want: "not in the proxy's subset", r: func(r *request.Request) { r.Subset, r.HasSubset = []string{"10.0.0.1:8000"}, true }},
		{want: "came from another cluster", r: func(r *request.Request) { r.Headers = headers{request.HeaderHop: "anything"} }},
		{want: "not allowed there", r: func(r *request.Request) { r.Clusters = "a" }},
		{want: "chosen", r: func(r *request.Request) { r.Clusters = "a, b" }},
		{want: "not allowed there", r: func(r *request.Request) { r.Clusters = "region:eu" }},
		{want: "chosen", r: func(r *request.Request) { r.Clusters = "region:us,region:eu" }},
		{want: "not allowed there", change: func(o *Options) { o.Rules.Objectives = map[string][]string{"": {"region:eu"}} }},
		{want: "not allowed there", change: func(o *Options) { o.Rules.Default = []string{"a"} }, r: func(r *request.Request) { r.Clusters = "b,*" }},
		{want: "silent", b: func(r *federation.Remote) { r.Until = t0 }},
		{want: "silent", b: func(r *federation.Remote) { r.State = federation.Silent }},
		{want: "silent", b: func(r *federation.Remote) { r.State = federation.Refused }},
		{want: "draining", b: func(r *federation.Remote) { r.State = federation.Draining }},
		{want: "draining", b: func(r *federation.Remote) { r.Draining = true }},
		{want: "model not served there", b: func(r *federation.Remote) { r.Ready[0].Model = "n" }},
		{want: "nothing ready there", b: func(r *federation.Remote) { r.Ready = nil }},
		{want: "nothing ready there", b: func(r *federation.Remote) { r.Gateways = nil }},
		{want: "nothing ready there", b: func(r *federation.Remote) { r.Gateways[0].HostPort = "0.0.0.0:80" }},
		{want: "nothing ready there", b: func(r *federation.Remote) { r.Gateways[0].HostPort = "169.254.169.254:80" }},
		{want: "saturated", b: func(r *federation.Remote) { r.Load.Saturation = 1 }},
		{want: "dearer", b: func(r *federation.Remote) { r.Load.Wait = time.Minute }},
		{want: "dearer", b: func(r *federation.Remote) { r.RTT = time.Minute }},
		{want: "dearer", change: func(o *Options) { o.Egress = map[string]float64{"": 1e12} }},
		{want: "chosen", change: func(o *Options) { o.Egress = map[string]float64{"": 1e12, "free": 0} }, b: func(r *federation.Remote) { r.Price.Egress = "free" }},
	} {
		w := newWorld(t, c.change, other("b", c.b))
		w.busy(10)
		d := w.expect(ask(c.r), "b", c.want)
		w.finish(d, time.Millisecond)
	}
}

type headers map[string]string

func (h headers) Get(name string) string { return h[name] }

// TestLease: a silent cluster is excluded when its lease ends, without an update.
func TestLease(t *testing.T) {
	w := newWorld(t, nil, other("b", nil))
	w.busy(10)
	w.expect(prompt(500, "x"), "b", "chosen")
	w.now = t0.Add(5*time.Second - 1)
	w.expect(prompt(500, "y"), "b", "chosen")
	w.now = t0.Add(5 * time.Second)
	w.expect(prompt(500, "z"), "b", "silent")
}

// TestHeld: a prompt cached in B is sent there if that outweighs the round trip, although no
// request waits here. So is the conversation's next request.
func TestHeld(t *testing.T) {
	for _, c := range []struct {
		rtt   time.Duration
		words int
		want  string
	}{
		{20 * time.Millisecond, 8000, "chosen"},
		{2 * time.Second, 8000, "dearer"},
		{20 * time.Millisecond, 60, "dearer"},
	} {
		w := newWorld(t, nil, other("b", func(r *federation.Remote) { r.RTT = c.rtt }))
		b := w.view.Clusters[0].Pools[0]
		w.fleet.Sent(prompt(c.words, "hot"), &endpoint.Endpoint{Spec: endpoint.Spec{Cluster: "b"}}, endpoint.Work{}, t0)
		w.now = t0.Add(4 * time.Second) // sent requests are in its later announcement
		b.ReceivedAt, b.Until = w.now, w.now.Add(time.Minute)
		w.expect(prompt(c.words, "hot"), "b", c.want)
		w.expect(prompt(c.words, "hot hot"), "b", c.want) // the next turn is longer
		w.expect(prompt(c.words, "cold"), "b", "dearer")
	}
}

// TestNoFlapping: prices that fluctuate around each other by a tenth change nothing. If one rises,
// requests leave once and return once.
func TestNoFlapping(t *testing.T) {
	w := newWorld(t, nil)
	swing := []int64{0, 1, 0, 1, 2, 1}
	changes, last := 0, false
	for step := range 400 {
		w.now = w.now.Add(50 * time.Millisecond)
		w.tell(other("b", func(r *federation.Remote) {
			r.ReceivedAt, r.Until = w.now, w.now.Add(time.Second)
			r.Load.Wait = time.Duration(900+40*swing[step%len(swing)]) * time.Millisecond
		}))
		load := int64(0)
		if step >= 100 && step < 300 {
			load = 12
		}
		w.busy(load)
		d, _, err := w.place(prompt(50, fmt.Sprint("s", step)))
		if err != nil {
			t.Fatal(err)
		}
		gone := !strings.HasPrefix(d.Endpoints[0], "10.")
		if gone != last {
			changes++
		}
		last = gone
		d.Done(request.Outcome{At: w.now, Status: 200, Complete: true})
	}
	if changes != 2 {
		t.Errorf("destination changed %d times, want 2", changes)
	}
}

// TestSpreads: requests sent since the last announcement count, so that a burst does not go to a
// single idle cluster.
func TestSpreads(t *testing.T) {
	w := newWorld(t, nil, other("b", nil), other("c", nil), other("d", nil))
	w.busy(5)
	to := map[string]int{}
	for i := range 300 {
		d, _, err := w.place(prompt(2000, fmt.Sprint("burst", i)))
		if err != nil {
			t.Fatal(err)
		}
		to[d.Endpoints[0]]++
	}
	for _, gw := range []string{"192.0.2.98:80", "192.0.2.99:80", "192.0.2.100:80"} {
		if to[gw] < 40 {
			t.Errorf("%d requests went to %s of %v", to[gw], gw, to)
		}
	}
	if stayed := 300 - to["192.0.2.98:80"] - to["192.0.2.99:80"] - to["192.0.2.100:80"]; stayed == 0 {
		t.Error("no request stayed, although the remote queues became longer")
	}
}

// TestFailures: a cluster with failures is excluded, tried with one request at a time, and restored
// after a success.
func TestFailures(t *testing.T) {
	w := newWorld(t, nil, other("b", func(r *federation.Remote) { r.Until = t0.Add(time.Hour) }))
	w.busy(10)
	w.broken(w.expect(prompt(500, "1"), "b", "chosen"))
	w.expect(prompt(500, "2"), "b", "failed of late")
	w.now = w.now.Add(firstBackoff)
	trial := w.expect(prompt(500, "3"), "b", "chosen")
	w.expect(prompt(500, "4"), "b", "failed of late")
	w.now = w.now.Add(firstBackoff) // the trial has not ended: another one
	w.broken(w.expect(prompt(500, "5"), "b", "chosen"))
	w.now = w.now.Add(firstBackoff) // two in a row: twice as long
	w.expect(prompt(500, "6"), "b", "failed of late")
	w.finish(trial, time.Millisecond)
	for range 4 { // it took two seconds: answers in time have to follow
		w.busy(10)
		w.finish(w.expect(prompt(500, "probe"), "b", "chosen"), time.Millisecond)
	}
	w.busy(10)
	w.expect(prompt(500, "7"), "b", "chosen")
	full := w.expect(prompt(500, "8"), "b", "chosen")
	full.Observe(request.Event{Kind: request.EventHeaders, At: w.now, Status: 429})
	full.Done(request.Outcome{At: w.now, Status: 429, Complete: true})
	w.expect(prompt(500, "9"), "b", "saturated")
}

// TestRefusalsBackOff: a cluster that refuses requests for lack of capacity gets one trial request
// at a time, at doubled intervals, until it serves one. The proxy may retry a refusal here.
func TestRefusalsBackOff(t *testing.T) {
	w := newWorld(t, nil, other("b", func(r *federation.Remote) { r.Until = t0.Add(time.Hour) }))
	refuse := func(d *request.Decision) {
		d.Observe(request.Event{Kind: request.EventHeaders, At: w.now, Status: 429, Served: d.Endpoints[0]})
		d.Done(request.Outcome{At: w.now, Status: 429, Complete: true, Served: d.Endpoints[0]})
	}
	sent := 0
	for step := range 60 * 10 {
		w.now = w.now.Add(100 * time.Millisecond)
		w.busy(10)
		d, why, err := w.place(prompt(500, fmt.Sprint("r", step)))
		if err != nil {
			t.Fatal(err)
		}
		if why["b"] != "chosen" {
			d.Done(request.Outcome{At: w.now, Status: 200, Complete: true})
			continue
		}
		if sent++; !d.RetryRefusal {
			t.Errorf("request %d has an endpoint here: RetryRefusal = false, want true", step)
		}
		refuse(d)
	}
	if sent > 7 {
		t.Errorf("%d requests in a minute to a cluster that refuses all of them, want at most 7", sent)
	}
	w.now = w.now.Add(mostBackoff)
	w.busy(10)
	trial := w.expect(prompt(500, "trial"), "b", "chosen")
	w.expect(prompt(500, "beside"), "b", "saturated")
	w.finish(trial, 10*time.Millisecond)
	w.busy(10)
	w.expect(prompt(500, "after"), "b", "chosen")
	w.expect(prompt(500, "after 2"), "b", "chosen")
}

// TestLateIsProbed: a cluster that answered late gets one request at a time, however long ago that
// was, until an answer is in time.
func TestLateIsProbed(t *testing.T) {
	w := newWorld(t, nil, other("b", func(r *federation.Remote) { r.Until = t0.Add(time.Hour) }))
	place := func() *request.Decision { w.busy(10); return w.expect(prompt(500, "l"), "b", "chosen") }
	first := []*request.Decision{place(), place(), place()}
	w.now = w.now.Add(5 * time.Second)
	for _, d := range first {
		w.finish(d, 5*time.Second)
	}
	w.now = w.now.Add(2 * time.Minute) // the lateness has faded
	probe := place()
	w.expect(prompt(500, "beside"), "b", "late, being checked")
	w.finish(probe, 4*time.Second)
	w.now = w.now.Add(2 * time.Minute)
	for range 12 {
		probe = place()
		w.finish(probe, time.Millisecond)
		w.now = w.now.Add(time.Minute)
	}
	place()
	place()
}

// TestFalseFilter: a cluster that announces prefixes which responses do not confirm loses weight
// for a while. One whose responses confirm them does not.
func TestFalseFilter(t *testing.T) {
	visits := func(cached func(held int) int, tries int) (away int) {
		w := newWorld(t, nil)
		for i := range tries {
			w.now = w.now.Add(4 * time.Second)
			w.tell(other("b", func(r *federation.Remote) { r.ReceivedAt, r.Until = w.now, w.now.Add(time.Minute) }))
			r := prompt(8000, fmt.Sprint("claimed", i))
			w.fleet.Sent(r, &endpoint.Endpoint{Spec: endpoint.Spec{Cluster: "b"}}, endpoint.Work{}, w.now.Add(-4*time.Second))
			d, _, err := w.place(r)
			if err != nil {
				t.Fatal(err)
			}
			o := request.Outcome{At: w.now, Status: 200, Complete: true, Served: d.Endpoints[0]}
			for _, c := range w.s.Records().Last(1)[0].Clusters {
				if c.Cluster == "b" && c.Result == "chosen" {
					away++
					o.Usage = request.Usage{Seen: true, CachedSeen: true, CachedTokens: cached(c.Held)}
				}
			}
			d.Done(o)
		}
		return away
	}
	if n := visits(func(held int) int { return held - held%16 }, 40); n != 40 {
		t.Errorf("%d of 40 prompts went to the cluster that has them", n)
	}
	if n := visits(func(int) int { return 0 }, 40); n == 0 || n > 16 {
		t.Errorf("%d of 40 prompts went to the cluster with false announcements, want 1 to 16", n)
	}
	a := account{}
	a.audit(1000, 0, t0)
	first := a.missingNow(t0)
	a.audit(1000, -1, t0) // no information
	a.audit(10, 0, t0)    // too little to judge
	if first <= 0 || a.missingNow(t0) != first || a.missingNow(t0.Add(missingHalf)) != first/2 {
		t.Errorf("doubt %v, then %v, a while later %v", first, a.missingNow(t0), a.missingNow(t0.Add(missingHalf)))
	}
}

// TestResidency: a request that may not be served here is served remotely or refused, without a
// local fallback.
func TestResidency(t *testing.T) {
	r := func() *request.Request {
		r := prompt(500, "r")
		r.Clusters = "b"
		return r
	}
	w := newWorld(t, nil, other("b", nil))
	if d := w.expect(r(), "b", "chosen"); len(d.Endpoints) != 1 {
		t.Errorf("destinations %v, want B's gateway alone", d.Endpoints)
	}
	for name, w := range map[string]*world{"b is silent": newWorld(t, nil, other("b", func(r *federation.Remote) { r.State = federation.Silent })), "nobody": newWorld(t, nil)} {
		if d, _, err := w.place(r()); request.ReasonOf(err) != request.ReasonNoEndpoints {
			t.Errorf("%s: placed at %+v (%v), want a refusal", name, d, err)
		}
	}
}

// TestNoLocalEndpoint: without a suitable local endpoint, all requests go to the remote cluster.
func TestNoLocalEndpoint(t *testing.T) {
	w := newWorld(t, nil, other("b", nil))
	w.pool.Set(nil)
	w.broken(w.expect(prompt(500, "n"), "b", "chosen"))
	w.broken(w.expect(prompt(500, "o"), "b", "chosen")) // the only candidate
	w.tell(other("b", nil), other("c", nil))
	if d := w.expect(prompt(500, "p"), "c", "chosen"); len(d.Endpoints) != 2 {
		t.Errorf("destinations %v, want c's gateway, and b's to stand by though it failed a moment ago", d.Endpoints)
	}
	w.now = w.now.Add(3 * firstBackoff)
	if d, _, err := w.place(prompt(500, "q")); err != nil || len(d.Endpoints) != 2 {
		t.Errorf("destinations %+v (%v), want both gateways", d, err)
	}
}

// TestStoredResponses: a request that continues a response stored in a remote cluster is sent
// there, and one stored locally stays.
func TestStoredResponses(t *testing.T) {
	w := newWorld(t, nil, other("b", nil), other("c", nil))
	w.busy(10)
	r := prompt(500, "resp")
	r.Kind = request.KindResponses
	d, why, err := w.place(r)
	if err != nil {
		t.Fatal(err)
	}
	keeper := "b"
	if why["c"] == "chosen" {
		keeper = "c"
	}
	d.Done(request.Outcome{At: w.now, Status: 200, Complete: true, ResponseID: "resp-1"})
	w.busy(0)
	for range 5 {
		next := prompt(10, "next")
		next.Kind, next.Previous = request.KindResponses, "resp-1"
		w.expect(next, keeper, "chosen")
	}
}

// TestModes: direct endpoints are used in that mode.
func TestModes(t *testing.T) {
	b := func(r *federation.Remote) {
		r.Direct = []string{"198.51.100.1:8000", "198.51.100.2:8000", "no address"}
	}
	w := newWorld(t, func(o *Options) { o.Mode = ModeEndpoint }, other("b", b))
	w.busy(20)
	seen := map[string]int{}
	for i := range 20 {
		seen[w.expect(prompt(100, fmt.Sprint(i)), "b", "chosen").Endpoints[0]]++
	}
	if d := w.expect(prompt(100, "engine"), "b", "chosen"); len(d.SetHeaders) != 0 {
		t.Errorf("headers for an engine of another cluster: %v, want none", d.SetHeaders)
	}
	if len(seen) != 2 || seen["198.51.100.1:8000"] != 10 {
		t.Errorf("endpoints %v, want both alike", seen)
	}
}

// TestStatus: status shows the decision for the next request.
func TestStatus(t *testing.T) {
	w := newWorld(t, nil, other("b", nil), other("c", func(r *federation.Remote) { r.State = federation.Silent }), other("d", func(r *federation.Remote) { r.Gateways = nil }))
	got := map[string]string{}
	for _, s := range w.fleet.Status(w.now) {
		got[s.Cluster] = s.Result
	}
	if got["b"] != "candidate" || got["c"] != "silent" || got["d"] != "no address" {
		t.Errorf("status %v", got)
	}
	w.fleet.Ended(&endpoint.Endpoint{Spec: endpoint.Spec{Cluster: "b"}}, picker.RemoteOutcome{At: w.now, Cause: health.Broken})
	if s := w.fleet.Status(w.now)[0]; s.Result != "failed of late" {
		t.Errorf("after a failure: %+v", s)
	}
}

// TestRefusals: a request refused because of its content is not offered to remote clusters. A dry
// run has no side effects.
func TestRefusals(t *testing.T) {
	for reason, goes := range map[request.Reason]bool{
		request.ReasonBadRequest: false, request.ReasonNotHeld: false, request.ReasonCancelled: false,
		request.ReasonSaturated: true, request.ReasonModelNotFound: true, request.ReasonNoEndpoints: true,
	} {
		w := newWorld(t, nil, other("b", nil))
		c := cycle.New(cycle.Options{Pool: w.pool, Now: t0, Seed: 1}, prompt(500, "r"))
		err := w.fleet.Offer(c, request.Errorf(reason, "refused"))
		if gone := err == nil && c.Best() >= 0; gone != goes {
			t.Errorf("%s: goes %t (%v), want %t", reason, gone, err, goes)
		}
		c.Free()
	}
	w := newWorld(t, nil, other("b", nil))
	for _, n := range []int64{0, 10} {
		w.busy(n)
		if _, err := w.s.Explain(context.Background(), prompt(500, "dry")); err != nil {
			t.Fatal(err)
		}
	}
	if w.stayed != 0 || w.fleet.Status(w.now)[0].Sending || w.fleet.counts.sent.Load() != 0 {
		t.Errorf("a dry run left %d prompts, %+v", w.stayed, w.fleet.Status(w.now))
	}
}

// TestWholeAnswersAreLate checks that answers whose first token is not observed show a late cluster,
// and that decoding by up to a quarter slower than predicted does not.
func TestWholeAnswersAreLate(t *testing.T) {
	sent := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		took time.Duration
		late bool
	}{{1300 * time.Millisecond, false}, {4 * time.Second, true}} {
		a := account{}
		for i := range 10 {
			at := sent.Add(time.Duration(i) * 5 * time.Second)
			a.ended(&picker.RemoteOutcome{
				Sent: at, At: at.Add(c.took), Complete: true, Cached: -1, Decode: 1, Predicted: cycle.Prediction{Own: .05},
			}, .01)
		}
		if late := a.lateNow(sent.Add(50 * time.Second)); (late > 1) != c.late {
			t.Errorf("answers of %v: cluster is %.2f s late, want late: %v", c.took, late, c.late)
		}
	}
}
