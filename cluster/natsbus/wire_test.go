package natsbus

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/internal/window"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
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
		m, err := b.open("s", a.seal("s", []byte("hello")), maxUnproven)
		if err != nil || m.From != "a" || m.Boot != 7 || m.Number != i+1 || string(m.Content) != "hello" {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	sealed := a.seal("s", []byte("hello"))
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := b.open("s", bad, maxUnproven); err == nil {
			t.Errorf("accepted a message with byte %d changed", i)
		}
	}
	if _, err := b.open("elsewhere", sealed, maxUnproven); !errors.Is(err, errSeal) {
		t.Errorf("replayed on another subject: %v", err)
	}
	if _, err := newTestSealer(t, "c", 1, key2).open("s", sealed, maxUnproven); !errors.Is(err, errKey) {
		t.Errorf("unknown key: %v", err)
	}
	if _, err := newTestSealer(t, "c", 1).open("s", sealed, maxUnproven); !errors.Is(err, errKey) {
		t.Errorf("no key: %v", err)
	}
	plain := newTestSealer(t, "c", 1).seal("s", []byte("hello"))
	if _, err := b.open("s", plain, maxUnproven); !errors.Is(err, errClear) {
		t.Errorf("not sealed: %v", err)
	}
	if m, err := newTestSealer(t, "d", 1).open("s", plain, maxUnproven); err != nil || string(m.Content) != "hello" {
		t.Errorf("without keys: %+v, %v", m, err)
	}
}

func FuzzOpen(f *testing.F) {
	s := newTestSealer(f, "a", 7, key1)
	f.Add(s.seal("s", []byte("hello")))
	f.Add(newTestSealer(f, "a", 7).seal("s", []byte("hello")))
	plain := newTestSealer(f, "b", 7)
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		_, _ = s.open("s", b, maxUnproven)
		if m, err := plain.open("s", b, maxUnproven); err == nil && m.From == "" {
			t.Error("opened a message without a sender")
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	f.Add(heartbeat{1, true, "n", "v", "a", true, "z"}.append(nil))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		h, err := parseHeartbeat(b)
		if err != nil {
			return
		}
		if again, err := parseHeartbeat(append(h.append(nil), "added later"...)); err != nil || again != h {
			t.Errorf("%+v decodes as %+v (%v)", h, again, err)
		}
	})
}

// A member of a release without zones has no zone.
func TestHeartbeatWithoutZone(t *testing.T) {
	h := heartbeat{Seq: 1, Name: "n", Version: "v", Addr: "a", Answers: true}
	b := h.append(nil)
	if got, err := parseHeartbeat(b[:len(b)-1]); err != nil || got != h {
		t.Errorf("%+v decodes as %+v (%v)", h, got, err)
	}
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
			t.Errorf("%s: changed = %v", what, changed)
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
			t.Errorf("accepted %+v", o)
		}
	}
}

// TestProof: a sender's messages are accepted from its answer to a nonce on. An answer is invalid
// for another process, and after all proofs were dropped.
func TestProof(t *testing.T) {
	a, b, late := newTestSealer(t, "a", 7, key1), newTestSealer(t, "b", 8, key1), newTestSealer(t, "b", 9, key1)
	who := process{"a", 7}
	before := a.seal("s", []byte("before"))
	open := func(s *sealer, sealed []byte) message {
		t.Helper()
		m, err := s.open("s", sealed, maxUnproven)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ask, ok := b.ask(who)
	if m := open(b, before); !ok || !m.Unproven {
		t.Fatalf("%v: %+v counts as proven", ok, m)
	}
	answer := a.seal("s", ask[:])
	if open(late, answer); late.prove(open(late, answer), ask) {
		t.Error("answer for another process was accepted")
	}
	if m := open(b, answer); b.prove(m, challenge{}) || b.prove(m, challenge{1}) || !b.prove(m, ask) || b.prove(m, ask) {
		t.Error("prove() returned a wrong result")
	}
	if _, err := b.open("elsewhere", a.seal("elsewhere", nil), 0); err != nil {
		t.Error(err)
	}
	for _, old := range [][]byte{before, answer} {
		if _, err := b.open("s", old, 0); !errors.Is(err, errEarly) {
			t.Errorf("message from before the proof: %v", err)
		}
	}
	if err := a.setKeys([][]byte{key2}); err != nil {
		t.Fatal(err)
	}
	if err := b.setKeys([][]byte{key2, key1}); err != nil {
		t.Fatal(err)
	}
	if m := open(b, a.seal("s", nil)); m.Unproven {
		t.Error("sender is proven after a change of keys")
	}
	if _, err := b.open("s", before, 0); !errors.Is(err, errEarly) {
		t.Errorf("after a change of keys: %v", err)
	}
	for i := range uint64(maxOthers) {
		other := process{"x", i}
		if c, ok := b.ask(other); !ok || !b.prove(message{From: other.id, Boot: i, Number: 1}, c) {
			t.Fatal("sender is not proven")
		}
	}
	if m := open(b, answer); !m.Unproven || b.prove(m, ask) {
		t.Error("recorded answer was accepted after all proofs were dropped")
	}
}

func FuzzProof(f *testing.F) {
	f.Add((&proof{Ask: challenge{1}, Answer: challenge{2}, Beat: heartbeat{1, false, "n", "v", "a", true, "z"}}).append(nil))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		p, err := parseProof(b)
		if err != nil {
			return
		}
		if again, err := parseProof(p.append(nil)); err != nil || again != p {
			t.Errorf("%+v decodes as %+v (%v)", p, again, err)
		}
	})
}

// TestOrder: messages of a subject are accepted in any order, each once. Messages too far behind
// are rejected without opening them.
func TestOrder(t *testing.T) {
	a, b := newTestSealer(t, "a", 7, key1), newTestSealer(t, "b", 8, key1)
	ask, _ := b.ask(process{"a", 7})
	if m, err := b.open("ask", a.seal("ask", ask[:]), maxUnproven); err != nil || !b.prove(m, ask) {
		t.Fatal(err)
	}
	sealed := make([][]byte, window.Size+100)
	for i := range sealed {
		sealed[i] = a.seal([]string{"s", "other"}[i%2], nil)
	}
	take := func(subject string, i int, want error) {
		t.Helper()
		if _, err := b.open(subject, sealed[i], 0); !errors.Is(err, want) {
			t.Errorf("message %d on %s: %v, want %v", i, subject, err, want)
		}
	}
	take("s", 20, nil)
	take("s", 0, nil)
	take("s", 10, nil)
	take("other", 1, nil) // subjects are independent
	for _, i := range []int{10, 20, 0} {
		take("s", i, errAgain)
		sealed[i][len(sealed[i])-1] ^= 1 // so that it cannot be opened
		take("s", i, errAgain)
	}
	take("s", 4, nil)
	take("s", window.Size+4, nil)
	take("s", 4, errReplay)
	take("s", 2, errReplay)
	take("s", 6, nil)
	take("other", 3, nil)
	sealed[8][len(sealed[8])-1] ^= 1
	take("s", 8, errSeal)
	sealed[8][len(sealed[8])-1] ^= 1
	take("s", 8, nil) // a message that could not be opened does not count
}

// TestUnknownPeers: large messages of unproven senders are not opened.
func TestUnknownPeers(t *testing.T) {
	a, b := newTestSealer(t, "a", 7, key1), newTestSealer(t, "b", 8, key1)
	for size, want := range map[int]error{100: nil, maxUnproven: errUnproven, 1 << 20: errUnproven} {
		if m, err := b.open("s", a.seal("s", make([]byte, size)), maxUnproven); !errors.Is(err, want) || err == nil && !m.Unproven {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := b.open("s", a.seal("s", nil), 0); !errors.Is(err, errUnproven) {
		t.Errorf("frame of an unproven sender: %v", err)
	}
}

// BenchmarkRefuse measures the cost of messages that an attacker without the key can send.
func BenchmarkRefuse(b *testing.B) {
	a, us := newTestSealer(b, "a", 7, key1), newTestSealer(b, "b", 8, key1)
	ask, _ := us.ask(process{"a", 7})
	if m, err := us.open("ask", a.seal("ask", ask[:]), maxUnproven); err != nil || !us.prove(m, ask) {
		b.Fatal(err)
	}
	broken := func(s *sealer, size int) []byte {
		m := s.seal("s", make([]byte, size))
		m[len(m)-1] ^= 1
		return m
	}
	taken := a.seal("s", nil)
	if _, err := us.open("s", taken, 0); err != nil {
		b.Fatal(err)
	}
	stranger := newTestSealer(b, "x", 1, key1)
	for _, c := range []struct {
		name    string
		message []byte
		unheard int
	}{
		{"heartbeat of a stranger", broken(stranger, 100), maxUnproven},
		{"large heartbeat of a stranger", broken(stranger, 512<<10), maxUnproven},
		{"large frame of a stranger", broken(stranger, 512<<10), 0},
		{"large frame of a member", broken(a, 512<<10), 0},
		{"again", taken, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := us.open("s", c.message, c.unheard); err == nil {
					b.Fatal("message was accepted")
				}
			}
		})
	}
}

// TestOldRelease: a process whose release cannot prove that it is alive is not a member and is
// counted.
func TestOldRelease(t *testing.T) {
	b, err := New(Options{Self: cluster.NewMember("a", "v"), URLs: []string{"x"}, Keys: [][]byte{key2}})
	if err != nil {
		t.Fatal(err)
	}
	subject, old := b.subject(subjectBeat), newTestSealer(t, "old", 7, key2)
	b.onBeat(&nats.Msg{Subject: subject, Data: old.seal(subject, heartbeat{Seq: 1, Name: "old"}.append(nil))})
	if b.refused[refusedRelease] != 1 || len(b.roster.members) != 0 {
		t.Errorf("refused %v, members %v", b.refused, b.roster.members)
	}
}
