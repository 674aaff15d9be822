package server

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// rolePool returns a pool with one endpoint for each role.
func rolePool(roles ...string) (*endpoint.Pool, []*endpoint.Endpoint) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	var specs []endpoint.Spec
	for i, role := range roles {
		specs = append(specs, endpoint.Spec{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000), Labels: map[string]string{endpoint.LabelRole: role},
		})
	}
	pool.Set(specs)
	return pool, pool.Snapshot().Endpoints
}

// TestProblemsOfRoles: each problem of a pool's roles is found, with the endpoints concerned.
func TestProblemsOfRoles(t *testing.T) {
	for _, c := range []struct {
		roles []string
		sizes []int // block sizes by endpoint
		want  problems.Code
		count int
		text  string
	}{
		{[]string{"prefill", "decode"}, []int{16, 16}, "", 0, ""},
		{[]string{"prefill", "decode"}, []int{0, 16}, "", 0, ""}, // unknown is no difference
		{[]string{"decode", "decode"}, nil, problems.NoPrefill, 1, "2 have the label llm-d.ai/role=decode"},
		{[]string{"both", "decode"}, nil, "", 0, ""},
		{[]string{"prefill", "decode", "decode"}, []int{16, 32, 16}, problems.PairDiffers, 1, "10.0.0.0:8000 and 10.0.0.1:8000: blocks of 16 and 32 tokens"},
	} {
		pool, eps := rolePool(c.roles...)
		for i, size := range c.sizes {
			eps[i].SetGauges(endpoint.Gauges{At: monotime.Now(), BlockSize: size})
		}
		var l problems.List
		findPairProblems(&l, &Status{PD: pdStatus(pool, picker.SplitCounts{})}, &symptoms{noPrefill: noPrefill(eps), differences: differences(eps, noVersion)})
		got := l.Found()
		if c.want == "" {
			if len(got) > 0 {
				t.Errorf("roles %q, blocks %v: %+v, want no problem", c.roles, c.sizes, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Code != c.want || got[0].Count != c.count || !strings.Contains(got[0].Summary(), c.text) {
			t.Errorf("roles %q: %+v, want %d × %s with %q", c.roles, got, c.count, c.want, c.text)
		}
	}
}

// TestPairsInStatus: status has the state of each pair, those that are off first, at each moment of a
// failure and of its end.
func TestPairsInStatus(t *testing.T) {
	pool, eps := rolePool("prefill", "prefill", "decode")
	good, bad, decode := eps[0], eps[1], eps[2]
	learn := func(from *endpoint.Endpoint, o endpoint.SplitOutcome, n int) {
		for range n {
			pool.Splits().Learn(from, decode, o)
		}
	}
	look := func(when, want string) {
		t.Helper()
		var b strings.Builder
		for _, p := range pdStatus(pool, picker.SplitCounts{}).Pairs {
			fmt.Fprintf(&b, "%s %s %d/%d; ", strings.TrimSuffix(p.Prefill, ":8000"), p.State, p.Failed, p.Worked+p.Failed)
		}
		if got := strings.TrimSuffix(b.String(), "; "); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	look("before the first split", "")
	learn(good, endpoint.SplitOutcome{}, 9)
	learn(bad, endpoint.SplitOutcome{Fault: endpoint.PairTransfer}, 2)
	look("after two failures", "10.0.0.0 works 0/9; 10.0.0.1 works 2/2")
	learn(bad, endpoint.SplitOutcome{Fault: endpoint.PairTransfer}, 1)
	look("after three failures", "10.0.0.1 transfer_failed 3/3; 10.0.0.0 works 0/9")
	learn(bad, endpoint.SplitOutcome{}, 1)
	look("after a trial that worked", "10.0.0.0 works 0/9; 10.0.0.1 works 3/4")
	learn(good, endpoint.SplitOutcome{Compared: true, Whole: 1, Gained: -1}, 6)
	look("while first tokens are late", "10.0.0.0 slower 0/15; 10.0.0.1 works 3/4")
	learn(good, endpoint.SplitOutcome{Compared: true, Whole: 1, Gained: 1}, 2)
	look("when they are early again", "10.0.0.0 works 0/17; 10.0.0.1 works 3/4")
	if n, err := testutil.GatherAndCount(registryOf(pool), "grapevine_pd_pairs"); err != nil || n != int(endpoint.NumPairFaults) {
		t.Errorf("%d series of grapevine_pd_pairs (%v), want one for each state", n, err)
	}
	plain := endpoint.NewPool(endpoint.PoolOptions{})
	plain.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	if st := pdStatus(plain, picker.SplitCounts{}); st != nil {
		t.Errorf("pool without roles: %+v, want no section", st)
	}
}

func registryOf(pool *endpoint.Pool) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newPDCollector(pool))
	return reg
}

// noVersion is the version of engines that report none.
func noVersion(block.EndpointID) string { return "" }
