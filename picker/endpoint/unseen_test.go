package endpoint

import (
	"net/netip"
	"testing"
	"time"
)

// TestUnseenUnasked: first tokens that are seen where bodies are asked for say nothing of
// those of others. While an engine was looked at, all were; afterwards one in twenty is.
func TestUnseenUnasked(t *testing.T) {
	pool := NewPool(PoolOptions{})
	pool.Set([]Spec{{Name: "e", Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	ep, now := pool.Snapshot().Endpoints[0], time.Unix(1e9, 0)
	var u Unseen
	waiting := func(streamed, asked bool) bool {
		var ticket Ticket
		pool.Book().Open(&ticket, ep, Work{Input: 100, New: 100}, now)
		defer ticket.Release()
		u.Watch(&ticket, streamed, asked, now.Add(time.Second))
		now = now.Add(2 * time.Second)
		u.Expire(now)
		return pool.Book().Local(ep, now).Waiting > 0
	}
	if !waiting(true, false) || !waiting(true, true) || waiting(false, false) {
		t.Error("before anything is known streamed answers alone are waited for")
	}
	for range unseenLimit {
		u.Saw(true)
	}
	for range unseenFrom {
		u.Ended(false, false)
	}
	if waiting(true, false) {
		t.Error("a first token that nobody sees is waited for")
	}
	if !waiting(true, true) {
		t.Error("one that is seen is not")
	}
}
