package endpoint

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

func TestPoolIDs(t *testing.T) {
	now := t0
	p := NewPool(PoolOptions{Grace: time.Minute, Now: func() time.Time { return now }})
	all := specs(4)
	p.Set(all[:3])
	gone := p.Snapshot().Lookup("10.0.0.1:8000")
	gone.book.local.requests.Add(1)
	p.Set([]Spec{all[0], all[2]})
	p.Set([]Spec{all[0], all[2], all[3]})
	if id := p.Snapshot().Lookup("10.0.0.3:8000").ID; id != 3 {
		t.Errorf("id %d within the grace of the removed one", id)
	}
	now = now.Add(time.Minute)
	p.Set(all)
	back := p.Snapshot().Lookup("10.0.0.1:8000")
	if back.ID != gone.ID || back.counters == gone.counters {
		t.Errorf("after the grace: id %d, same counters %v", back.ID, back.counters == gone.counters)
	}
}

func TestPoolChange(t *testing.T) {
	p := newPool(2)
	var seen []Change
	p.Subscribe(func(c Change) { seen = append(seen, c) })
	list := specs(3)
	list[1].Labels = map[string]string{LabelRole: "prefill", LabelEngine: "sglang"}
	before := p.Snapshot().Endpoints[1]
	p.Set(list[1:])
	p.Set(list[1:])
	if len(seen) != 2 || len(seen[0].Added) != 2 {
		t.Fatalf("%d changes", len(seen))
	}
	c := seen[1]
	got := []int{len(c.Added), len(c.Changed), len(c.Removed), int(c.Snapshot.Version)}
	if diff := cmp.Diff([]int{1, 1, 1, 2}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	after := c.Changed[0]
	if after.ID != before.ID || after.counters != before.counters || after.Role != RolePrefill || after.Engine != EngineSGLang {
		t.Errorf("changed endpoint: %+v", after)
	}
	if v, ok := after.Label(LabelRole); v != "prefill" || !ok {
		t.Errorf("label %q %v", v, ok)
	}
	if before.Role != RoleDecode {
		t.Error("the old endpoint changed")
	}
}

func TestSnapshotLookup(t *testing.T) {
	p := NewPool(PoolOptions{})
	p.Set([]Spec{
		{Name: "v6", Addr: netip.MustParseAddrPort("[fd00::1]:80")},
		{Name: "v4", Addr: netip.MustParseAddrPort("10.0.0.1:80")},
		{Name: "twice", Addr: netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")},
	})
	s := p.Snapshot()
	f := func(address, want string) {
		t.Helper()
		name := ""
		if ep := s.Lookup(address); ep != nil {
			name = ep.Name
		}
		if name != want {
			t.Errorf("%s: %q, want %q", address, name, want)
		}
	}
	f("[fd00::1]:80", "v6")
	f("[fd00:0:0::1]:80", "v6")
	f("10.0.0.1:80", "v4")
	f("[::ffff:10.0.0.1]:80", "v4")
	f("10.0.0.1:81", "")
	f("10.0.0.1", "")
	f("name:80", "")
	if len(s.Endpoints) != 2 || s.Endpoints[1].Address != "[fd00::1]:80" {
		t.Errorf("%d endpoints", len(s.Endpoints))
	}
}

// TestPoolLaw compares Set with a map: ids are dense and unique, and an endpoint keeps its counters
// exactly while it stays.
func TestPoolLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := t0
		p := NewPool(PoolOptions{Grace: 10 * time.Second, Now: func() time.Time { return now }})
		all := specs(8)
		cells := map[string]*counters{}
		for range rapid.IntRange(1, 12).Draw(t, "sets") {
			now = now.Add(time.Duration(rapid.IntRange(0, 15).Draw(t, "seconds")) * time.Second)
			var list []Spec
			for _, s := range all {
				if rapid.Bool().Draw(t, s.Name) {
					list = append(list, s)
				}
			}
			p.Set(list)
			s := p.Snapshot()
			ids := map[block.EndpointID]bool{}
			next := map[string]*counters{}
			for _, ep := range s.Endpoints {
				if ids[ep.ID] || int(ep.ID) >= 64 || s.ByID(int(ep.ID)) != ep {
					t.Fatalf("id %d", ep.ID)
				}
				ids[ep.ID] = true
				if had := cells[ep.Address]; had != nil && had != ep.counters {
					t.Fatalf("%s lost its counters", ep.Address)
				}
				next[ep.Address] = ep.counters
			}
			if len(s.Endpoints) != len(list) {
				t.Fatalf("%d endpoints of %d", len(s.Endpoints), len(list))
			}
			cells = next
		}
	})
}

func TestRoleOf(t *testing.T) {
	for label, want := range map[string]Role{
		"": RoleDecode, "both": RolePrefill | RoleDecode, "prefill-decode": RolePrefill | RoleDecode,
		"prefill": RolePrefill, "decode": RoleDecode, "encode": RoleEncode, "encode-prefill": RoleEncode | RolePrefill,
		"encode-prefill-decode": RoleEncode | RolePrefill | RoleDecode, "other": RoleDecode,
	} {
		if got := RoleOf(label); got != want {
			t.Errorf("%q: %b, want %b", label, got, want)
		}
	}
}

// TestPoolKeeps checks that endpoints that leave the list briefly are reinstated unchanged, that
// other incarnations are not, and that drops are reported once.
func TestPoolKeeps(t *testing.T) {
	now := time.Unix(1, 0)
	p := NewPool(PoolOptions{Keep: time.Minute, Now: func() time.Time { return now }})
	spec := func(name string, host byte) Spec {
		return Spec{Name: name, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, host}), 80)}
	}
	a, b, c := spec("a", 1), spec("b", 2), spec("c", 3)
	first := p.Set([]Spec{a, b, c}).Added
	forgets := func(got []*Endpoint, want ...*Endpoint) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("removed: %v, want %v", got, want)
		}
	}
	left := p.Set([]Spec{c})
	forgets(left.Dropped)
	if s := left.Snapshot; len(left.Removed) != 2 || s.Lookup("10.0.0.1:80") != nil || s.Known("10.0.0.1:80") != first[0] || len(s.Absent) != 2 {
		t.Errorf("%+v", left)
	}
	now = now.Add(59 * time.Second)
	back := p.Set([]Spec{a, spec("other", 2), c})
	forgets(back.Dropped, first[1])
	if len(back.Added) != 2 || back.Added[0] != first[0] || back.Added[1].ID == first[1].ID || len(back.Snapshot.Absent) != 0 {
		t.Errorf("%+v", back)
	}
	c.Instance = "1"
	forgets(p.Set([]Spec{a, c}).Dropped)
	d := c
	d.Instance = "2"
	again := p.Set([]Spec{a, d})
	if len(again.Dropped) != 1 || again.Dropped[0].ID != first[2].ID || again.Added[0].ID == first[2].ID {
		t.Errorf("%+v", again)
	}
	var told []*Endpoint
	p.Subscribe(func(c Change) { told = append(told, c.Dropped...) })
	p.Expire()
	forgets(told)
	now = now.Add(time.Hour)
	p.Expire()
	p.Expire()
	if len(told) != 1 || told[0].Name != "other" || len(p.Snapshot().Absent) != 0 {
		t.Errorf("removed: %v", told)
	}
}
