package core

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// rankedFor returns the table's cores by rank for s1.
func (tb *table) rankedFor(source string) []*one {
	var members []group.Member
	for _, c := range tb.cores {
		members = append(members, c.Self())
	}
	var out []*one
	for _, m := range ranked(members, source) {
		out = append(out, tb.get(m.ID))
	}
	return out
}

// ranked returns members by weight for a source. With only one source, that is the rank order.
func ranked(members []group.Member, source string) []group.Member {
	mix := func(x uint64) uint64 {
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	weight := func(m group.Member) uint64 {
		return mix(group.Hash(cmp.Or(m.Name, m.ID)) ^ mix(group.Hash(source)))
	}
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b group.Member) int { return cmp.Compare(weight(b), weight(a)) })
	return members
}

func (c *one) role() logs.Role { return c.store.roles["s1"] }

// follow makes every core read s1 if its role requires it.
func (tb *table) follow() {
	for _, c := range tb.cores {
		c.log.Reading("s1", c.role() == logs.RoleReader)
	}
}

func TestRoles(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b", "c")
	for range 10 {
		tb.follow()
		tb.run(50 * time.Millisecond)
	}
	r := tb.rankedFor("s1")
	if r[0].role() != logs.RoleReader || r[1].role() != logs.RoleStandby || r[2].role() != logs.RoleNone {
		t.Errorf("roles %v %v %v", r[0].role(), r[1].role(), r[2].role())
	}
}

// TestOwnerGone: the second in rank order reads immediately when the link to the first breaks.
func TestOwnerGone(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b", "c")
	tb.follow()
	tb.run(time.Second)
	r := tb.rankedFor("s1")
	for _, c := range r[1:] {
		c.SetLink(r[0].id, false)
	}
	tb.run(2 * time.Millisecond)
	if r[1].role() != logs.RoleReader || r[2].role() != logs.RoleStandby {
		t.Errorf("roles %v %v", r[1].role(), r[2].role())
	}
}

// TestOrphan: if a reachable owner cannot read, only the next in rank order takes over, after a
// second. It stops once the owner reads again.
func TestOrphan(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b", "c")
	r := tb.rankedFor("s1")
	read := func(broken bool) {
		for _, c := range tb.cores {
			c.log.Reading("s1", c.role() == logs.RoleReader && (c != r[0] || !broken))
		}
	}
	for range 30 {
		read(true)
		tb.run(50 * time.Millisecond)
	}
	if r[0].role() != logs.RoleReader || r[1].role() != logs.RoleReader || r[2].role() == logs.RoleReader {
		t.Errorf("roles of an orphaned source: %v %v %v", r[0].role(), r[1].role(), r[2].role())
	}
	for range 40 {
		read(true)
		tb.run(50 * time.Millisecond)
	}
	if r[2].role() == logs.RoleReader {
		t.Error("third in rank order reads too")
	}
	for range 20 {
		read(false)
		tb.run(50 * time.Millisecond)
	}
	if r[0].role() != logs.RoleReader || r[1].role() != logs.RoleStandby {
		t.Errorf("after: roles %v %v", r[0].role(), r[1].role())
	}
}

// TestHandOver: the current reader continues until the new owner reads.
func TestHandOver(t *testing.T) {
	full := newTable(t, partitioned, "a", "b", "c")
	first := full.rankedFor("s1")[0]
	full.hold = func(from, to string, _ []byte) bool { return from == first.id || to == first.id }
	for range 40 {
		full.follow()
		first.log.Reading("s1", false)
		full.run(50 * time.Millisecond)
	}
	second := full.rankedFor("s1")[1]
	if second.role() != logs.RoleReader {
		t.Fatalf("second is %v while the first is cut off", second.role())
	}
	full.hold = nil
	full.run(300 * time.Millisecond)
	if second.role() != logs.RoleReader {
		t.Errorf("second stopped before the first started: role %v", second.role())
	}
	first.log.Reading("s1", true)
	full.run(50 * time.Millisecond)
	if second.role() != logs.RoleStandby {
		t.Errorf("second did not stop: role %v", second.role())
	}
}

func TestLeaving(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	r := tb.rankedFor("s1")
	for _, c := range tb.cores {
		c.log.SetSources([]string{"s1"})
	}
	tb.run(100 * time.Millisecond)
	tb.follow()
	tb.run(500 * time.Millisecond)
	tb.hold = func(_, to string, f []byte) bool { return to == r[0].id && f[2] == group.KindBeat }
	r[0].Leave()
	tb.run(50 * time.Millisecond)
	if r[0].SourcesTransferred() || r[0].role() != logs.RoleReader || r[1].role() != logs.RoleReader {
		t.Errorf("handed over %v; roles %v %v", r[0].SourcesTransferred(), r[0].role(), r[1].role())
	}
	r[1].log.Reading("s1", true)
	tb.run(50 * time.Millisecond)
	if r[0].SourcesTransferred() {
		t.Error("handed over before a peer acknowledged the announcement")
	}
	tb.hold = nil
	tb.run(300 * time.Millisecond)
	if !r[0].SourcesTransferred() || r[0].role() != logs.RoleNone {
		t.Errorf("handed over %v; role %v", r[0].SourcesTransferred(), r[0].role())
	}
	if newTable(t, partitioned, "z").cores[0].SourcesTransferred() != true {
		t.Error("HandedOver is false for a member without peers")
	}
}

// TestOvertakenClaim: an older claim that arrives after a newer one is ignored.
func TestOvertakenClaim(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	r := tb.rankedFor("s1")
	reads := func() string {
		v, _ := r[1].log.Source("s1")
		return v.Reader
	}
	say := func(reading bool) {
		r[0].log.Reading("s1", reading)
		tb.run(500 * time.Millisecond)
	}
	if say(true); reads() != r[0].id {
		t.Fatalf("read by %q", reads())
	}
	var held [][]byte
	tb.hold = func(from, _ string, f []byte) bool {
		if from == r[0].id && f[2] == group.KindDigest {
			held = append(held, slices.Clone(f))
		}
		return from == r[0].id && f[2] == group.KindDigest
	}
	say(false)
	tb.hold = nil
	if say(true); reads() != r[0].id || len(held) == 0 {
		t.Fatalf("read by %q, %d claims held back", reads(), len(held))
	}
	for _, f := range held {
		r[1].Receive(r[0].id, f)
	}
	if got := reads(); got != r[0].id {
		t.Errorf("read by %q after an older claim came", got)
	}
}

func TestShareAuto(t *testing.T) {
	l := newOne(group.Options{Self: group.Member{ID: "a"}, MeshSources: 4}).log
	for _, tc := range []struct {
		sources []string
		mesh    bool
	}{
		{[]string{"1", "2", "3", "4"}, true},
		{[]string{"1", "2", "3", "4", "5"}, false},
		{[]string{"1", "2", "3", "4"}, false}, // no flapping
		{[]string{"1", "2", "3"}, true},
	} {
		if l.SetSources(tc.sources); l.Mesh() != tc.mesh {
			t.Errorf("Mesh() = %[2]v with %[1]d sources", len(tc.sources), l.Mesh())
		}
	}
	for _, s := range []group.Share{group.ShareAuto, group.ShareMesh, group.SharePartitioned} {
		if got, ok := group.ParseShare(s.String()); !ok || got != s {
			t.Errorf("%v reads as %v", s, got)
		}
	}
	if _, ok := group.ParseShare("nope"); ok {
		t.Error("ParseShare accepted an unknown value")
	}
}

// TestMeshSendsNoDeltas: a member that reads a source itself is not sent its deltas.
func TestMeshSendsNoDeltas(t *testing.T) {
	tb := newTable(t, group.Options{Share: group.ShareMesh}, "a", "b", "c")
	tb.follow()
	for _, id := range []string{"a", "b"} {
		tb.appendAt(id, 1, 0)
	}
	tb.run(time.Second)
	deltas := 0
	tb.hold = func(_, to string, f []byte) bool {
		if f[2] == group.KindDelta {
			deltas++
			if to != "c" {
				t.Errorf("sent to %s", to)
			}
		}
		return false
	}
	tb.get("c").log.Reading("s1", false) // its reader broke: peers provide the deltas
	tb.run(50 * time.Millisecond)
	for _, id := range []string{"a", "b"} {
		tb.appendAt(id, 1, 1)
	}
	tb.run(5 * time.Millisecond)
	tb.get("c").expect(t, "s1", logs.Position{Inc: 1, Next: 2}, content(1, 2))
	if deltas != 1 {
		t.Errorf("%d frames of deltas", deltas)
	}
}
