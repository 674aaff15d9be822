package pd

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func judge(tb testing.TB, p predictedParams) plugin.Decider {
	tb.Helper()
	model, err := p.Model()
	if err != nil {
		tb.Fatal(err)
	}
	return (&prices{p, model}).decider()
}

// rig is a handler with one decode endpoint and one or two prefill endpoints, the first of which is bad.
type rig struct {
	pool *endpoint.Pool
	eps  []*endpoint.Endpoint
	h    *Handler
	sent uint64
}

func newRig(t *testing.T, decider plugin.Decider, alone bool) *rig {
	t.Helper()
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	specs := []endpoint.Spec{
		{Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Labels: map[string]string{endpoint.LabelRole: "decode"}},
		{Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
		{Addr: netip.MustParseAddrPort("10.0.0.3:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
	}
	if alone {
		specs = specs[:2]
	}
	pool.Set(specs)
	eps := pool.Snapshot().Endpoints
	pool.LoadTracker().SetRemote(eps[0], endpoint.Load{Requests: 50})
	h, err := New(Options{Decode: profile("decode"), Prefill: profile("prefill"), SplitPrefill: decider})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{pool: pool, eps: eps, h: h}
}

// send places n requests and records the outcome of each split request. It returns the number of
// requests that used the bad prefill endpoint first, and the number of split requests.
func (r *rig) send(t *testing.T, n int, outcome func(bad bool) endpoint.SplitOutcome) (throughBad, split int) {
	t.Helper()
	for range n {
		r.sent++
		c := cycle.New(cycle.Options{Pool: r.pool, Now: t0, Seed: r.sent}, &request.Request{Kind: request.KindChat, InputTokens: 4000})
		plan := &cycle.Plan{}
		if err := r.h.Handle(c, plan); err != nil {
			t.Fatal(err)
		}
		for _, set := range plan.Headers {
			first, _, _ := strings.Cut(set.Value, ",")
			from := r.pool.Snapshot().Lookup(first)
			split++
			if from == r.eps[1] {
				throughBad++
			}
			r.pool.Splits().Learn(from, r.eps[0], outcome(from == r.eps[1]))
		}
		c.Free()
	}
	return throughBad, split
}

// TestUnprofitablePairs checks that a pair without a gain gets at most 2% of the requests from the
// tenth on, alone or next to a good pair. The pair fails every transfer, or is slower than the decode
// endpoint alone. It is used again soon after it gains time.
func TestUnprofitablePairs(t *testing.T) {
	pays := endpoint.SplitOutcome{Compared: true, Whole: 1, Gained: .3}
	spares := endpoint.SplitOutcome{Compared: true, Whole: 1, Gained: -.3, Spared: 1} // later, but the others at decode gain more
	cheap := predictedDefaults()
	cheap.OwnWeight, cheap.TransferSeconds = 0, 0
	for fault, bad := range map[string]endpoint.SplitOutcome{
		"hands nothing over": {Fault: endpoint.PairNothing},
		"dead side channel":  {Fault: endpoint.PairTransfer},
		"slow":               {Compared: true, Whole: 1, Gained: -.5},
	} {
		for name, decider := range map[string]plugin.Decider{"threshold": Missing(500, 0), "always": Always, "price": judge(t, cheap)} {
			for _, alone := range []bool{true, false} {
				r := newRig(t, decider, alone)
				sick := func(isBad bool) endpoint.SplitOutcome {
					if isBad {
						return bad
					}
					return pays
				}
				if _, split := r.send(t, 9, sick); split == 0 {
					t.Fatalf("%s, %s, alone %v: nothing is split", fault, name, alone)
				}
				const n = 1000
				through, split := r.send(t, n, sick)
				if through > n*2/100 || !alone && split < n*98/100 {
					t.Errorf("%s, %s, alone %v: %d of %d requests went through the bad pair, %d were split", fault, name, alone, through, n, split)
				}
				if !alone {
					continue
				}
				well := func(bool) endpoint.SplitOutcome { return spares }
				r.send(t, 3*64, well)
				if through, _ := r.send(t, 100, well); through < 90 {
					t.Errorf("%s, %s: %d of 100 requests are split after the pair pays again", fault, name, through)
				}
			}
		}
	}
}

// TestPairsOfReplicas checks that three replicas together send at most 2% of the requests through a failing
// pair from the tenth on, and three of the first: each uses the failures of all.
func TestPairsOfReplicas(t *testing.T) {
	cheap := predictedDefaults()
	cheap.OwnWeight, cheap.TransferSeconds = 0, 0
	for _, fault := range []endpoint.PairFault{endpoint.PairNothing, endpoint.PairTransfer, endpoint.PairLate} {
		for name, decider := range map[string]plugin.Decider{"threshold": Missing(500, 0), "price": judge(t, cheap)} {
			var replicas []*rig
			for i := range 3 {
				r := newRig(t, decider, false)
				r.pool.Splits().OnOutcome(func(from, to *endpoint.Endpoint, f endpoint.PairFault) {
					for k, other := range replicas {
						if k != i { // all have the same endpoints
							other.pool.Splits().Merge(from, to, f)
						}
					}
				})
				replicas = append(replicas, r)
			}
			outcome := func(bad bool) endpoint.SplitOutcome {
				if bad {
					return endpoint.SplitOutcome{Fault: fault}
				}
				return endpoint.SplitOutcome{Compared: true, Whole: 1, Gained: .3}
			}
			send := func(n int) (through int) {
				for i := range n {
					used, _ := replicas[i%3].send(t, 1, outcome)
					through += used
				}
				return through
			}
			first := send(9)
			const n = 1000
			if through := send(n); first == 0 || first > 3 || through > n*2/100 {
				t.Errorf("%s, %s: %d of the first 9 and %d of the next %d requests went through the bad pair, want 3 and 2%% at most of them", fault, name, first, through, n)
			}
		}
	}
}

// TestUnsurePairs checks a pair that fails every other time. The price decider uses it only if the
// gain is worth the risk. A threshold decider keeps it.
func TestUnsurePairs(t *testing.T) {
	flips := 0
	outcome := func(bool) endpoint.SplitOutcome {
		if flips++; flips%2 == 0 {
			return endpoint.SplitOutcome{Fault: endpoint.PairTransfer}
		}
		return endpoint.SplitOutcome{}
	}
	cheap := predictedDefaults()
	cheap.OwnWeight, cheap.TransferSeconds = 0, 0
	for name, c := range map[string]struct {
		decider plugin.Decider
		most    int
	}{"threshold": {Missing(500, 0), 1000}, "price": {judge(t, cheap), 50}} {
		r := newRig(t, c.decider, true)
		r.pool.LoadTracker().SetRemote(r.eps[0], endpoint.Load{Requests: 5})
		_, first := r.send(t, 1, outcome)
		r.send(t, 9, outcome)
		_, split := r.send(t, 1000, outcome)
		if first == 0 || split > c.most || c.most == 1000 && split < 900 {
			t.Errorf("%s: %d of 1000 requests are split, want at most %d (first %d)", name, split, c.most, first)
		}
	}
}
