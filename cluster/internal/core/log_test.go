package core

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

var partitioned = group.Options{Share: group.SharePartitioned}

// appendAt appends deltas of s1 at a member.
func (tb *table) appendAt(id string, inc uint64, seqs ...uint64) (v logs.Verdict) {
	c := tb.get(id)
	c.log.Reading("s1", true)
	for _, s := range seqs {
		v = c.log.Append(delta("s1", inc, s))
	}
	return v
}

func TestPush(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b", "c")
	tb.appendAt("a", 7, 0, 1, 2)
	tb.run(5 * time.Millisecond)
	for _, c := range tb.cores {
		c.expect(t, "s1", logs.Position{Inc: 7, Next: 3}, content(7, 3))
	}
	if n := tb.get("b").Stats().RangesAsked; n != 0 {
		t.Errorf("%d ranges were requested without a loss, want 0", n)
	}
}

// TestLostPushIsFetched loses live deltas only. The range is requested as soon as they are late,
// and later deltas are kept until it arrives.
func TestLostPushIsFetched(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.appendAt("a", 1, 0)
	tb.run(5 * time.Millisecond)
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDelta }
	tb.appendAt("a", 1, 1, 2)
	tb.run(5 * time.Millisecond)
	tb.hold = nil
	tb.appendAt("a", 1, 3)
	tb.run(5 * time.Millisecond)
	b := tb.get("b")
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 1}, content(1, 1))
	if h := b.MemoryUse(); h.Pending == 0 {
		t.Error("the delta after the gap was not kept")
	}
	if v, _ := b.log.Source("s1"); v.Knowledge != knowledge.CatchingUp || v.Lag != 3 {
		t.Errorf("knowledge is %v, lag %d", v.Knowledge, v.Lag)
	}
	tb.run(100 * time.Millisecond)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 4}, content(1, 4))
	if v, _ := b.log.Source("s1"); v.Knowledge != knowledge.Exact {
		t.Errorf("knowledge is %v", v.Knowledge)
	}
}

// TestSilentLoss loses the last delta before a silence. Digests reveal the loss.
func TestSilentLoss(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDelta }
	tb.appendAt("a", 1, 0, 1)
	tb.run(5 * time.Millisecond)
	tb.hold = nil
	tb.run(600 * time.Millisecond)
	tb.get("b").expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 2))
}

// TestStaleIncarnation: deltas of an engine's earlier incarnation change nothing, even if their
// sequence number is the next one.
func TestStaleIncarnation(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.appendAt("a", 5, 0, 1)
	tb.run(5 * time.Millisecond)
	b := tb.get("b")
	b.Receive("a", deltaFrame(1, "s1", 4, 2))
	b.expect(t, "s1", logs.Position{Inc: 5, Next: 2}, content(5, 2))
	if n := b.Stats().Merged[logs.Stale]; n != 1 {
		t.Errorf("%d deltas were stale", n)
	}
	if v := b.log.Append(delta("s1", 4, 2)); v != logs.Stale {
		t.Errorf("verdict of a local stale delta: %v", v)
	}
}

// TestNewIncarnation: a new incarnation immediately clears the known content, including pending
// deltas of the earlier one.
func TestNewIncarnation(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.appendAt("a", 1, 0, 1)
	tb.run(5 * time.Millisecond)
	b := tb.get("b")
	b.Receive("a", deltaFrame(1, "s1", 1, 4)) // 2 and 3 are lost
	b.Receive("a", deltaFrame(1, "s1", 2, 1))
	b.expect(t, "s1", logs.Position{Inc: 2}, "")
	b.Receive("a", deltaFrame(1, "s1", 2, 0))
	b.expect(t, "s1", logs.Position{Inc: 2, Next: 2}, content(2, 2))
	if h := b.MemoryUse(); h.Pending != 0 {
		t.Errorf("%d bytes are still pending", h.Pending)
	}
}

// TestRangeGone: a member that is behind by more than the rings hold fetches a snapshot in pages
// and then applies live deltas.
func TestRangeGone(t *testing.T) {
	opt := partitioned
	opt.RingDeltas, opt.PageBytes = 2, 10
	tb := newTable(t, opt, "a", "b")
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDelta || f[2] == group.KindDigest }
	for s := range uint64(50) {
		tb.appendAt("a", 1, s)
	}
	tb.run(10 * time.Millisecond)
	pages := 0
	tb.hold = func(_, _ string, f []byte) bool {
		if f[2] == group.KindPageReply {
			pages++
			if pages == 5 {
				tb.appendAt("a", 1, 50, 51, 52) // while the snapshot is loading
			}
		}
		return false
	}
	tb.run(time.Second)
	b := tb.get("b")
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 53}, content(1, 53))
	if b.Stats().SnapshotsLoaded == 0 || pages < 20 {
		t.Errorf("%d snapshots in %d pages", b.Stats().SnapshotsLoaded, pages)
	}
	if h := b.MemoryUse(); h.Loads != 0 {
		t.Errorf("loads hold %d bytes after the end, want 0", h.Loads)
	}
}

// TestSnapshotOfDeadIncarnation: if an engine restarts while its snapshot is loading, the snapshot
// is discarded.
func TestSnapshotOfDeadIncarnation(t *testing.T) {
	opt := partitioned
	opt.RingDeltas, opt.PageBytes = 2, 10
	tb := newTable(t, opt, "a", "b")
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDelta || f[2] == group.KindDigest }
	for s := range uint64(20) {
		tb.appendAt("a", 1, s)
	}
	tb.run(10 * time.Millisecond)
	b := tb.get("b")
	var late [][]byte
	tb.hold = func(_, to string, f []byte) bool {
		if f[2] == group.KindPageReply && len(late) < 3 {
			late = append(late, f)
			return true
		}
		return false
	}
	tb.run(400 * time.Millisecond)
	if len(late) == 0 {
		t.Fatal("no snapshot was requested")
	}
	tb.appendAt("a", 2, 0, 1)
	tb.run(5 * time.Millisecond)
	b.expect(t, "s1", logs.Position{Inc: 2, Next: 2}, content(2, 2))
	for _, f := range late {
		b.Receive("a", f)
	}
	b.expect(t, "s1", logs.Position{Inc: 2, Next: 2}, content(2, 2))
}

// TestLose: a reader that cannot get everything continues with the rest and reports the source as
// inexact. A peer that lost nothing repairs it.
func TestLose(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.appendAt("a", 1, 0, 1, 2, 3)
	tb.run(5 * time.Millisecond)
	c := newOne(group.Options{Self: group.Member{ID: "c", Boot: 3}, Share: group.SharePartitioned})
	tb.cores = append(tb.cores, c)
	c.Advance(tb.now)
	c.log.SetSources([]string{"s1"})
	c.log.Reading("s1", true)
	if v := c.log.Append(delta("s1", 1, 3)); v != logs.Gap {
		t.Fatalf("append: %v", v)
	}
	if v := c.log.MarkLost("s1", 1, 3); v != logs.Applied {
		t.Fatalf("lose: %v", v)
	}
	c.expect(t, "s1", logs.Position{Inc: 1, Next: 4, Lost: 3}, "[1.3]")
	if v, _ := c.log.Source("s1"); v.Knowledge != knowledge.Partial {
		t.Errorf("knowledge is %v", v.Knowledge)
	}
	tb.meet()
	tb.run(500 * time.Millisecond)
	c.expect(t, "s1", logs.Position{Inc: 1, Next: 4}, content(1, 4))
	if got := c.log.MarkLost("s1", 1, 2); got != logs.Already {
		t.Errorf("verdict of losing past deltas: %v", got)
	}
}

// meet makes all cores each other's peers.
func (tb *table) meet() {
	var members []group.Member
	for _, c := range tb.cores {
		members = append(members, c.Self())
	}
	for _, c := range tb.cores {
		c.Advance(tb.now)
		c.SetMembers(members)
		for _, m := range members {
			c.SetLink(m.ID, true)
		}
	}
}

// TestDigestsDiffer: two members with the same position and different content both end up with the
// content of the first in rank order.
func TestDigestsDiffer(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	first := ranked([]group.Member{{ID: "a"}, {ID: "b"}}, "s1")[0]
	other := tb.get(map[string]string{"a": "b", "b": "a"}[first.ID])
	tb.appendAt(first.ID, 1, 0)
	tb.run(5 * time.Millisecond)
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDelta }
	tb.appendAt(first.ID, 1, 1)
	g := group.DeltaRun{Source: []byte("s1"), Inc: 1, Entries: []group.Entry{{First: 1, Last: 1, Payload: []byte("rotten")}}}
	boot := tb.get(first.ID).Self().Boot
	other.Receive(first.ID, frameOf(group.KindDelta, boot, g.Append(group.DeltasHead(nil, "index", 1, 1))))
	other.expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 1)+"rotten")
	tb.run(2 * time.Second)
	other.expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 2))
	tb.get(first.ID).expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 2))
	if n := other.Stats().SnapshotsLoaded; n != 1 {
		t.Errorf("%d snapshots were loaded", n)
	}
}

// TestChecks: content is compared by the checks that deltas carry, without claims. Claims are used
// if an older member follows.
func TestChecks(t *testing.T) {
	for _, older := range []bool{false, true} {
		tb := newTable(t, partitioned, "a", "b")
		r := tb.rankedFor("s1")
		tb.follow()
		tb.run(time.Second)
		follower := r[1]
		claims, seq := 0, uint64(0)
		tb.hold = func(from, _ string, f []byte) bool {
			if older && from == follower.id {
				f[1] = group.MinorChecks - 1
			}
			if f[2] == group.KindDigest && from == r[0].id {
				claims++
			}
			return false
		}
		move := func(d time.Duration) {
			for end := tb.now + d; tb.now < end; seq++ {
				tb.appendAt(r[0].id, 1, seq)
				tb.run(500 * time.Millisecond)
			}
		}
		move(2 * time.Second)
		claims = 0
		move(12 * time.Second)
		if (claims > 0) != older {
			t.Errorf("older = %v: %d claims about a changing source", older, claims)
		}
		follower.store.of["s1"] = []byte("something else")
		move(12 * time.Second)
		follower.expect(t, "s1", logs.Position{Inc: 1, Next: seq}, content(1, seq))
	}
}

// TestClaimsBeforeTheLink: a claim that arrives before the link is up is kept until the link to the
// peer is up, since peers send it only once.
func TestClaimsBeforeTheLink(t *testing.T) {
	for _, lost := range []bool{false, true} {
		tb := newTable(t, partitioned, "a", "b")
		a, b := tb.get("a"), tb.get("b")
		tb.hold = func(string, string, []byte) bool { return true }
		for seq := range uint64(3) {
			tb.appendAt("b", 1, seq)
		}
		want := uint64(3)
		if lost { // a has lost more
			a.log.MarkLost("s1", 1, 3)
			a.log.Append(delta("s1", 1, 3))
			b.log.Append(delta("s1", 1, 3))
			want = 4
		}
		tb.run(100 * time.Millisecond)
		tb.hold = nil
		a.SetLink("b", false)
		b.log.SendFullDigest(b.byID["a"].Peer)
		tb.run(100 * time.Millisecond) // b's digest arrives
		tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDigest }
		a.SetLink("b", true)
		tb.run(700 * time.Millisecond)
		a.expect(t, "s1", logs.Position{Inc: 1, Next: want}, content(1, want))
	}
}

// TestCorruptSnapshot: a snapshot whose digest differs from the announced one counts as lost. It is
// fetched again later, not immediately.
func TestCorruptSnapshot(t *testing.T) {
	opt := partitioned
	opt.RingDeltas = 1
	tb := newTable(t, opt, "a", "b")
	b := tb.get("b")
	b.store.corrupt = true
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDelta }
	tb.appendAt("a", 1, 0, 1, 2)
	tb.run(2 * time.Second)
	tb.hold = nil
	st := b.Stats()
	if st.SnapshotsCorrupt == 0 || st.SnapshotsCorrupt > 2 {
		t.Errorf("%d corrupt snapshots", st.SnapshotsCorrupt)
	}
	if b.log.Position("s1").Exact() {
		t.Error("position is exact")
	}
	b.store.corrupt = false
	tb.run(8 * time.Second)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 3}, content(1, 3))
}

// TestSnapshotTooLarge: if no snapshot of a source can be made, attempts become rarer, even with
// several asking members. A new member reports the gap until a snapshot can be made, and is
// complete then.
func TestSnapshotTooLarge(t *testing.T) {
	opt := group.Options{Share: group.SharePartitioned, RingDeltas: 1}
	tb := newTable(t, opt, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	a.store.large = true
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindDelta }
	tb.appendAt("a", 1, 0, 1, 2)
	tb.run(2 * time.Second)
	tb.hold = nil
	tb.run(28 * time.Second)
	if n := a.store.asked; n < 2 || n > 8 || a.Stats().SnapshotsFailed != uint64(n) {
		t.Errorf("%d snapshots were tried in half a minute, %d failures counted", n, a.Stats().SnapshotsFailed)
	}
	tb.appendAt("a", 1, 3)
	tb.run(time.Second)
	if v, _ := b.log.Source("s1"); v.Knowledge != knowledge.Approximate || !strings.Contains(v.Reason, "exceeds the size limit") || v.Lag != 4 {
		t.Errorf("view of the new member: %+v", v)
	}
	if n := b.Stats().RangesAsked; n > 400 {
		t.Errorf("new member sent %d requests in half a minute", n)
	}
	a.store.large = false
	tb.run(40 * time.Second)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 4}, content(1, 4))
}

// TestBrokenPayload: a payload that the store rejects counts as lost.
func TestBrokenPayload(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	b := tb.get("b")
	b.store.refuse = true
	tb.appendAt("a", 1, 0)
	tb.run(5 * time.Millisecond)
	if got := b.Stats().Merged[logs.Broken]; got != 1 {
		t.Errorf("%d deltas were broken", got)
	}
	b.store.refuse = false
	tb.run(time.Second)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 1}, content(1, 1))
}

// TestStraddle: a delta that overlaps the position is not applied, since it cannot be applied in
// part.
func TestStraddle(t *testing.T) {
	c := newOne(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	c.log.SetSources([]string{"s1"})
	c.log.Append(delta("s1", 1, 0))
	c.log.Append(delta("s1", 1, 1))
	if v := c.log.Append(logs.Delta{Source: "s1", Inc: 1, First: 1, Last: 2, Payload: []byte("x")}); v != logs.Gap {
		t.Errorf("verdict %v", v)
	}
	c.expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 2))
	for _, d := range []logs.Delta{
		{Source: "nobody", Inc: 1}, {Source: "s1"}, {Source: "s1", Inc: 1, First: 5, Last: 4},
		{Source: "s1", Inc: 1, Last: ^uint64(0)},
	} {
		if v := c.log.Append(d); v != logs.Unknown {
			t.Errorf("%+v: %v", d, v)
		}
	}
}

// TestExactnessIsKept: a member without losses does not adopt content with losses while it may get
// exact content another way. It does adopt it rather than fall behind.
func TestExactnessIsKept(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.appendAt("a", 1, 0, 1)
	tb.run(5 * time.Millisecond)
	a, b := tb.get("a"), tb.get("b")
	a.log.MarkLost("s1", 1, 5)
	tb.appendAt("a", 1, 5)
	tb.run(300 * time.Millisecond)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 2))
	tb.run(time.Second)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 6, Lost: 3}, content(1, 2)+"[1.5]")
}

func TestForgetSource(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.appendAt("a", 1, 0)
	tb.run(5 * time.Millisecond)
	b := tb.get("b")
	b.log.SetSources([]string{"s2"})
	b.expect(t, "s1", logs.Position{}, "")
	tb.appendAt("a", 1, 1)
	tb.run(time.Second)
	b.expect(t, "s1", logs.Position{}, "")
	b.log.SetSources([]string{"s2", "s1"})
	tb.run(time.Second)
	b.expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 2))
}

// TestLaggingIsNotExact: a member reports lag when a peer is ahead, both before it has received
// anything and while it has received too little.
func TestLaggingIsNotExact(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	b := tb.get("b")
	says := func(what string, want knowledge.State, lag uint64) {
		t.Helper()
		if v, _ := b.log.Source("s1"); v.Knowledge != want || v.Lag != lag {
			t.Errorf("%s: knowledge is %v with lag %d, want %v with lag %d", what, v.Knowledge, v.Lag, want, lag)
		}
	}
	content := func(_, to string, f []byte) bool {
		return to == "b" && (f[2] == group.KindDelta || f[2] == group.KindRangeReply || f[2] == group.KindPageReply)
	}
	tb.hold = content
	tb.appendAt("a", 1, 0, 1, 2, 3, 4)
	tb.run(time.Second)        // claims arrive
	b.log.MarkLost("s1", 1, 0) // a new member's reader has found the beginning
	says("nothing came yet", knowledge.CatchingUp, 5)
	tb.hold = nil
	tb.run(2 * time.Second)
	says("all came", knowledge.Exact, 0)
	tb.hold = content
	var more []uint64
	for seq := uint64(5); seq < 40; seq++ {
		more = append(more, seq)
	}
	tb.appendAt("a", 1, more...)
	tb.run(time.Second)
	for seq := uint64(5); seq < 30; seq++ {
		b.log.Append(delta("s1", 1, seq))
		tb.run(20 * time.Millisecond)
		says("too little comes", knowledge.CatchingUp, 39-seq)
	}
}
