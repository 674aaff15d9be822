package core

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// snapshotOf returns all state that frames could change.
func (c *one) snapshotOf() string {
	return string(c.store.of["s1"]) + "|" + string(c.store.of["s2"]) + "|" + c.sink.of["b"]["k"] + "|" + c.sink.of["c"]["k"]
}

// TestRefused: invalid frames change nothing and are counted.
func TestRefused(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.appendAt("b", 5, 0)
	_ = tb.get("b").gauge.Set("k", []byte("1"))
	tb.run(20 * time.Millisecond)
	a := tb.get("a")
	before, pos := a.snapshotOf(), a.log.Position("s1")
	good := deltaFrame(2, "s1", 5, 1)
	mangled := func(change func(b []byte)) []byte {
		b := slices.Clone(good)
		change(b)
		return b
	}
	gauge := func(boot uint64) []byte {
		m := group.Gauge{Name: []byte("load"), Version: 1, Full: true, Ver: 99, Entries: []group.GaugeEntry{{Key: []byte("k"), Value: []byte("666")}}}
		return frameOf(group.KindGauge, boot, m.Append(nil))
	}
	page := group.PageReply{Name: []byte("index"), Source: []byte("s1"), ID: 77, Snap: logs.Position{Inc: 6, Next: 1}, Pages: 1, Bytes: 1, Payload: []byte("x")}
	strange := group.DeltaRun{Source: []byte("nobody"), Inc: 5, Entries: []group.Entry{{}}}
	other := group.Gauge{Name: []byte("none")}
	for _, tc := range []struct {
		what, from string
		frame      []byte
		want       group.Refusal
	}{
		{"not a member", "x", good, group.RefusedMember},
		{"itself", "a", good, group.RefusedMember},
		{"an earlier process of the member", "b", deltaFrame(1, "s1", 5, 1), group.RefusedBoot},
		{"an earlier process's gauge", "b", gauge(1), group.RefusedBoot},
		{"another major version", "b", mangled(func(b []byte) { b[0] = 2 }), group.RefusedVersion},
		{"nothing", "b", nil, group.RefusedMalformed},
		{"half a frame", "b", good[:len(good)-3], group.RefusedMalformed},
		{"too large", "b", make([]byte, group.MaxFrame+1), group.RefusedOversized},
		{"an unknown kind", "b", frameOf(200, 2, nil), group.RefusedKind},
		{"an unknown state", "b", frameOf(group.KindGauge, 2, other.Append(nil)), group.RefusedState},
		{"an unknown source", "b", frameOf(group.KindDelta, 2, strange.Append(group.DeltasHead(nil, "index", 1, 1))), group.RefusedSource},
	} {
		was := a.Stats().Refused[tc.want]
		a.Receive(tc.from, slices.Clone(tc.frame))
		if a.Stats().Refused[tc.want] != was+1 {
			t.Errorf("%s: not counted as %v", tc.what, tc.want)
		}
		if a.snapshotOf() != before || a.log.Position("s1") != pos {
			t.Errorf("%s: changed something", tc.what)
		}
	}
	late := a.Stats().LateAnswers
	a.Receive("b", frameOf(group.KindPageReply, 2, page.Append(nil))) // not requested
	if a.snapshotOf() != before || a.Stats().LateAnswers != late+1 {
		t.Error("an unrequested answer changed the state")
	}
}

// TestGaugeOfAFleet: a gauge with ten thousand endpoints reaches the peers, both as one update and
// as a full list.
func TestGaugeOfAFleet(t *testing.T) {
	tb := newTable(t, group.Options{}, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	set := func(key string, value []byte) {
		t.Helper()
		if err := a.gauge.Set(key, value); err != nil {
			t.Fatal(key, err)
		}
	}
	key := func(i int) string { return fmt.Sprintf("100.200.%d.%d:8000", 100+i/100, 100+i%100) }
	for i := range 10_000 {
		set(key(i), make([]byte, 64))
	}
	tb.run(200 * time.Millisecond)
	if n := len(b.sink.of["a"]); n != 10_000 {
		t.Errorf("%d entries arrived", n)
	}
	for i := range 10_000 {
		set(key(i), nil)
	}
	for i := range 10_000 { // replaces them: old and new together exceed a frame
		set("2"+key(i)[1:], make([]byte, 64))
	}
	tb.run(50 * time.Millisecond)
	if n := len(b.sink.of["a"]); n != 10_000 || b.sink.of["a"][key(0)] != "" {
		t.Errorf("%d entries after all were replaced", n)
	}
	for _, up := range []bool{false, true} {
		a.SetLink("b", up)
		b.SetLink("a", up)
	}
	tb.run(time.Second)
	if n := len(b.sink.of["a"]); n != 10_000 {
		t.Errorf("%d entries in the full list", n)
	}
	for _, c := range tb.cores {
		if st := c.Stats(); st.Refused != [group.NumRefusals]uint64{} {
			t.Errorf("%s refused %v", c.id, st.Refused)
		}
	}
}

// TestForgedOrigin: a member can only write its own entries.
func TestForgedOrigin(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b", "c")
	_ = tb.get("b").gauge.Set("k", []byte("1"))
	tb.run(20 * time.Millisecond)
	a := tb.get("a")
	m := group.Gauge{Name: []byte("load"), Version: 1, Full: true, Ver: 99, Entries: []group.GaugeEntry{{Key: []byte("k"), Value: []byte("666")}}}
	a.Receive("c", frameOf(group.KindGauge, 2, m.Append(nil))) // with b's boot
	a.Receive("c", frameOf(group.KindGauge, 3, m.Append(nil)))
	if got := a.sink.of["b"]["k"]; got != "1" {
		t.Errorf("b's gauge is %q", got)
	}
	if a.Stats().Refused[group.RefusedBoot] != 1 {
		t.Error("forged frame was not counted")
	}
}

// TestGaugeLossIsRepaired loses updates, including the last one before a silence.
func TestGaugeLossIsRepaired(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	_ = a.gauge.Set("k", []byte("1"))
	_ = a.gauge.Set("gone", []byte("1"))
	tb.run(20 * time.Millisecond)
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindGauge }
	_ = a.gauge.Set("k", []byte("2"))
	tb.run(20 * time.Millisecond)
	_ = a.gauge.Set("gone", nil)
	tb.run(20 * time.Millisecond)
	tb.hold = nil
	tb.run(300 * time.Millisecond)
	if got := b.sink.of["a"]; len(got) != 1 || got["k"] != "2" {
		t.Errorf("b's view is %v", got)
	}
}

func TestGaugeIsBounded(t *testing.T) {
	tb := newTable(t, group.Options{GaugeBytes: 100}, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	if err := a.gauge.Set("k", make([]byte, 100)); !errors.Is(err, ErrGaugeFull) {
		t.Errorf("set: %v", err)
	}
	_ = a.gauge.Set("k", make([]byte, 60))
	if err := a.gauge.Set("l", make([]byte, 60)); !errors.Is(err, ErrGaugeFull) {
		t.Errorf("second set: %v", err)
	}
	m := group.Gauge{Name: []byte("load"), Version: 1, Ver: 1}
	for i := range 10 {
		m.Entries = append(m.Entries, group.GaugeEntry{Key: []byte{byte(i)}, Value: make([]byte, 50)})
	}
	b.Receive("a", frameOf(group.KindGauge, 1, m.Append(nil)))
	if n := len(b.sink.of["a"]); n != 1 {
		t.Errorf("%d entries of 58 bytes fit 100", n)
	}
	if b.Stats().Refused[group.RefusedOversized] != 9 {
		t.Error("not counted")
	}
}

func TestSilenceDropsGauges(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	_ = a.gauge.Set("k", []byte("1"))
	tb.run(20 * time.Millisecond)
	tb.hold = func(from, _ string, _ []byte) bool { return from == "a" }
	tb.run(time.Second)
	if len(b.sink.of) != 0 {
		t.Errorf("b still has %v", b.sink.of)
	}
	tb.hold = nil
	tb.run(300 * time.Millisecond)
	if got := b.sink.of["a"]["k"]; got != "1" {
		t.Errorf("b has %q again", got)
	}
	b.SetLink("a", false)
	if len(b.sink.of) != 0 {
		t.Error("peer still alive after its link broke")
	}
}

// TestLinkOutlivesMembership: a bus may report once that a process is reachable, before it reports
// the process as a member.
func TestLinkOutlivesMembership(t *testing.T) {
	c := newOne(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	b := group.Member{ID: "b", Boot: 2}
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"linked, then a member", func() { c.SetLink("b", true); c.SetMembers([]group.Member{b}) }, true},
		{"a member again", func() { c.SetMembers(nil); c.SetMembers([]group.Member{b}) }, true},
		{"broken while no member", func() { c.SetMembers(nil); c.SetLink("b", false); c.SetMembers([]group.Member{b}) }, false},
		{"linked as a member", func() { c.SetLink("b", true) }, true},
	} {
		step.do()
		if got := c.Peers()[0].Link; got != step.want {
			t.Errorf("%s: link is %v", step.what, got)
		}
	}
	c.SetLink("b", false)
	if len(c.links) != 0 {
		t.Errorf("%d links kept", len(c.links))
	}
}

func TestFeed(t *testing.T) {
	tb := newTable(t, group.Options{FeedBytes: 40}, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	a.feed.Send([]byte("one"))
	a.feed.Send([]byte("two"))
	tb.run(25 * time.Millisecond)
	tb.hold = func(_, _ string, f []byte) bool { return f[2] == group.KindFeed }
	a.feed.Send([]byte("lost"))
	tb.run(25 * time.Millisecond)
	tb.hold = nil
	a.feed.Send([]byte("three"))
	tb.run(25 * time.Millisecond)
	if want := []string{"a:one", "a:two", "a:three"}; !slices.Equal(b.sink.hints, want) {
		t.Errorf("hints %v", b.sink.hints)
	}
	if got := b.Stats().FeedMissed; got != 1 {
		t.Errorf("%d missed", got)
	}
	if a.feed.Send(make([]byte, 50)) || a.Stats().FeedDropped != 1 {
		t.Error("Send accepted more than the queue holds")
	}
}

func TestRoundTripTime(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	tb.run(time.Second)
	p := tb.get("a").Peers()[0]
	if p.RTT <= 0 || p.RTT > 2*time.Millisecond || !p.Up || p.Member.ID != "b" {
		t.Errorf("%+v", p)
	}
}

func TestSettle(t *testing.T) {
	short := group.Options{LonelyTimeout: time.Second, SettleTimeout: 2 * time.Second}
	alone := newOne(group.Options{Self: group.Member{ID: "a"}, Standalone: true})
	alone.Advance(1)
	alone.Tick()
	if alone.Phase() != group.Settling {
		t.Errorf("phase is %v before sources are named", alone.Phase())
	}
	alone.log.SetSources(nil)
	alone.Tick()
	if alone.Phase() != group.Settled {
		t.Errorf("phase of a single member: %v", alone.Phase())
	}

	lonely := newTable(t, short, "a")
	lonely.run(500 * time.Millisecond)
	if p := lonely.cores[0].Phase(); p != group.Settling {
		t.Errorf("phase without peers, before the timeout: %v", p)
	}
	lonely.run(time.Second)
	if p := lonely.cores[0].Phase(); p != group.Degraded {
		t.Errorf("phase without peers: %v", p)
	}

	tb := newTable(t, short, "a", "b")
	tb.run(200 * time.Millisecond)
	tb.appendAt("a", 1, 0, 1)
	for _, c := range tb.cores {
		if c.Phase() != group.Settled {
			t.Errorf("%s in a new group: phase %v", c.id, c.Phase())
		}
	}
	// A new member that gets heartbeats but no deltas continues without them.
	late := newOne(group.Options{Self: group.Member{ID: "c", Boot: 3}, SettleTimeout: time.Second})
	late.Advance(tb.now)
	late.log.SetSources([]string{"s1"})
	tb.cores = append(tb.cores, late)
	tb.hold = func(_, to string, f []byte) bool {
		return to == "c" && f[2] != group.KindBeat && f[2] != group.KindDigest
	}
	tb.meet()
	tb.run(500 * time.Millisecond)
	if late.Phase() != group.Settling {
		t.Errorf("new member before the timeout: phase %v", late.Phase())
	}
	tb.run(700 * time.Millisecond)
	if late.Phase() != group.Degraded {
		t.Errorf("isolated new member: phase %v", late.Phase())
	}
	tb.hold = nil
	tb.run(2 * time.Second)
	if late.Phase() != group.Settled {
		t.Errorf("new member: phase %v", late.Phase())
	}
}

// TestReplayedBeat: a replayed heartbeat changes nothing, least of all the round-trip time.
func TestReplayedBeat(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	var old []byte
	tb.hold = func(from, _ string, f []byte) bool {
		if from == "b" && f[2] == group.KindBeat {
			old = f
		}
		return false
	}
	tb.run(time.Second)
	tb.hold = nil
	kept := slices.Clone(old)
	tb.run(5 * time.Second)
	a := tb.get("a")
	was := a.Peers()[0].RTT
	for range 20 {
		a.Receive("b", slices.Clone(kept))
	}
	if rtt := a.Peers()[0].RTT; rtt != was {
		t.Errorf("round-trip time changed from %v to %v", was, rtt)
	}
}

// TestGaugeOvertaken: an update that arrives after a later one changes nothing, not even until the
// gauge is repaired.
func TestGaugeOvertaken(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	var updates [][]byte
	_ = a.gauge.Set("k", []byte("1"))
	tb.run(20 * time.Millisecond)
	tb.hold = func(_, to string, f []byte) bool {
		if to == "b" && f[2] == group.KindGauge {
			updates = append(updates, bytes.Clone(f))
			return true
		}
		return false
	}
	for _, v := range []string{"2", "3"} {
		_ = a.gauge.Set("k", []byte(v))
		tb.run(20 * time.Millisecond)
	}
	if len(updates) != 2 {
		t.Fatalf("%d updates", len(updates))
	}
	for _, i := range []int{1, 0, 1, 0} {
		b.Receive("a", updates[i])
		if got := b.sink.of["a"]["k"]; got != "3" {
			t.Errorf("b has %q", got)
		}
	}
}

// At rest no code iterates over sources, of which there may be ten thousand. Neither ticks nor
// views of members do.
func TestRestLooksAtNoSource(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b", "c")
	tb.follow()
	owner := tb.rankedFor("s1")[0]
	for seq := range uint64(3) {
		owner.log.Append(delta("s1", 1, seq))
		tb.run(time.Second)
		tb.follow()
	}
	tb.run(20 * time.Second)
	before := make([]int, len(tb.cores))
	for i, c := range tb.cores {
		before[i] = c.looks
	}
	tb.run(20 * time.Second)
	for i, c := range tb.cores {
		c.Peers()
		if c.looks != before[i] || before[i] == 0 {
			t.Errorf("%s looked up sources %d times, want %d as before", c.id, c.looks-before[i], before[i])
		}
		if c.Compare(owner.id); c.looks != before[i] {
			t.Errorf("%s: Compare looked up sources", c.id)
		}
	}
}

// TestUpdatesArePaced: a change after a silence is sent within its own delay. Changes that go on are sent
// together, every 20 ms, however many states they are of.
func TestUpdatesArePaced(t *testing.T) {
	tb := newTable(t, group.Options{}, "a", "b")
	a, b := tb.get("a"), tb.get("b")
	tb.run(time.Second)
	_ = a.gauge.Set("first", []byte("1"))
	tb.run(15 * time.Millisecond)
	if b.sink.of["a"]["first"] != "1" {
		t.Error("a single change was not sent within its delay")
	}
	tb.run(time.Second)
	at, frames := map[time.Duration]bool{}, 0
	began := a.g.Now
	tb.hold = func(from, _ string, f []byte) bool {
		if from == "a" && (f[2] == group.KindGauge || f[2] == group.KindFeed) {
			at[a.g.Now] = true
			frames++
		}
		return false
	}
	for i := range 1000 {
		_ = a.gauge.Set(fmt.Sprint("key-", i%7), []byte(fmt.Sprint(i)))
		a.feed.Send([]byte{byte(i)})
		tb.run(time.Millisecond)
	}
	tb.hold = nil
	tb.run(50 * time.Millisecond)
	if took := a.g.Now - began; len(at) > int(took/(20*time.Millisecond)) || frames > 2*len(at) {
		t.Errorf("%d frames at %d moments in %v, want one moment every 20 ms", frames, len(at), took)
	}
	if n := len(b.sink.hints); n != 1000 {
		t.Errorf("%d hints arrived, want 1000", n)
	}
	if got := b.sink.of["a"]["key-5"]; got != "999" {
		t.Errorf("the last value is %q, want 999", got)
	}
}
