package core

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

var smallPages = group.Options{Share: group.SharePartitioned, RingDeltas: 2, PageBytes: 10}

// lacking returns a table in which every member but the last has 50 deltas of s1. The last can only
// get them as a snapshot.
func lacking(t *testing.T, opt group.Options, ids ...string) (tb *table, last *one) {
	t.Helper()
	tb = newTable(t, opt, ids...)
	late := ids[len(ids)-1]
	tb.hold = func(_, to string, f []byte) bool {
		return to == late && (f[2] == group.KindDelta || f[2] == group.KindDigest)
	}
	for s := range uint64(50) {
		tb.appendAt(ids[0], 1, s)
	}
	tb.run(10 * time.Millisecond)
	tb.hold = nil
	return tb, tb.get(late)
}

// runUntil advances the time until ok returns true, for ten seconds at most.
func (tb *table) runUntil(what string, ok func() bool) {
	tb.t.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		tb.run(time.Millisecond)
	}
	tb.t.Fatalf("timed out after ten seconds: %s", what)
}

// expectStages checks how many stages are being built.
func (c *one) expectStages(t *testing.T, n int) {
	t.Helper()
	if c.store.staged != n {
		t.Errorf("%s: %d stages are being built, want %d", c.id, c.store.staged, n)
	}
}

// Pages are requested at the pace at which they are processed. Neither the network nor the loader
// ever holds more than a window of pages, and the content is replaced once, at the end.
func TestPagesAreFlowControlled(t *testing.T) {
	tb, b := lacking(t, smallPages, "a", "b")
	b.slow = true
	asked, answered := 0, 0
	tb.hold = func(_, _ string, f []byte) bool {
		switch f[2] {
		case group.KindPageAsk:
			asked++
		case group.KindPageReply:
			answered++
		}
		return false
	}
	tb.runUntil("pages are asked for", func() bool { return answered > 1 })
	tb.run(2 * time.Second)
	if held := b.MemoryUse().Loads; asked > 20 || held > 16*10 || held == 0 {
		t.Errorf("%d pages requested by a stalled loader, %d bytes held", asked, held)
	}
	b.expect(t, "s1", logs.Position{Inc: 1}, "")
	b.expectStages(t, 1)
	b.slow = false
	tb.runUntil("the snapshot is loaded", func() bool { return b.Stats().SnapshotsLoaded == 1 })
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 50}, content(1, 50))
	b.expectStages(t, 0)
	if n := b.MemoryUse().Loads; n != 0 || asked > 40 {
		t.Errorf("%d pages requested, %d bytes held after the end", asked, n)
	}
}

// If a member dies while its snapshot is half loaded, another member's is loaded.
func TestSenderDiesHalfWay(t *testing.T) {
	tb, c := lacking(t, smallPages, "a", "b", "c")
	from, pages := "", 0
	tb.hold = func(sender, _ string, f []byte) bool {
		if f[2] == group.KindPageReply {
			from = sender
			pages++
		}
		return f[2] == group.KindPageReply && pages > 15
	}
	tb.runUntil("half of it came", func() bool { return pages > 15 })
	c.expectStages(t, 1)
	dead := from
	tb.hold = func(sender, to string, f []byte) bool {
		if f[2] == group.KindPageReply && sender != dead {
			from = sender
		}
		return sender == dead || to == dead
	}
	tb.runUntil("it is loaded from the other", func() bool { return c.Stats().SnapshotsLoaded == 1 })
	if from == dead {
		t.Error("snapshot was requested from only one member")
	}
	c.expect(t, "s1", logs.Position{Inc: 1, Next: 50}, content(1, 50))
	c.expectStages(t, 0)
}

// If an engine restarts or a source is removed while pages are processed, the loaded data is
// discarded when the work ends, and not before.
func TestLoadEndsWhilePagesAreWorkedOff(t *testing.T) {
	for name, end := range map[string]func(tb *table, b *one){
		"engine restarts": func(tb *table, _ *one) { tb.appendAt("a", 2, 0, 1) },
		"source goes":     func(_ *table, b *one) { b.log.SetSources([]string{"s2"}) },
		"sender goes":     func(_ *table, b *one) { b.SetLink("a", false) },
	} {
		t.Run(name, func(t *testing.T) {
			tb, b := lacking(t, smallPages, "a", "b")
			b.slow = true
			tb.runUntil("pages are worked off", func() bool { return len(b.jobs) > 0 && b.store.staged > 0 })
			end(tb, b)
			tb.run(5 * time.Millisecond)
			if b.MemoryUse().Loads != 0 && name != "engine restarts" {
				t.Error("pages are still held")
			}
			b.expectStages(t, 1)
			b.slow = false
			b.work()
			b.SetLink("a", true)
			tb.run(3 * time.Second)
			b.expectStages(t, 0)
			switch name {
			case "engine restarts":
				b.expect(t, "s1", logs.Position{Inc: 2, Next: 2}, content(2, 2))
			case "source goes":
				b.expect(t, "s1", logs.Position{}, "")
			default:
				b.expect(t, "s1", logs.Position{Inc: 1, Next: 50}, content(1, 50))
			}
		})
	}
}

// While a snapshot is being made, its member continues all other work. A member that waits for it
// gets it eventually, even one that reads the answer as a plain refusal. The snapshot is made once.
func TestSnapshotIsMadeAside(t *testing.T) {
	tb, c := lacking(t, smallPages, "a", "c")
	a := tb.get("a")
	a.slow = true
	tb.runUntil("a snapshot is being made", func() bool { return a.store.asked > 0 })
	tb.run(5 * time.Second)
	if err := a.gauge.Set("k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	tb.appendAt("a", 1, 50, 51)
	tb.run(50 * time.Millisecond)
	if got := c.sink.of["a"]["k"]; got != "v" || a.store.asked != 1 {
		t.Errorf("gauge is %q; %d snapshots were started", got, a.store.asked)
	}
	if v, _ := c.log.Source("s1"); v.Knowledge != knowledge.CatchingUp || c.Stats().AskTimeouts > 0 {
		t.Errorf("knowledge is %v, %d requests timed out", v.Knowledge, c.Stats().AskTimeouts)
	}
	a.slow = false
	tb.runUntil("the snapshot is loaded", func() bool { return c.log.Position("s1").Next == 52 })
	c.expect(t, "s1", logs.Position{Inc: 1, Next: 52}, content(1, 52))
	if n := a.store.asked; n != 1 {
		t.Errorf("%d snapshots were made", n)
	}
}

// A member does not wait forever for a snapshot that never completes.
func TestWaitingEnds(t *testing.T) {
	tb, c := lacking(t, smallPages, "a", "b", "c")
	a, b := tb.get("a"), tb.get("b")
	a.slow, b.slow = true, true
	tb.runUntil("both were asked", func() bool {
		tb.run(time.Second)
		return a.store.asked > 0 && b.store.asked > 0
	})
	if v, _ := c.log.Source("s1"); v.Knowledge == knowledge.Exact {
		t.Errorf("knowledge is %v", v.Knowledge)
	}
}

// Deltas that arrived while a snapshot was loading are applied in steps.
func TestManyPendingDeltas(t *testing.T) {
	opt := group.Options{Share: group.SharePartitioned, RingDeltas: 2, PendingBytes: 500 << 10}
	tb, b := lacking(t, opt, "a", "b")
	b.slow = true
	tb.runUntil("the snapshot is worked off", func() bool { return len(b.jobs) > 0 && b.store.staged > 0 })
	a := tb.get("a")
	for s := range uint64(4000) {
		if v := a.log.Append(delta("s1", 1, 50+s)); v != logs.Applied {
			t.Fatal(v)
		}
		if s%500 == 0 {
			tb.run(3 * time.Millisecond)
		}
	}
	tb.run(3 * time.Millisecond)
	held := b.MemoryUse().Pending
	b.slow = false
	b.work()
	if now := b.MemoryUse().Pending; now == 0 || held-now > 70<<10 || held == now {
		t.Errorf("%d bytes pending, %d after the first step", held, now)
	}
	tb.run(20 * time.Millisecond)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 4050}, content(1, 4050))
	if n := b.MemoryUse().Pending; n != 0 {
		t.Errorf("%d bytes are still pending", n)
	}
}

// A peer may answer with a snapshot of an engine's earlier incarnation. It never replaces the
// content of the current one.
func TestSnapshotOfEarlierIncarnation(t *testing.T) {
	tb := newTable(t, group.Options{Share: group.SharePartitioned, RingDeltas: 2}, "a", "b")
	tb.hold = func(_, to string, f []byte) bool {
		return to == "b" && (f[2] == group.KindDelta || f[2] == group.KindDigest)
	}
	for s := range uint64(50) {
		tb.appendAt("a", 2, s)
	}
	tb.run(10 * time.Millisecond)
	b := tb.get("b")
	earlier := true
	tb.hold = func(from, to string, f []byte) bool {
		var m group.PageReply
		if !earlier || to != "b" || f[2] != group.KindPageReply || m.Decode(group.Body(f)) != nil || m.Status != group.StatusOK {
			return false
		}
		m.Snap.Inc = 1
		b.Receive(from, m.Append(slices.Clone(f[:group.HeaderLen])))
		return true
	}
	tb.runUntil("the snapshot is refused", func() bool {
		if inc := b.log.Position("s1").Inc; inc == 1 {
			t.Fatal("went back to the earlier incarnation")
		}
		return b.Stats().SnapshotsFenced > 0
	})
	b.expect(t, "s1", logs.Position{Inc: 2}, "")
	earlier = false
	tb.runUntil("the right one is taken", func() bool { return b.log.Position("s1").Next == 50 })
	b.expect(t, "s1", logs.Position{Inc: 2, Next: 50}, content(2, 50))
}
