package server

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
)

// TestLendCosts: an endpoint that nobody has used is taken for one like its
// neighbours, and what it shows of itself counts more.
func TestLendCosts(t *testing.T) {
	pool := picker.NewPool(picker.PoolOptions{})
	var specs []picker.EndpointSpec
	for i, model := range []string{"a", "a", "b"} {
		specs = append(specs, picker.EndpointSpec{
			Addr: netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", 8000+i)), Name: fmt.Sprint(i), Models: []string{model},
		})
	}
	pool.Set(specs)
	eps := pool.Snapshot().Endpoints
	learn := func(ep *picker.Endpoint, ttft time.Duration) {
		for range 50 {
			ep.ObservePrefill(&picker.Queued{Own: picker.Work{Input: 4000, New: 4000}, At: time.Unix(1, 0)}, ttft)
		}
	}
	work := picker.Work{Input: 4000, New: 4000}
	learn(eps[0], 10*time.Millisecond)
	known, before := eps[0].Cost().Prefill(work), eps[2].Cost().Prefill(work)
	if known > before/4 {
		t.Fatalf("learned %v s of a prefill of 10 ms", known)
	}
	lendCosts(eps)
	if got := eps[1].Cost().Prefill(work); got != known {
		t.Errorf("prefill at the endpoint without requests %v s, its neighbour's %v s", got, known)
	}
	if got := eps[2].Cost().Prefill(work); got != before {
		t.Errorf("prefill of another model %v s, want the prior's %v s", got, before)
	}
	learn(eps[1], time.Second)
	own := eps[1].Cost().Prefill(work)
	lendCosts(eps)
	if got := eps[1].Cost().Prefill(work); got != own || got < 2*known {
		t.Errorf("prefill %v s after own samples, %v s before lending again", got, own)
	}
}
