package endpoint

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"
)

func placed(t *testing.T, racks ...string) []*Endpoint {
	t.Helper()
	p := NewPool(PoolOptions{})
	var specs []Spec
	for i, rack := range racks {
		specs = append(specs, Spec{
			Name: fmt.Sprint(i), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000),
			Labels: map[string]string{Levels[LevelRack].Label: rack},
		})
	}
	p.Set(specs)
	return p.Snapshot().Endpoints
}

// TestTransfers checks that measurements replace the model, per level and per pair.
func TestTransfers(t *testing.T) {
	eps := placed(t, "a", "a", "b", "a")
	var tr Transfers
	m := &DefaultTransfer
	if got, want := tr.Seconds(m, eps[0], eps[1], 10_000), m.Seconds(LevelRack, 10_000); got != want || tr.Seconds(m, eps[0], eps[0], 10_000) != 0 {
		t.Fatalf("at first %v, want %v", got, want)
	}
	for range 60 {
		for _, tokens := range []int{1000, 20_000} {
			tr.Learn(eps[0], eps[1], tokens, .05+20e-6*float64(tokens), 1)
		}
	}
	if got := tr.Seconds(m, eps[0], eps[1], 10_000); math.Abs(got-.25) > .05 {
		t.Errorf("after measurements %v, want about 0.25", got)
	}
	if got := tr.Seconds(m, eps[1], eps[3], 10_000); math.Abs(got-.25) > .07 {
		t.Errorf("another pair of the level: %v", got)
	}
	if got, want := tr.Seconds(m, eps[0], eps[2], 10_000), m.Seconds(LevelElsewhere, 10_000); got != want {
		t.Errorf("another level: %v, want %v", got, want)
	}
	for range 60 {
		tr.Learn(eps[0], eps[3], 10_000, 1, 1)
		tr.Learn(eps[0], eps[1], 10_000, .25, 1)
	}
	if slow, usual := tr.Seconds(m, eps[0], eps[3], 10_000), tr.Seconds(m, eps[0], eps[1], 10_000); slow < 2*usual {
		t.Errorf("a slow pair takes %v, the other %v", slow, usual)
	}
	before := tr.Seconds(m, eps[0], eps[1], 10_000)
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1} {
		tr.Learn(eps[0], eps[1], 10_000, bad, 1)
	}
	if got := tr.Seconds(m, eps[0], eps[1], 10_000); got != before {
		t.Errorf("nonsense changes %v to %v", before, got)
	}
}

// TestFedTicket checks that a request with a remote prefill has a permit and no wait.
func TestFedTicket(t *testing.T) {
	p := NewPool(PoolOptions{})
	p.Set([]Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	ep, now := p.Snapshot().Endpoints[0], time.Unix(1_700_000_000, 0)
	ticket := &Ticket{RemotePrefill: true}
	p.LoadTracker().Open(ticket, ep, Work{Input: 1000, New: 1}, now)
	if l := p.LoadTracker().Local(ep, now); l.Requests != 1 || l.Waiting != 0 || l.Prefill != 0 || l.Pairs != 0 || l.Tokens != 1000 {
		t.Errorf("placed: %+v", l)
	}
	if w := ep.Cost().Wait(&Load{Requests: 1, Tokens: 1000}, now); w != 0 {
		t.Errorf("the next one waits %v", w)
	}
	ticket.FirstToken(now)
	ticket.Generated(5)
	if l := p.LoadTracker().Local(ep, now); l.Waiting != 0 || l.Context != 1005 {
		t.Errorf("decoding: %+v", l)
	}
	ticket.Release()
	l := p.LoadTracker().Local(ep, now)
	if l.Requests+l.Waiting+l.Prefill+l.Tokens+l.Context+int64(l.Pairs) != 0 {
		t.Errorf("ended: %+v", l)
	}
}
