package sessions

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

var t0 = time.Unix(1_700_000_000, 0)

func TestSessions(t *testing.T) {
	s := New(64)
	told := 0
	s.OnBind(func(Binding) { told++ })
	a := KeyOf("a")
	if KeyIn("", "a") != a || KeyIn("x", "") != 0 || KeyIn("x", "a") == a || KeyIn("x", "a") == KeyIn("y", "a") {
		t.Error("tenants share sessions")
	}
	f := func(want block.EndpointID, ok bool) {
		t.Helper()
		if id, found := s.Lookup(a); id != want || found != ok {
			t.Errorf("%d %v, want %d %v", id, found, want, ok)
		}
	}
	f(0, false)
	s.Bind(Binding{a, 3, t0})
	f(3, true)
	s.Merge(Binding{a, 4, t0.Add(-time.Second)})
	f(3, true)
	s.Merge(Binding{a, 4, t0.Add(time.Second)})
	f(4, true)
	s.Merge(Binding{a, 5, t0.Add(time.Second)}) // of two bindings of one time the later call wins
	f(5, true)
	s.Bind(Binding{0, 4, t0})
	if _, ok := s.Lookup(0); ok || told != 1 {
		t.Errorf("without a session: found %v, hook called %d times", ok, told)
	}
}

// TestSessionsBounded: the table drops the oldest sessions, and only as many as necessary.
func TestSessionsBounded(t *testing.T) {
	s := New(1600)
	for i := range 100_000 {
		s.Bind(Binding{KeyOf(fmt.Sprint(i)), 1, t0})
	}
	kept := 0
	for i := range s.shards {
		kept += s.shards[i].young.n + s.shards[i].old.n
	}
	if kept > 3200 {
		t.Errorf("%d sessions kept", kept)
	}
	for i := 100_000 - 800; i < 100_000; i++ {
		if _, ok := s.Lookup(KeyOf(fmt.Sprint(i))); !ok {
			t.Fatalf("session %d was dropped", i)
		}
	}
}

// A full table uses the documented memory for any workload.
func TestSessionsMemory(t *testing.T) {
	s := New(0)
	for i := range 5 * DefaultSize {
		s.Merge(Binding{KeyOf(fmt.Sprint(i)), 1, t0})
	}
	slots, kept := 0, 0
	for i := range s.shards {
		slots += len(s.shards[i].young.slots) + len(s.shards[i].old.slots)
		kept += s.shards[i].young.n + s.shards[i].old.n
	}
	if bytes := 16 * slots; unsafe.Sizeof(slot{}) != 16 || kept < DefaultSize || bytes > 6_500_000 {
		t.Errorf("%d sessions in %d bytes", kept, bytes)
	}
}

// A table has the same content as a map.
func TestSessionTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table slots
		want := map[Key]slot{}
		key := rapid.Custom(func(t *rapid.T) Key {
			return Key(rapid.SampledFrom([]uint64{1, 1 << 59, 0xfff << 50, rapid.Uint64().Draw(t, "any")}).Draw(t, "base")+rapid.Uint64Range(0, 40).Draw(t, "near")) | 1
		})
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			e := slot{key.Draw(t, "key"), block.EndpointID(rapid.Uint32().Draw(t, "id")), stamp(rapid.Uint32().Draw(t, "at"))}
			if rapid.IntRange(0, 200).Draw(t, "clear") == 0 {
				table.clear()
				clear(want)
			}
			table.put(e)
			want[e.key] = e
			if got, ok := table.get(key.Draw(t, "other")); ok && got != want[got.key] {
				t.Fatalf("%+v, want %+v", got, want[got.key])
			}
		}
		for k, e := range want {
			if got, ok := table.get(k); !ok || got != e {
				t.Fatalf("%d: %+v %v, want %+v", k, got, ok, e)
			}
		}
		if table.n != len(want) || 4*table.n > 3*len(table.slots) {
			t.Fatalf("%d of %d in %d slots", table.n, len(want), len(table.slots))
		}
	})
}

func TestSessionTimeWraps(t *testing.T) {
	for _, at := range []int64{0, 1 << 56, 1<<56 - 1<<24, 1<<56 + 1<<55} {
		a, b := time.Unix(0, at), time.Unix(0, at).Add(400*24*time.Hour)
		if !stampOf(b).after(stampOf(a)) || stampOf(a).after(stampOf(b)) || stampOf(a).after(stampOf(a)) {
			t.Errorf("order of %v and 400 days later is lost", a)
		}
	}
}

// A session that returns after weeks is bound by its next request.
func TestSessionComesBack(t *testing.T) {
	for _, days := range []int{1, 30, 90, 365} {
		s := New(0)
		s.Bind(Binding{KeyOf("a"), 3, t0})
		s.Bind(Binding{KeyOf("a"), 4, t0.AddDate(0, 0, days)})
		if id, _ := s.Lookup(KeyOf("a")); id != 4 {
			t.Errorf("after %d days the session is still bound to %d", days, id)
		}
	}
}

// TestLaterMergeWinsATie: of two bindings with the same time, the one merged last stays.
func TestLaterMergeWinsATie(t *testing.T) {
	s, at := New(0), time.Unix(1_700_000_000, 0)
	key := KeyOf("s")
	s.Merge(Binding{Session: key, Endpoint: 1, At: at})
	s.Merge(Binding{Session: key, Endpoint: 2, At: at})
	if got, ok := s.Lookup(key); !ok || got != 2 {
		t.Errorf("Lookup() = %d, %t, want 2, true", got, ok)
	}
}
