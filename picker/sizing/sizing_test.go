package sizing

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

var usual = Target{Part: .9, Seconds: 2}

// sample returns requests whose prefills differ like those of chats.
func sample() []Request {
	g := rand.New(rand.NewPCG(1, 2))
	out := make([]Request, 400)
	for i := range out {
		n := int32(min(math.Exp(7.8+1.1*g.NormFloat64()), 30_000))
		out[i] = Request{Input: n + 2000, New: n, Output: 300}
	}
	return out
}

func ranks(n int, slower float64) []endpoint.Cost {
	c := endpoint.PriorCost
	c.Base, c.PerToken, c.PerPair = c.Base*slower, c.PerToken*slower, c.PerPair*slower
	c.Step, c.PerSeq, c.PerContext = c.Step*slower, c.PerSeq*slower, c.PerContext*slower
	out := make([]endpoint.Cost, n)
	for i := range out {
		out[i] = c
	}
	return out
}

func demandOf(rate float64, ranks []endpoint.Cost) *Demand {
	return &Demand{Rate: rate, Requests: sample(), Ranks: ranks, Endpoints: len(ranks)}
}

// TestWanted checks how the number follows the load, the target and the endpoints.
func TestWanted(t *testing.T) {
	n := demandOf(20, ranks(8, 1)).Wanted(usual, 1000)
	if n < 4 || n > 20 {
		t.Fatalf("Wanted() = %d", n)
	}
	if twice := demandOf(40, ranks(8, 1)).Wanted(usual, 1000); twice <= n || twice > 2*n {
		t.Errorf("twice the load: %d endpoints, %d for the load itself", twice, n)
	}
	if early := demandOf(20, ranks(8, 1)).Wanted(Target{.9, .8}, 1000); early <= n {
		t.Errorf("an earlier target: %d endpoints, want more than %d", early, n)
	}
	if slow := demandOf(20, ranks(8, 2)).Wanted(usual, 1000); slow < 2*n {
		t.Errorf("endpoints of half the speed: %d, want at least twice %d", slow, n)
	}
	mixed := demandOf(20, append(ranks(4, 1), ranks(4, 4)...)).Wanted(usual, 1000)
	if want := float64(n) / .625; math.Abs(float64(mixed)-want) > .2*want {
		t.Errorf("endpoints of a mean speed of 0.625: %d, want about %.1f", mixed, want)
	}
	ranked := demandOf(20, ranks(8, 1))
	ranked.Endpoints = 4
	if got := ranked.Wanted(usual, 1000); got != (n+1)/2 {
		t.Errorf("endpoints of two ranks: %d, want half of %d", got, n)
	}
	tight := demandOf(20, ranks(8, 1))
	tight.Memory = 8000
	if got := tight.Wanted(usual, 1000); got <= n {
		t.Errorf("little memory: %d endpoints, want more than %d", got, n)
	}
	if got := demandOf(20, ranks(8, 1)).Wanted(Target{.9, .05}, 1000); got >= 100 {
		t.Errorf("a target that prefills alone exceed: %d endpoints, want a number at which waits are short", got)
	}
	if got := demandOf(1e6, ranks(8, 1)).Wanted(usual, 1000); got != 1000 {
		t.Errorf("more load than the maximum serves: %d endpoints, want 1000", got)
	}
}

func TestParseTarget(t *testing.T) {
	var target Target
	if err := target.Set("p99.5=1.5s"); err != nil || math.Abs(target.Part-.995) > 1e-9 || target.String() != "p99.5=1.5s" {
		t.Errorf("Set() = %v: %s", err, &target)
	}
	if err := target.Set("none"); err != nil || target != (Target{}) || target.String() != "none" {
		t.Errorf("Set(none) = %v: %s", err, &target)
	}
	for _, s := range []string{"", "2s", "p9=2s", "p90=0s", "p90=x", "p99.99=1s"} {
		if err := target.Set(s); err == nil {
			t.Errorf("Set(%q) succeeded", s)
		}
	}
}

// rig is a pool with a meter in virtual time.
type rig struct {
	pool  *endpoint.Pool
	meter *Meter
	now   time.Time
	next  int
	work  []Request
}

func newRig(endpoints int, label string) *rig {
	r := &rig{now: time.Unix(1_700_000_000, 0), work: sample()}
	r.pool = endpoint.NewPool(endpoint.PoolOptions{Now: r.clock})
	var specs []endpoint.Spec
	for i := range endpoints {
		specs = append(specs, endpoint.Spec{Name: "e", Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000), Labels: map[string]string{"llm-d.ai/role": label}})
	}
	r.pool.Set(specs)
	r.meter = NewMeter(r.pool, usual, r.clock)
	return r
}

func (r *rig) clock() time.Time { return r.now }

// play dispatches requests at a rate, and reads the metric every five seconds.
func (r *rig) play(rate float64, d time.Duration) (low, high int) {
	low = math.MaxInt
	for end := r.now.Add(d); r.now.Before(end); {
		for range int(5 * rate) {
			ep := r.pool.Snapshot().Endpoints[r.next%len(r.pool.Snapshot().Endpoints)]
			q := r.work[r.next%len(r.work)]
			r.next++
			r.now = r.now.Add(time.Duration(5e9 / float64(int(5*rate))))
			var ticket endpoint.Ticket
			r.pool.LoadTracker().Open(&ticket, ep, endpoint.Work{Input: int(q.Input), New: int(q.New)}, r.now)
			ticket.FirstToken(r.now)
			ticket.Release()
			r.meter.Ended(ep, q, r.now)
		}
		n, ok := r.meter.Wanted("")
		if ok {
			low, high = min(low, n), max(high, n)
		}
	}
	return low, high
}

// TestMeter: the number follows a doubled load within minutes, and not a burst of seconds. It does
// not change while the load is constant.
func TestMeter(t *testing.T) {
	r := newRig(8, "")
	r.play(20, 15*time.Minute)
	low, high := r.play(20, 5*time.Minute)
	if low != high || low < 4 {
		t.Fatalf("constant load: %d to %d endpoints", low, high)
	}
	was := high
	r.play(60, 5*time.Second)
	if _, high = r.play(20, 5*time.Minute); high > was {
		t.Errorf("after a burst of 5 s: %d endpoints, %d before", high, was)
	}
	r.play(40, 4*time.Minute)
	if low, _ = r.play(40, 10*time.Second); float64(low) < 1.5*float64(was) {
		t.Errorf("four minutes after the load doubled: %d endpoints, %d before", low, was)
	}
	r.play(20, 20*time.Minute)
	if low, high = r.play(20, time.Minute); high > was+2 || low != high {
		t.Errorf("20 minutes after the load fell: %d to %d endpoints, %d before", low, high, was)
	}
}

// TestMeterIsSteady: a load that alternates by 4% changes the number at most once.
func TestMeterIsSteady(t *testing.T) {
	for _, rate := range []float64{20, 22, 24, 26, 28, 30, 32, 34} {
		r := newRig(8, "")
		r.play(rate, 20*time.Minute)
		was, changes := 0, 0
		for range 4 {
			for _, now := range []float64{rate, .96 * rate} {
				r.play(now, 14*time.Minute)
				if _, n := r.play(now, time.Minute); n != was {
					was, changes = n, changes+1
				}
			}
		}
		if changes > 2 { // the first reading is one
			t.Errorf("%g requests per second: %d changes", rate, changes)
		}
	}
}

// TestUnknown: the metric is absent without evidence, without endpoints, and with prefill endpoints.
func TestUnknown(t *testing.T) {
	r := newRig(4, "")
	if n := testutil.CollectAndCount(r.meter); n != 0 {
		t.Errorf("%d series before any request", n)
	}
	r.play(5, 5*time.Second)
	if n, ok := r.meter.Wanted(""); ok {
		t.Errorf("Wanted() = %d after 25 requests", n)
	}
	r.play(5, time.Minute)
	if n := testutil.CollectAndCount(r.meter); n != 1 {
		t.Errorf("%d series after a minute", n)
	}
	r.now = r.now.Add(sampleAge + time.Second)
	if n := testutil.CollectAndCount(r.meter); n != 0 {
		t.Errorf("%d series after ten minutes without requests", n)
	}
	r.play(5, time.Minute)
	r.pool.Set(nil)
	r.now = r.now.Add(readEvery)
	if n := testutil.CollectAndCount(r.meter); n != 0 {
		t.Errorf("%d series of an empty pool", n)
	}
	r = newRig(4, "prefill")
	r.play(5, 2*time.Minute)
	if n, ok := r.meter.Wanted(""); ok {
		t.Errorf("Wanted() = %d of prefill endpoints", n)
	}
}

func TestMetricIsExplained(t *testing.T) {
	r := newRig(4, "")
	r.play(5, time.Minute)
	problems, err := testutil.CollectAndLint(r.meter)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
