package core

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// inZones assigns members to zones by the digit after their letter: "a1" is in zone 1.
func inZones(t *testing.T, ids ...string) *table {
	t.Helper()
	tb := &table{t: t, now: time.Second}
	var members []group.Member
	for i, id := range ids {
		members = append(members, group.Member{ID: id, Boot: uint64(i + 1), Zone: id[1:]})
	}
	for _, m := range members {
		c := newOne(group.Options{Self: m, Share: group.SharePartitioned, Relay: true})
		tb.cores = append(tb.cores, c)
		c.Advance(tb.now)
		c.SetMembers(members)
		for _, o := range members {
			c.SetLink(o.ID, true)
		}
		c.log.SetSources([]string{"s1"})
	}
	tb.run(time.Second)
	return tb
}

// sent records one frame of deltas: kind, sender, receiver.
type sent struct {
	kind     byte
	from, to string
}

// append makes the owner of s1 read one batch. It returns the owner and the frames sent.
func (tb *table) append(seq uint64, lose func(sent) bool) (owner *one, ways []sent) {
	tb.t.Helper()
	for _, c := range tb.cores {
		if c.store.roles["s1"] == logs.RoleReader {
			owner = c
		}
	}
	if owner == nil {
		tb.t.Fatal("s1 has no owner")
	}
	tb.hold = func(from, to string, frame []byte) bool {
		switch k := frame[2]; k {
		case group.KindDelta, group.KindRelay, group.KindRelayed:
			w := sent{k, from, to}
			ways = append(ways, w)
			return lose != nil && lose(w)
		}
		return false
	}
	owner.Advance(tb.now)
	owner.log.Reading("s1", true)
	if v := owner.log.Append(delta("s1", 9, seq)); v != logs.Applied {
		tb.t.Fatal(v)
	}
	tb.run(60 * time.Millisecond)
	return owner, ways
}

func (tb *table) all(seq uint64) {
	tb.t.Helper()
	for _, c := range tb.cores {
		c.expect(tb.t, "s1", logs.Position{Inc: 9, Next: seq + 1}, content(9, seq+1))
	}
}

// misses counts requests for missed frames.
func (tb *table) misses() (n uint64) {
	for _, c := range tb.cores {
		n += c.Stats().RelayMissed
	}
	return n
}

// TestRelay: a change is sent once to each remote zone, is forwarded there, and arrives once.
func TestRelay(t *testing.T) {
	tb := inZones(t, "a1", "b1", "c2", "d2", "e2", "f3")
	tb.append(0, nil)
	tb.run(time.Second)
	tb.all(0)
	owner, ways := tb.append(1, nil)
	tb.all(1)
	across, got := map[string]int{}, map[string]int{}
	for _, w := range ways {
		if got[w.to]++; w.from[1:] != w.to[1:] {
			across[w.to[1:]]++
		}
		if behind := w.kind == group.KindRelayed; behind && w.from[1:] != w.to[1:] {
			t.Errorf("%v crosses a zone border after it was forwarded", w)
		}
	}
	for _, c := range tb.cores {
		if want := 1; c != owner && got[c.id] != want {
			t.Errorf("%s got the change %d times: %v", c.id, got[c.id], ways)
		}
	}
	for _, zone := range []string{"1", "2", "3"} {
		if want := 1; zone != owner.id[1:] && across[zone] != want {
			t.Errorf("the change crossed to zone %s %d times: %v", zone, across[zone], ways)
		}
	}
	if n := tb.misses(); n != 0 {
		t.Errorf("%d frames were missed, want 0", n)
	}
	if st := owner.Stats(); st.BorderOut == 0 || st.BorderIn == 0 {
		t.Errorf("border: %d out, %d in", st.BorderOut, st.BorderIn)
	}
}

// TestRelayFails: a member that misses a forwarded frame has it within two heartbeats and is then
// sent frames directly, while another member relays. After a while the route is tried again.
func TestRelayFails(t *testing.T) {
	tb := inZones(t, "a1", "b2", "c2", "d2")
	for seq := range uint64(2) { // the second has one reader known to all
		tb.append(seq, nil)
		tb.run(time.Second)
	}
	tb.all(1)
	passing := func(ways []sent) (relay string, direct []string) {
		for _, w := range ways {
			switch {
			case w.kind == group.KindRelay:
				relay = w.to
			case w.kind == group.KindDelta && w.from[1:] != w.to[1:]:
				direct = append(direct, w.to)
			}
		}
		return relay, direct
	}
	owner, ways := tb.append(2, func(w sent) bool { return w.kind == group.KindRelayed })
	relay, direct := passing(ways)
	if owner.id != "a1" {
		t.Fatalf("owner is %s", owner.id)
	}
	if relay == "" || len(direct) > 0 {
		t.Fatalf("relayed by %q, sent directly to %v", relay, direct)
	}
	tb.run(2*200*time.Millisecond + 100*time.Millisecond)
	tb.all(2)
	if n := owner.Stats().RelayMissed; n != 2 {
		t.Errorf("%d members missed it, want 2", n)
	}
	_, ways = tb.append(3, nil)
	tb.all(3)
	if again, direct := passing(ways); again != "" || len(direct) != 3 {
		t.Errorf("after the failure relayed by %q, sent directly to %v", again, direct)
	}
	tb.run(6 * time.Second)
	_, ways = tb.append(4, nil)
	tb.all(4)
	if again, direct := passing(ways); again == "" || len(direct) > 0 {
		t.Errorf("six seconds later relayed by %q, sent directly to %v", again, direct)
	}
}

// TestRelayOfOlder: a member of the previous release is sent frames directly and does not relay.
func TestRelayOfOlder(t *testing.T) {
	tb := inZones(t, "a1", "b2", "c2", "d2")
	old := tb.get("b2")
	for _, c := range tb.cores {
		if p := c.byID[old.id]; p != nil {
			p.Minor = group.MinorRelay - 1
		}
	}
	tb.hold = nil
	owner, ways := tb.append(0, nil)
	if owner == old {
		t.Fatal("older member owns the source")
	}
	tb.all(0)
	if slices.ContainsFunc(ways, func(w sent) bool { return w.to == old.id && w.kind != group.KindDelta || w.from == old.id }) {
		t.Errorf("frames: %v", ways)
	}
}

// TestInvalidRelayedFrames: a forwarded frame in the name of an unknown member, of another process, or of
// the receiver changes nothing, and neither does a malformed one. A forwarded frame is no evidence
// that its writer is alive.
func TestInvalidRelayedFrames(t *testing.T) {
	for _, deliver := range []bool{true, false} {
		c := newOne(group.Options{Self: group.Member{ID: "a", Boot: 1, Zone: "z"}, Relay: true})
		c.Advance(time.Second)
		c.SetMembers([]group.Member{{ID: "b", Boot: 2, Zone: "z"}, {ID: "c", Boot: 3, Zone: "y"}})
		c.SetLink("b", true)
		c.SetLink("c", true)
		c.log.SetSources([]string{"s1"})
		c.Receive("b", deltaFrame(2, "s1", 9, 0))
		relayed := func(id string, boot, seq uint64) []byte {
			by := group.Relayed{ID: []byte(id), Boot: boot}
			g := group.DeltaRun{Source: []byte("s1"), Inc: 9, Entries: []group.Entry{{First: seq, Last: seq, Payload: text(9, seq)}}}
			return frameOf(group.KindRelayed, 2, g.Append(group.DeltasHead(by.Append(nil), "index", 1, 1)))
		}
		take := func(frame []byte) {
			m := &Deltas{}
			if _, ok := c.Deliver(c.g.Now, "b", frame, m); !ok || !deliver {
				m = nil
			}
			c.ReceiveDelivered("b", frame, m)
		}
		for _, bad := range [][]byte{
			relayed("nobody", 3, 1), relayed("c", 4, 1), relayed("a", 1, 1), relayed("c", 3, 1)[:20],
			frameOf(group.KindRelayed, 2, relayed("c", 3, 1)[group.HeaderLen-1:]),
		} {
			take(bad)
		}
		c.expect(t, "s1", logs.Position{Inc: 9, Next: 1}, content(9, 1))
		if st := c.Stats().Refused; st[group.RefusedMember] != 2 || st[group.RefusedBoot] != 1 || st[group.RefusedMalformed] != 2 {
			t.Errorf("refusals: %v", st)
		}
		take(relayed("c", 3, 1))
		c.expect(t, "s1", logs.Position{Inc: 9, Next: 2}, content(9, 2))
		if p := c.byID["c"]; p.Alive || p.Up || p.LastReceived > 0 {
			t.Errorf("a frame forwarded by another member marked the writer alive: %+v", p.Peer)
		}
	}
}

// TestRelayPassesOnTo: a relay forwards only to the members of its own zone that can read all of
// the frame, regardless of how the writer sees the group.
func TestRelayPassesOnTo(t *testing.T) {
	c := newOne(group.Options{Self: group.Member{ID: "r", Boot: 1, Zone: "z"}, Relay: true})
	c.Advance(time.Second)
	var members []group.Member
	for i, id := range []string{"writer", "reads", "older-log", "older-release", "elsewhere", "nowhere", "unlinked"} {
		m := group.Member{ID: id, Boot: uint64(i + 2), Zone: "z"}
		switch id {
		case "writer", "elsewhere":
			m.Zone = "y"
		case "nowhere":
			m.Zone = ""
		}
		members = append(members, m)
	}
	c.SetMembers(members)
	c.log.SetSources([]string{"s1"})
	for _, m := range members {
		c.SetLink(m.ID, m.ID != "unlinked")
		p, version := c.byID[m.ID], uint64(2)
		p.Minor = group.MinorRelay
		switch m.ID {
		case "older-log":
			version = 1
		case "older-release":
			p.Minor--
		}
		c.log.SetStated(p.Peer, version)
	}
	c.Drain()
	g := group.DeltaRun{Source: []byte("s1"), Inc: 9, Entries: []group.Entry{{Payload: text(9, 0)}}}
	c.Receive("writer", frameOf(group.KindRelay, 2, g.Append(group.DeltasHead(nil, "index", 2, 1))))
	var to []string
	for _, e := range c.Drain() {
		if e.Frame[2] == group.KindRelayed {
			to = append(to, e.To...)
		}
	}
	if !slices.Equal(to, []string{"reads"}) || c.Stats().Relayed != 1 {
		t.Errorf("forwarded to %q, %d counted", to, c.Stats().Relayed)
	}
	c.expect(t, "s1", logs.Position{Inc: 9, Next: 1}, content(9, 1))
}
