package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// beatsOf counts the heartbeats that a core is sent by each other in a time.
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

// TestBeatsKeepAway: who says something to everybody anyway leaves out heartbeats, but not
// two in a row.
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

// TestManyPeers: among many, heartbeats come less often, silence is noticed later by as
// much, and nobody is taken for silent.
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
		t.Errorf("%d heartbeats in 5 s among 21, not one every 500 ms", n)
	}
	tb.hold = func(from, _ string, _ []byte) bool { return from == "m20" }
	tb.run(1400 * time.Millisecond)
	if n := lost(); n != 0 {
		t.Errorf("%d times somebody was lost that had not missed three heartbeats", n)
	}
	tb.run(700 * time.Millisecond)
	if n := lost(); n != 20 {
		t.Errorf("%d of 20 noticed within 2.1 s who was silent", n)
	}
}

// TestManyWithOlder: members of versions before expect heartbeats as often as in a small group.
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
		t.Errorf("%d heartbeats in 2 s to one of a version before", n)
	}
}

// TestStatedPeriod: what a peer says of its heartbeats is believed within bounds.
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
		t.Error("not believed at all")
	}
	tb.run(300 * time.Millisecond)
	if tb.get("a").Peers()[0].Up {
		t.Error("silent for more than 3 s, and up")
	}
}
