package natsbus

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

var key1, key2 = bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32)

func newTestSealer(t testing.TB, id string, boot uint64, keys ...[]byte) *sealer {
	t.Helper()
	s, err := newSealer(id, boot, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSeal(t *testing.T) {
	a := newTestSealer(t, "a", 7, key1, key2)
	b := newTestSealer(t, "b", 8, key2, key1)
	for i := range uint64(3) {
		m, err := b.open("s", a.seal("s", []byte("hello")))
		if err != nil || m.From != "a" || m.Boot != 7 || m.Number != i+1 || string(m.Content) != "hello" {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	sealed := a.seal("s", []byte("hello"))
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := b.open("s", bad); err == nil {
			t.Errorf("took a message with byte %d changed", i)
		}
	}
	if _, err := b.open("elsewhere", sealed); !errors.Is(err, errSeal) {
		t.Errorf("replayed on another subject: %v", err)
	}
	if _, err := newTestSealer(t, "c", 1, key2).open("s", sealed); !errors.Is(err, errKey) {
		t.Errorf("unknown key: %v", err)
	}
	if _, err := newTestSealer(t, "c", 1).open("s", sealed); !errors.Is(err, errKey) {
		t.Errorf("no key: %v", err)
	}
	plain := newTestSealer(t, "c", 1).seal("s", []byte("hello"))
	if _, err := b.open("s", plain); !errors.Is(err, errClear) {
		t.Errorf("not sealed: %v", err)
	}
	if m, err := newTestSealer(t, "d", 1).open("s", plain); err != nil || string(m.Content) != "hello" {
		t.Errorf("without keys: %+v, %v", m, err)
	}
}

func FuzzOpen(f *testing.F) {
	s := newTestSealer(f, "a", 7, key1)
	f.Add(s.seal("s", []byte("hello")))
	f.Add(newTestSealer(f, "a", 7).seal("s", []byte("hello")))
	plain := newTestSealer(f, "b", 7)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = s.open("s", b)
		if m, err := plain.open("s", b); err == nil && m.From == "" {
			t.Error("opened a message of nobody")
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	f.Add(heartbeat{1, true, "n", "v", "a"}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeartbeat(b)
		if err != nil {
			return
		}
		if again, err := parseHeartbeat(append(h.append(nil), "added later"...)); err != nil || again != h {
			t.Errorf("%+v reads as %+v (%v)", h, again, err)
		}
	})
}

func TestRoster(t *testing.T) {
	r := newRoster("me")
	now := time.Unix(100, 0)
	say := func(id string, boot, seq uint64, bye bool) bool {
		return r.hear(id, boot, heartbeat{Seq: seq, Bye: bye, Name: id}, now)
	}
	check := func(what string, changed, want bool, members ...cluster.Member) {
		t.Helper()
		if changed != want {
			t.Errorf("%s: changed %v", what, changed)
		}
		list := r.list()
		if len(list) != len(members) {
			t.Fatalf("%s: members %v", what, list)
		}
		for i, m := range list {
			if m.ID != members[i].ID || m.Boot != members[i].Boot {
				t.Errorf("%s: members %v", what, list)
			}
		}
	}
	a1, a2 := cluster.Member{ID: "a", Boot: 1}, cluster.Member{ID: "a", Boot: 2}
	check("itself", say("me", 9, 1, false), false)
	check("a newcomer", say("a", 1, 5, false), true, a1)
	check("again", say("a", 1, 6, false), false, a1)
	check("an old goodbye", say("a", 1, 3, true), false, a1)
	check("another process", say("a", 2, 1, false), true, a2)
	check("a replay of the first", say("a", 1, 6, false), false, a2)
	check("goodbye", say("a", 2, 2, true), true)
	check("a replay after it", say("a", 2, 2, false), false)
	check("a newcomer", say("b", 1, 1, false), true, cluster.Member{ID: "b", Boot: 1})
	now = now.Add(time.Second)
	check("silence", r.expire(now), true)
	check("a replay after it", say("b", 1, 1, false), false)
	check("alive after all", say("b", 1, 2, false), true, cluster.Member{ID: "b", Boot: 1})
}

func TestOptions(t *testing.T) {
	self := cluster.Member{ID: "a"}
	for _, o := range []Options{
		{URLs: []string{"x"}}, {Self: self}, {Self: self, URLs: []string{"x"}, Group: "a.b"},
		{Self: self, URLs: []string{"x"}, Prefix: "a..b"}, {Self: self, URLs: []string{"x"}, Prefix: "a.>"},
		{Self: self, URLs: []string{"x"}, Keys: [][]byte{{1}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("took %+v", o)
		}
	}
}
