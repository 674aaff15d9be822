package monitor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// rig has several replicas that watch the same endpoints in virtual time.
type rig struct {
	t        *testing.T
	now      time.Time
	replicas []*rigReplica
	cut      bool
}

type rigReplica struct {
	*Monitor
	pool *endpoint.Pool
	reg  *prometheus.Registry
}

func newRig(t *testing.T, replicas, endpoints int, more ...func(replica int, o *Options)) *rig {
	r := &rig{t: t, now: time.Unix(1000, 0)}
	clock := func() time.Time { return r.now }
	names := []string{"a", "b", "c"}[:replicas]
	for i, name := range names {
		p := &rigReplica{pool: endpoint.NewPool(endpoint.PoolOptions{Now: clock}), reg: prometheus.NewRegistry()}
		var err error
		o := Options{
			Pool: p.pool, Now: clock, Registerer: p.reg,
			Publish: func(address string, value []byte) error {
				for k, o := range r.replicas {
					if k != i && !r.cut {
						if err := o.Merge(name, 1, address, value); err != nil {
							t.Error(err)
						}
					}
				}
				return nil
			},
		}
		for _, f := range more {
			f(i, &o)
		}
		p.Monitor, err = New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		r.replicas = append(r.replicas, p)
	}
	var specs []endpoint.Spec
	for i := range endpoints {
		specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(8000+i))})
	}
	for _, p := range r.replicas {
		p.pool.Set(specs)
	}
	return r
}

// pass advances the time. In each tick, every replica reads all pages for which dead returns false,
// and calls do.
func (r *rig) pass(d time.Duration, dead func(replica, endpoint int) bool, do func(replica int, ep *endpoint.Endpoint)) {
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(tickEvery)
		for i, p := range r.replicas {
			for k, ep := range p.pool.Snapshot().Endpoints {
				if dead != nil && dead(i, k) {
					p.Read(ep, scrape.Reading{At: r.now, Refused: true})
				} else {
					p.Read(ep, scrape.Reading{At: r.now, Answered: true, Page: &scrape.Page{}})
				}
				if do != nil {
					do(i, ep)
				}
			}
			p.Tick()
			p.wg.Wait() // for probes
		}
	}
}

func (r *rig) states(endpoint int) (out []string) {
	for _, p := range r.replicas {
		ep := p.pool.Snapshot().Endpoints[endpoint]
		out = append(out, p.pool.Health().View(int(ep.ID)).State.String())
	}
	return out
}

// TestSharing: all replicas detect a fault of which each sees only a third.
func TestSharing(t *testing.T) {
	r := newRig(t, 3, 4)
	r.pass(2*time.Second, nil, nil)
	var w health.Watch
	for i, p := range r.replicas { // two failures each: not enough for one alone
		ep := p.pool.Snapshot().Endpoints[1]
		for range 2 {
			ep.Tracker().Begin(&w, r.now, r.now.Add(time.Second))
			w.End(r.now, health.Failed)
		}
		r.pass(tickEvery, nil, nil)
		_ = i
	}
	r.pass(500*time.Millisecond, nil, nil)
	if got := r.states(1); !cmp.Equal(got, []string{"out", "out", "out"}) {
		t.Errorf("two failures at each of three replicas: %v", got)
	}
	if got := r.states(0); !cmp.Equal(got, []string{"healthy", "healthy", "healthy"}) {
		t.Errorf("an endpoint without failures: %v", got)
	}
	if !r.replicas[0].pool.Snapshot().Endpoints[1].Down() {
		t.Error("decisions do not use it")
	}
}

// TestEvidenceBeforeEndpoint: if evidence about an endpoint arrives at a replica before its list
// contains the endpoint, the counts still start there.
func TestEvidenceBeforeEndpoint(t *testing.T) {
	r := newRig(t, 2, 2)
	specs := func(n int) (out []endpoint.Spec) {
		for i := range n {
			out = append(out, endpoint.Spec{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(8000+i))})
		}
		return out
	}
	late := r.replicas[1].pool
	late.Set(specs(1))
	r.pass(2*time.Second, nil, nil)
	r.replicas[0].pool.Set(specs(1))
	r.replicas[0].pool.Set(specs(2)) // sent again, to a replica that does not list the endpoint
	r.pass(2*time.Second, nil, nil)
	late.Set(specs(2))
	var w health.Watch
	for range 8 {
		r.replicas[0].pool.Snapshot().Endpoints[1].Tracker().Begin(&w, r.now, r.now.Add(time.Second))
		w.End(r.now, health.Failed)
	}
	r.pass(500*time.Millisecond, nil, nil)
	if got := r.states(1); !cmp.Equal(got, []string{"out", "out"}) {
		t.Errorf("eight failures at one replica: %v", got)
	}
	r.replicas[1].Drop("a")
	r.replicas[1].Tick()
	if n := len(r.replicas[1].reports); n != 0 {
		t.Errorf("%d endpoints are remembered of a replica that is gone", n)
	}
}

// TestWordsDoNotWait: evidence from other replicas is queued while a step runs, and read in order
// by the next one, so that it does not delay the group's heartbeats. Hundreds of page readings and
// probes do not wait either. A step reads the complete queue.
func TestWordsDoNotWait(t *testing.T) {
	r := newRig(t, 2, 1)
	m, e := r.replicas[1].Monitor, health.Evidence{InFlight: 1}
	address := m.opts.Pool.Snapshot().Endpoints[0].Address
	word := appendEvidence(nil, &e, nil, nil)
	m.mu.Lock()
	for range 10 {
		if err := m.Merge("x", 1, address, word); err != nil {
			t.Fatal(err)
		}
	}
	m.Drop("x")
	if err := m.Merge("y", 1, address, word); err != nil {
		t.Fatal(err)
	}
	ep := m.opts.Pool.Snapshot().Endpoints[0]
	s := m.sights[address]
	m.opts.Probe = func(context.Context, *endpoint.Endpoint) Result { return Denied }
	denied := s.denied
	m.Read(ep, scrape.Reading{At: r.now, Refused: true})
	m.probe(s, ep)
	if s.refused || s.denied != denied {
		t.Error("a reading and a probe change what the step looks at")
	}
	m.mu.Unlock()
	m.Tick()
	if !s.refused || s.denied != denied+1 {
		t.Errorf("refused %v, %d probes denied", s.refused, s.denied-denied)
	}
	if said := m.reports[address]; len(said) != 1 || said["y"].InFlight != 1 {
		t.Errorf("reported: %v", said)
	}
	for range maxInbox {
		if err := m.Merge("y", 1, address, word); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.inbox); n >= maxInbox {
		t.Errorf("%d words wait", n)
	}
}

// TestTakenFromTheList: an engine that dies soon after each start is recognised although its
// endpoint leaves the list in between. Another engine at its address is not taken for it.
func TestTakenFromTheList(t *testing.T) {
	r := newRig(t, 1, 4)
	p := r.replicas[0]
	specs := make([]endpoint.Spec, 4)
	for i, ep := range p.pool.Snapshot().Endpoints {
		specs[i] = ep.Spec
		specs[i].Name = fmt.Sprint("engine-", i)
	}
	sick := func() *endpoint.Endpoint { return p.pool.Snapshot().Endpoints[1] }
	view := func() health.View { return p.pool.Health().View(int(sick().ID)) }
	life := func(n int) {
		specs[1].Instance = fmt.Sprint(n)
		p.pool.Set(specs)
		r.pass(time.Second, nil, nil)
	}
	dies := func() {
		var w health.Watch
		for range 4 {
			sick().Tracker().Begin(&w, r.now, r.now.Add(time.Second))
			w.End(r.now, health.Broken)
		}
		r.pass(200*time.Millisecond, nil, nil)
	}
	p.pool.Set(specs)
	r.pass(2*time.Second, nil, nil)
	for n := range 3 {
		dies()
		if n == 1 { // removed from the list for a while, not only renewed
			p.pool.Set(append(slices.Clone(specs[:1]), specs[2:]...))
			r.pass(3*time.Minute, nil, nil)
		}
		life(n)
		if v := view(); v.State != health.Out || v.Flaps != n {
			t.Fatalf("after start %d: %s, %d returns did not last", n, v.State, v.Flaps)
		}
		r.pass(blind<<n+20*time.Second, nil, nil)
		if v := view(); v.State != health.Healthy {
			t.Fatalf("some time after start %d: %s", n, v.State)
		}
	}
	dies()
	specs[1].Name = "engine-5"
	life(9)
	if v := view(); v.State != health.Healthy || v.Flaps != 0 {
		t.Errorf("another engine at the address: %s, %d returns did not last", v.State, v.Flaps)
	}
}

// blind is the time after which an engine returns if no replica can evaluate its probes.
const blind = 10 * time.Second

// TestPartition: an endpoint that one replica cannot reach stays in use while another replica
// reports it as healthy.
func TestPartition(t *testing.T) {
	r := newRig(t, 3, 4)
	blind := func(replica, endpoint int) bool { return replica == 0 && endpoint == 2 }
	r.pass(2*time.Second, nil, nil)
	r.pass(10*time.Second, blind, nil)
	if got := r.states(2); !cmp.Equal(got, []string{"healthy", "healthy", "healthy"}) {
		t.Errorf("while the others reach it: %v", got)
	}
	r.cut = true
	r.pass(10*time.Second, blind, nil)
	if got := r.states(2); !cmp.Equal(got, []string{"out", "healthy", "healthy"}) {
		t.Errorf("without reports: %v", got)
	}
}

// TestSlowEndsEverywhere: a probe of one replica ends the slow pace that every replica has seen.
func TestSlowEndsEverywhere(t *testing.T) {
	r := newRig(t, 3, 4)
	r.pass(time.Second, nil, nil)
	for _, p := range r.replicas {
		p.sights[p.pool.Snapshot().Endpoints[1].Address].pace.slow = true
	}
	r.pass(time.Second, nil, nil)
	if got := r.states(1); !cmp.Equal(got, []string{"suspect", "suspect", "suspect"}) {
		t.Fatalf("while it is slow: %v", got)
	}
	p := r.replicas[0]
	p.opts.Probe = func(context.Context, *endpoint.Endpoint) Result { return Passed }
	s := p.sights[p.pool.Snapshot().Endpoints[1].Address]
	p.probe(s, s.ep)
	r.pass(2*time.Second, nil, func(replica int, _ *endpoint.Endpoint) { // without further failures
		r.replicas[replica].opts.Probe = nil
	})
	if got := r.states(1); !cmp.Equal(got, []string{"healthy", "healthy", "healthy"}) {
		t.Errorf("after a probe of the first passed: %v", got)
	}
}

// TestPace: an engine that generates far more slowly than before is suspect, unless
// prefills explain it.
func TestPace(t *testing.T) {
	var p pace
	now, tokens := time.Unix(1000, 0), 0.
	see := func(rate float64, busy bool) {
		now = now.Add(time.Second)
		tokens += rate * 4
		p.see(&scrape.Page{Generated: tokens, Gauges: endpoint.Gauges{Values: gauge.Values{Running: 4}}}, now, busy)
	}
	for range 20 {
		see(40, false)
	}
	see(4, true)
	see(4, true)
	if see(4, false); p.slow {
		t.Error("one slow second makes an engine slow")
	}
	if see(4, false); !p.slow {
		t.Error("two slow seconds do not make an engine slow")
	}
	if see(30, false); p.slow {
		t.Error("it stays slow at the usual pace")
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t, 1, 2)
	p := r.replicas[0]
	r.pass(3*time.Second, func(_, endpoint int) bool { return endpoint == 1 }, nil)
	want := `
# HELP grapevine_health_changes_total Changes of endpoints' health, by the new state and its cause.
# TYPE grapevine_health_changes_total counter
grapevine_health_changes_total{cause="refused",state="out"} 1
# HELP grapevine_health_share Share of decisions in which an endpoint may be a candidate, 0 to 1.
# TYPE grapevine_health_share gauge
grapevine_health_share{endpoint="10.0.0.1:8000"} 1
grapevine_health_share{endpoint="10.0.0.1:8001"} 0
# HELP grapevine_health_state 1 for the state that an endpoint is in.
# TYPE grapevine_health_state gauge
grapevine_health_state{cause="none",endpoint="10.0.0.1:8000",state="healthy"} 1
grapevine_health_state{cause="refused",endpoint="10.0.0.1:8001",state="out"} 1
`
	if err := testutil.GatherAndCompare(p.reg, strings.NewReader(want), "grapevine_health_changes_total", "grapevine_health_share", "grapevine_health_state"); err != nil {
		t.Error(err)
	}
	p.pool.Set(nil)
	if n, err := testutil.GatherAndCount(p.reg, "grapevine_health_state"); err != nil || n != 0 {
		t.Errorf("%d series of endpoints that are gone, %v", n, err)
	}
}

// FuzzEvidence: malformed evidence is refused, and encoded evidence decodes to the same.
func FuzzEvidence(f *testing.F) {
	f.Add(appendEvidence(nil, &health.Evidence{Good: 3, Refused: true, Answered: health.Never, Moved: time.Second, Overdue: 2}, nil, nil))
	f.Add(appendEvidence(nil, &health.Evidence{Good: 3}, []health.ModelAvoidance{{Model: 1<<63 | 5, For: 3 * time.Second, Times: 2}}, []health.Suspicion{{Key: 1<<63 | 9, Score: 6.25, Others: 4}}))
	f.Add([]byte{})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		e, found, suspected, err := readEvidence(b)
		if err != nil {
			return
		}
		again, told, doubts, err := readEvidence(appendEvidence(nil, &e, found, suspected))
		if err != nil || !cmp.Equal(again, e) || !slices.Equal(told, found) || !slices.Equal(doubts, suspected) {
			t.Errorf("%+v, %v, want %+v", again, err, e)
		}
	})
}

// TestAllLookCloser: if one replica saw an answer break off, the others watch their answers to the
// end too.
func TestAllLookCloser(t *testing.T) {
	r := newRig(t, 2, 4)
	r.pass(2*time.Second, nil, nil)
	looks := func() (n int) {
		tracker := r.replicas[1].pool.Snapshot().Endpoints[1].Tracker()
		for range 4 {
			if tracker.SampleAnswer(r.now) {
				n++
			}
		}
		return n
	}
	if n := looks(); n != 1 {
		t.Fatalf("%d of 4 answers are seen to their end while all is well, want 1", n)
	}
	var w health.Watch
	r.replicas[0].pool.Snapshot().Endpoints[1].Tracker().Begin(&w, r.now, r.now.Add(time.Second))
	w.End(r.now, health.Cut)
	r.pass(time.Second, nil, nil)
	if n := looks(); n != 4 {
		t.Errorf("%d of 4 answers are seen to their end after another replica saw one break off", n)
	}
}

// TestProbeWithoutRequests: an engine without requests hangs while its page answers. The elected replica
// finds it, and it returns when it answers again. An engine with requests, or with work by its
// page, is not probed.
func TestProbeWithoutRequests(t *testing.T) {
	const idle, hangs, works = 30 * time.Second, 1, 2
	var asked [2][3]int
	sick, arrives, running := true, false, 1
	var r *rig
	r = newRig(t, 2, 3, func(replica int, o *Options) {
		o.Health.Idle = idle
		o.Rank = func(string) int { return replica }
		o.Probe = func(_ context.Context, ep *endpoint.Endpoint) Result {
			asked[replica][ep.ID]++
			if ep.ID == hangs && sick {
				if arrives {
					ep.SetGauges(endpoint.Gauges{At: r.now, Values: gauge.Values{Running: 1}})
				}
				return Hung
			}
			return Passed
		}
	})
	tick := func(_ int, ep *endpoint.Endpoint) {
		g := endpoint.Gauges{At: r.now}
		if ep.ID == works {
			g.Running = running
		}
		ep.SetGauges(g)
	}
	r.pass(idle-time.Second, nil, tick)
	if asked != [2][3]int{} {
		t.Fatalf("asked before it is time: %v", asked)
	}
	r.pass(10*time.Second, nil, tick)
	if got := r.states(hangs); !cmp.Equal(got, []string{"out", "out"}) {
		t.Errorf("ten seconds on, the one that hangs is %v, asked %v times", got, asked)
	}
	for _, id := range []int{0, works} {
		if got := r.states(id); !cmp.Equal(got, []string{"healthy", "healthy"}) {
			t.Errorf("%d is %v", id, got)
		}
	}
	if asked[0][0] != 1 || asked[1][0] != 0 || asked[0][works]+asked[1][works] != 0 {
		t.Errorf("the first is asked once, by the replica elected, and the one at work never: %v", asked)
	}
	sick = false
	r.pass(15*time.Second, nil, tick)
	if got := r.states(hangs); !cmp.Equal(got, []string{"healthy", "healthy"}) {
		t.Errorf("it answers, and is %v", got)
	}

	// A probe that hangs behind a client's long prompt is no evidence.
	sick, arrives, asked = true, true, [2][3]int{}
	r.pass(2*idle, nil, tick)
	if got := r.states(hangs); !cmp.Equal(got, []string{"healthy", "healthy"}) || asked[0][hangs] == 0 {
		t.Errorf("behind a long prompt it is %v, asked %v times", got, asked)
	}
}
