package endpoint

import (
	"net/netip"
	"testing"
	"time"
)

// TestUnseenUnasked checks that observed first tokens of requested bodies do not affect the score
// of others. While an engine is learned, all bodies are requested; afterwards one in twenty is.
func TestUnseenUnasked(t *testing.T) {
	pool := NewPool(PoolOptions{})
	pool.Set([]Spec{{Name: "e", Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	ep, now := pool.Snapshot().Endpoints[0], time.Unix(1e9, 0)
	var u Unseen
	waiting := func(streamed, asked bool) bool {
		var ticket Ticket
		pool.LoadTracker().Open(&ticket, ep, Work{Input: 100, New: 100}, now)
		defer ticket.Release()
		u.Watch(&ticket, streamed, asked, now.Add(time.Second))
		now = now.Add(2 * time.Second)
		u.Expire(now)
		return pool.LoadTracker().Local(ep, now).Waiting > 0
	}
	f := func(when string, streamed, asked, want bool) {
		t.Helper()
		if got := waiting(streamed, asked); got != want {
			t.Errorf("%s, streamed %v, asked for %v: waited for %v", when, streamed, asked, got)
		}
	}
	for _, asked := range []bool{true, false} {
		f("at first", true, asked, asked)
		f("at first", false, asked, false)
	}
	for range unseenLimit {
		u.ObserveFirstToken(true)
	}
	f("seen where asked for", true, false, false)
	f("seen where asked for", true, true, true)
	for range unseenFrom + 1 { // a proxy that sends all bodies
		u.ObserveFirstToken(false)
	}
	f("seen always", true, false, true)
	for range unseenLimit + unseenFrom {
		u.Ended(true, false)
	}
	f("no longer", true, true, false)
}
