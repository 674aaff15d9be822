package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// beatsOf counts the heartbeats that a core receives from each peer within d.
func beatsOf(tb *table, to string, d time.Duration) map[string]int {
	n := map[string]int{}
	tb.hold = func(from, who string, f []byte) bool {
		if who == to && f[2] == group.KindBeat {
			n[from]++
		}
		return false
	}
	tb.run(d)
	tb.hold = nil
	return n
}

// TestBeatsKeepAway: a member that sends to all peers anyway skips heartbeats, but never two in a
// row.
func TestBeatsKeepAway(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.run(time.Second)
	if n := beatsOf(tb, "b", 4*time.Second)["a"]; n != 20 {
		t.Errorf("%d heartbeats in 4 s of silence", n)
	}
	n, last := 0, tb.now
	tb.hold = func(from, _ string, f []byte) bool {
		if from == "a" && f[2] == group.KindBeat {
			if n++; tb.now-last > 400*time.Millisecond {
				t.Errorf("%v without a heartbeat", tb.now-last)
			}
			last = tb.now
		}
		return false
	}
	for i := range 40 {
		_ = tb.get("a").gauge.Set("k", fmt.Appendf(nil, "%d", i))
		tb.run(100 * time.Millisecond)
	}
	if n < 9 || n > 11 {
		t.Errorf("%d heartbeats in 4 s with something to say", n)
	}
}

// TestManyPeers: in a large group heartbeats are rarer, silence is detected later by the same
// factor, and no live member counts as silent.
func TestManyPeers(t *testing.T) {
	var ids []string
	for i := range 21 {
		ids = append(ids, fmt.Sprintf("m%02d", i))
	}
	tb := newTable(t, partitioned, ids...)
	tb.run(2 * time.Second)
	lost := func() (n uint64) {
		for _, c := range tb.cores {
			n += c.Stats().PeersLost
		}
		return n
	}
	if n := beatsOf(tb, "m00", 5*time.Second)["m01"]; n != 10 {
		t.Errorf("%d heartbeats in 5 s among 21, want one every 500 ms", n)
	}
	tb.hold = func(from, _ string, _ []byte) bool { return from == "m20" }
	tb.run(1400 * time.Millisecond)
	if n := lost(); n != 0 {
		t.Errorf("%d peers were lost before they missed three heartbeats", n)
	}
	for id, c := range tb.cores {
		for _, p := range c.peers {
			if p.Quiet {
				t.Errorf("%v counts %s as silent before it missed three heartbeats", id, p.ID)
			}
		}
	}
	tb.run(700 * time.Millisecond)
	if n := lost(); n != 20 {
		t.Errorf("%d of 20 detected the silent member within 2.1 s", n)
	}
}

// TestManyWithOlder: older members expect the heartbeat period of a small group.
func TestManyWithOlder(t *testing.T) {
	var ids []string
	for i := range 21 {
		ids = append(ids, fmt.Sprintf("m%02d", i))
	}
	tb := newTable(t, partitioned, ids...)
	older := func(f []byte) { f[1] = group.MinorChecks - 1 }
	n := 0
	tb.hold = func(from, to string, f []byte) bool {
		if from == "m20" {
			older(f)
		}
		if to == "m20" && from == "m00" && f[2] == group.KindBeat {
			n++
		}
		return false
	}
	tb.run(2 * time.Second)
	n = 0
	tb.run(2 * time.Second)
	if n != 10 {
		t.Errorf("%d heartbeats in 2 s to an older member", n)
	}
}

// TestStatedPeriod: the period in a peer's heartbeats is used, within bounds.
func TestStatedPeriod(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.run(time.Second)
	tb.hold = func(from, _ string, f []byte) bool {
		var m group.Beat
		if from == "b" && f[2] == group.KindBeat && m.Decode(group.Body(f)) == nil {
			m.Every = 1 << 60
			tb.get("a").Receive("b", frameOf(group.KindBeat, 2, m.Append(nil)))
		}
		return from == "b"
	}
	tb.run(time.Second)
	tb.hold = func(from, _ string, _ []byte) bool { return from == "b" }
	tb.run(2900 * time.Millisecond)
	if !tb.get("a").Peers()[0].Up {
		t.Error("stated period was ignored")
	}
	tb.run(300 * time.Millisecond)
	if tb.get("a").Peers()[0].Up {
		t.Error("peer is still up after more than 3 s of silence")
	}
}
