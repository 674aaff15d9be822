package logs

import (
	"fmt"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// zoned is a group of members and sources in zones.
type zoned struct {
	members map[string]string // zone by member
	sources map[string]string // zone by source
}

// spreadOver spreads n members and sources per member over zones in turn.
func spreadOver(n, sources int, zones ...string) *zoned {
	z := &zoned{map[string]string{}, map[string]string{}}
	for i := range n {
		z.members[fmt.Sprintf("m%02d", i)] = zones[i%len(zones)]
	}
	for i := range sources {
		z.sources[fmt.Sprintf("10.0.%d.%d:8000/0", i/256, i%256)] = zones[i%len(zones)]
	}
	return z
}

// log returns the log as member self sees it.
func (z *zoned) log(self string) *Log {
	g := group.New(group.Options{Self: group.Member{ID: self, Name: self, Zone: z.members[self], Boot: 1}, Share: group.SharePartitioned})
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{Owned: true})
	for m, zone := range z.members {
		if m == self {
			continue
		}
		p := g.Add(group.Member{ID: m, Name: m, Zone: zone, Boot: 2})
		l.AddPeer(p)
		p.Up = true
		l.SetStated(p, 1)
	}
	l.SetZones(z.sources)
	names := []string{}
	for name := range z.sources {
		names = append(names, name)
	}
	l.SetSources(names)
	l.divide()
	return l
}

// owners returns the owner of each source as computed by self.
func (z *zoned) owners(self string) map[string]string {
	owners := map[string]string{}
	for _, s := range z.log(self).order {
		owners[s.name] = self
		if s.owner != nil {
			owners[s.name] = s.owner.ID
		}
	}
	return owners
}

// crossings counts sources whose owner is in another zone.
func (z *zoned) crossings(owners map[string]string) (n int) {
	for source, owner := range owners {
		if z.members[owner] != z.sources[source] {
			n++
		}
	}
	return n
}

// If every zone has members for its sources, no source is read across zones. All members compute
// the same assignment, and all own about as many sources as without zones.
func TestZones(t *testing.T) {
	for _, sources := range []int{9, 90, 900} {
		z := spreadOver(9, sources, "a", "b", "c")
		owners, others := z.owners("m00"), z.owners("m05")
		if n := z.crossings(owners); n > 0 {
			t.Errorf("%d of %d sources are read from another zone", n, sources)
		}
		each := map[string]int{}
		for source, owner := range owners {
			each[owner]++
			if others[source] != owner {
				t.Errorf("owner of %s is %s or %s, depending on the member that divides", source, owner, others[source])
			}
		}
		for m, n := range each {
			if limit := (sources*21 + 9*20 - 1) / (9 * 20); n > limit {
				t.Errorf("%s owns %d of %d, want at most %d", m, n, sources, limit)
			}
		}
	}
}

// If a zone has more sources than its members have room for, members of other zones read the rest.
// No member owns over 5% more than the mean because of zones.
func TestZonesUneven(t *testing.T) {
	z := spreadOver(4, 200, "a")
	z.members["m02"], z.members["m03"] = "b", "b"
	owners := z.owners("m00")
	each := map[string]int{}
	for _, owner := range owners {
		each[owner]++
	}
	for m := range z.members {
		if each[m] < 40 || each[m] > 53 {
			t.Errorf("%s owns %d of 200", m, each[m])
		}
	}
	if n := z.crossings(owners); n < 200-2*53 || n > 100 {
		t.Errorf("%d sources are read from another zone", n)
	}
}

// After the last member of a zone leaves, other zones read its sources. The zone of a source may
// become known late. Members and sources without a zone are divided as usual.
func TestZonesChange(t *testing.T) {
	z := spreadOver(6, 60, "a", "b")
	plain := &zoned{map[string]string{}, z.sources}
	for m := range z.members {
		plain.members[m] = ""
	}
	unlabelled := &zoned{z.members, map[string]string{}}
	for s := range z.sources {
		unlabelled.sources[s] = ""
	}
	without := plain.owners("m00")
	for source, owner := range unlabelled.owners("m00") {
		if without[source] != owner {
			t.Errorf("owner of %s: %s if no member has a zone, %s if no source has", source, without[source], owner)
		}
	}
	partly := &zoned{map[string]string{}, z.sources}
	for m, zone := range z.members {
		partly.members[m] = zone
	}
	partly.members["m03"] = ""
	for source, owner := range partly.owners("m00") {
		if without[source] != owner {
			t.Errorf("owner of %s: %s if one member has no zone, want %s as if none had", source, owner, without[source])
		}
	}
	l := unlabelled.log("m00")
	l.SetZones(z.sources)
	if !l.undivided {
		t.Error("sources are not redivided when zones become known")
	}
	l.divide()
	want := z.owners("m00")
	for _, s := range l.order {
		owner := "m00"
		if s.owner != nil {
			owner = s.owner.ID
		}
		if owner != want[s.name] {
			t.Errorf("owner of %s is %s after its zone became known, want %s", s.name, owner, want[s.name])
		}
	}
	for _, m := range []string{"m01", "m03", "m05"} {
		delete(z.members, m) // all of zone b
	}
	if n := z.crossings(z.owners("m00")); n != 30 {
		t.Errorf("%d sources are read from another zone, want the 30 of the zone without a member", n)
	}
}

// The standby for a source is in the same zone too.
func TestZonesStandby(t *testing.T) {
	z := spreadOver(6, 60, "a", "b")
	standby := map[string]string{}
	for m := range z.members {
		l := z.log(m)
		l.mesh = false
		for _, s := range l.order {
			if r, _ := l.roleOf(s); r == RoleStandby {
				standby[s.name] = m
			}
		}
	}
	for _, source := range slices.Sorted(func(yield func(string) bool) {
		for s := range z.sources {
			if !yield(s) {
				return
			}
		}
	}) {
		if m := standby[source]; m == "" || z.members[m] != z.sources[source] {
			t.Errorf("%s in zone %s: standby %q in zone %q", source, z.sources[source], m, z.members[m])
		}
	}
}
