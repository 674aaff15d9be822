package logs

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// nothing is a LogStore that holds nothing.
type nothing struct{}

func (nothing) Apply(Delta) error                   { return nil }
func (nothing) Reset(string, uint64)                {}
func (nothing) Digest(string) Digest                { return Digest{} }
func (nothing) Snapshot(string, int) (Dump, error)  { return nil, nil }
func (nothing) Stage(string, uint64) (Stage, error) { return nil, nil }
func (nothing) Forget(string)                       {}
func (nothing) Assign(string, Role)                 {}

// sums is a LogStore that holds digests.
type sums map[string]Digest

func (s sums) Apply(d Delta) error {
	for _, b := range d.Payload {
		s[d.Source] = Digest{Count: s[d.Source].Count + 1, Xor: s[d.Source].Xor*31 + uint64(b)}
	}
	return nil
}
func (s sums) Reset(name string, _ uint64)         { delete(s, name) }
func (s sums) Digest(name string) Digest           { return s[name] }
func (s sums) Snapshot(string, int) (Dump, error)  { return nil, nil }
func (s sums) Stage(string, uint64) (Stage, error) { return nil, nil }
func (s sums) Forget(name string)                  { delete(s, name) }
func (s sums) Assign(string, Role)                 {}

// staged is a Stage of a source of sums.
type staged struct {
	store sums
	name  string
	d     Digest
}

func (s staged) Page([]byte) error { return nil }
func (s staged) Discard()          {}
func (s staged) Commit() error {
	s.store[s.name] = s.d
	return nil
}

func TestSourcesAreBounded(t *testing.T) {
	l := NewSet(group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})).New("index", 1, nothing{}, LogOptions{})
	names := []string{"", string(make([]byte, 256)), "s1", "s1"}
	if left := l.SetSources(names); left != 2 || len(l.order) != 1 {
		t.Errorf("%d left out, %d known", left, len(l.order))
	}
	names = nil
	for i := range 20_000 {
		names = append(names, fmt.Sprintf("10.%d.%d.1:8000/0", i/256, i%256))
	}
	left := l.SetSources(names)
	for _, s := range l.order {
		s.pos = Position{Inc: 1 << 63, Next: 1 << 63, Lost: 1 << 62}
		s.digest = Digest{Count: 1 << 63, Xor: 1 << 63}
	}
	if n := len(l.fullDigest().Append(l.g.Frame(group.KindDigest))); left == 0 || n > group.MaxFrame {
		t.Errorf("%d left out; a digest takes %d bytes", left, n)
	}
}

// Slots of sources that went are given out again, and no two sources have one slot.
func TestSlotsAreUsedAgain(t *testing.T) {
	l := NewSet(group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})).New("index", 1, nothing{}, LogOptions{})
	for _, names := range [][]string{{"a", "b", "c"}, {"c"}, {"c", "d", "e", "f"}, {}, {"g", "h"}, {"h", "i", "j", "k"}} {
		l.SetSources(names)
		if len(l.order) != len(names) || len(l.sources) != len(names) {
			t.Errorf("%d of %v are known", len(l.order), names)
		}
		for _, s := range l.order {
			if l.slots[s.slot] != s {
				t.Errorf("%s has the slot of %v", s.name, l.slots[s.slot])
			}
		}
	}
	if len(l.slots) != 4 {
		t.Errorf("%d slots of 4 sources at a time", len(l.slots))
	}
}

// What is kept of a delta is a copy of its own length: payloads of peers lie in
// frames with those of many sources, and a quiet source keeps its own for long.
func TestKeptDeltasLeaveTheirFrame(t *testing.T) {
	l := NewSet(group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})).New("index", 1, nothing{}, LogOptions{})
	l.SetSources([]string{"quiet"})
	s := l.sources["quiet"]
	frame := bytes.Repeat([]byte{7}, 1<<20)
	at := func(seq uint64, local bool) Delta {
		return Delta{Source: "quiet", Inc: 1, First: seq, Last: seq, Payload: frame[seq : seq+20 : len(frame)], Local: local}
	}
	for seq, want := range map[uint64]Verdict{0: Applied, 2: Gap, 3: Gap} {
		if v := l.take(s, at(seq, false)); v != want {
			t.Fatalf("%d: %v", seq, v)
		}
	}
	if v := l.Append(at(1, true)); v != Applied || s.pos.Next != 4 || s.pend.len() != 0 {
		t.Fatalf("%v, at %d with %d pending", v, s.pos.Next, s.pend.len())
	}
	clear(frame)
	kept, ok := s.ring.from(0)
	if !ok || len(kept) != 4 {
		t.Fatalf("%d kept", len(kept))
	}
	for _, e := range kept {
		if !bytes.Equal(e.Payload, bytes.Repeat([]byte{7}, 20)) || cap(e.Payload) > 64 {
			t.Errorf("%d: payload %v, of %d bytes", e.First, e.Payload, cap(e.Payload))
		}
	}
}

// sized is a LogStore that says how many entries its sources have.
type sized struct {
	nothing
	entries uint64
}

func (s *sized) Digest(string) Digest { return Digest{Count: s.entries} }

// Of a small source no more is kept than a snapshot of it would take.
func TestRingsFitTheirSources(t *testing.T) {
	store := &sized{}
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	l := NewSet(g).New("index", 1, store, LogOptions{})
	l.SetSources([]string{"s"})
	s, next := l.sources["s"], uint64(0)
	f := func(entries uint64, want int) {
		t.Helper()
		store.entries = entries
		for range 1000 {
			if v := l.take(s, Delta{Source: "s", Inc: 1, First: next, Last: next, Payload: make([]byte, 1<<10-entryOverhead)}); v != Applied {
				t.Fatal(v)
			}
			next++
		}
		if s.ring.bytes != want || len(s.ring.entries)<<10 != want {
			t.Errorf("%d entries: a ring of %d bytes, %d deltas; want %d bytes", entries, s.ring.bytes, len(s.ring.entries), want)
		}
	}
	f(0, ringLeast)
	f(1000, ringLeast)
	f(8<<10, 8<<10*entryBytes)
	f(1<<40, 256<<10)
	f(1000, ringLeast)
}

// A source is unclaimed once every other member has said all that it knows.
func TestUnclaimed(t *testing.T) {
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{})
	l.SetSources([]string{"s"})
	f := func(want bool, when string) {
		t.Helper()
		if v, ok := l.Source("s"); !ok || v.Unclaimed != want {
			t.Errorf("%s: unclaimed is %v", when, v.Unclaimed)
		}
	}
	f(false, "nobody else")
	b, c := g.Add(group.Member{ID: "b", Boot: 1}), g.Add(group.Member{ID: "c", Boot: 1})
	for _, p := range g.Peers {
		l.AddPeer(p)
	}
	b.Up, c.Up = true, true
	f(false, "nobody said anything")
	nothing := &group.Digests{Full: true}
	l.takeDigest(b, nothing)
	f(false, "one said nothing")
	l.takeDigest(c, nothing)
	f(true, "both know nothing")
	l.SetSources([]string{"s", "another"})
	f(false, "what they knew of a new source was ignored")
	l.takeDigest(b, nothing)
	l.takeDigest(c, nothing)
	f(true, "both know nothing of either")
	c.Up = false
	l.Changed()
	f(false, "one cannot be reached")
	c.Up = true
	l.Changed()
	l.takeDigest(c, &group.Digests{Claims: []group.Claim{{Source: []byte("s"), Pos: Position{Inc: 1}}}})
	f(false, "one knows it")
}

// An engine that starts anew while its last deltas wait to be pushed has those of the
// new life pushed once.
func TestPushOfANewLife(t *testing.T) {
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}, Share: group.ShareMesh})
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{})
	l.SetSources([]string{"s"})
	l.AddPeer(g.Add(group.Member{ID: "b", Boot: 1}))
	g.Peers[0].Link = true
	g.Drain()
	for inc := range uint64(3) {
		l.take(l.sources["s"], Delta{Source: "s", Inc: inc + 1, Payload: []byte{1}, Local: true})
	}
	l.attend(l.sources["s"])
	if n := len(l.pushing); n != 1 {
		t.Errorf("it waits %d times", n)
	}
	if l.flush(); len(l.pushing) != 0 || len(g.Drain()) != 1 {
		t.Errorf("%d wait after they were pushed", len(l.pushing))
	}
	l.take(l.sources["s"], Delta{Source: "s", Inc: 3, First: 1, Last: 1, Payload: []byte{1}, Local: true})
	l.attend(l.sources["s"])
	if l.flush(); len(g.Drain()) != 1 {
		t.Error("the next is not pushed")
	}
}

// Deltas of an older life are not handed out as those of a new one that begins with the same
// sequence numbers.
func TestNewLifeForgetsDeltas(t *testing.T) {
	l := NewSet(group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})).New("index", 1, nothing{}, LogOptions{})
	l.SetSources([]string{"s"})
	s := l.sources["s"]
	at := func(inc, seq uint64) Delta {
		return Delta{Source: "s", Inc: inc, First: seq, Last: seq, Payload: []byte{1}}
	}
	for seq := range uint64(3) {
		if v := l.take(s, at(1, seq)); v != Applied {
			t.Fatal(v)
		}
	}
	if _, ok := s.ring.from(0); !ok {
		t.Fatal("what was applied is not held")
	}
	if v := l.take(s, at(2, 5)); v != Gap {
		t.Fatal(v)
	}
	if _, ok := s.ring.from(0); ok {
		t.Error("deltas of the older life are held")
	}
}

// The digest at a position is that of the delta that ends there, and of no other.
func TestDigestAtAPosition(t *testing.T) {
	var r ring
	for _, e := range []struct{ first, last uint64 }{{0, 0}, {1, 4}, {5, 5}} {
		r.push(ringEntry{Entry: group.Entry{First: e.first, Last: e.last}, digest: Digest{Count: e.last}}, 1<<20, 10)
	}
	for next, want := range map[uint64]bool{0: false, 1: true, 2: false, 4: false, 5: true, 6: true, 7: false} {
		d, ok := r.digestAt(next)
		if ok != want || ok && d.Count != next-1 {
			t.Errorf("%d: %+v, %v", next, d, ok)
		}
	}
}

// TestReaderThatLacksSomething: who reads a stream and misses a part of it is no reader for
// the others, who would stop to read it themselves, until the part has come.
func TestReaderThatLacksSomething(t *testing.T) {
	l := NewSet(group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})).New("index", 1, nothing{}, LogOptions{Owned: true})
	l.SetSources([]string{"s"})
	l.Reading("s", true)
	told := func() bool {
		l.collect()
		l.sendDigests()
		return l.sources["s"].announced
	}
	at := func(seq uint64) Delta { return Delta{Source: "s", Inc: 1, First: seq, Last: seq, Payload: []byte{1}} }
	for _, step := range []struct {
		seq  uint64
		want bool
	}{{0, true}, {2, false}, {3, false}, {1, true}} {
		l.Append(at(step.seq))
		if got := told(); got != step.want {
			t.Errorf("after %d of the stream: a reader for others %v, want %v", step.seq, got, step.want)
		}
	}
	l.sources["s"].load = &load{snapshot: true}
	l.announce(l.sources["s"])
	if told() {
		t.Error("who loads a snapshot claims to read")
	}
}

// What changed is claimed once, and not again with what is claimed next.
func TestClaimedOnce(t *testing.T) {
	l, names := fleet(3, 2)
	l.g.Drain()
	for i, reads := range []bool{true, false, true} {
		l.Reading(names[0], reads)
		claims := 0
		for range 40 {
			l.g.Now += 25 * time.Millisecond
			l.Tick()
			for _, e := range l.g.Drain() {
				var m group.Digests
				if e.Frame[2] != group.KindDigest || m.Decode(group.Body(e.Frame)) != nil || m.Full {
					continue
				}
				for _, c := range m.Claims {
					if claims++; string(c.Source) != names[0] || c.Reading != reads {
						t.Errorf("%d: claims of %s that it is read: %v", i, c.Source, c.Reading)
					}
				}
			}
		}
		if claims != 1 || len(l.telling) > 0 {
			t.Errorf("%d: claimed %d times, and %d are to be claimed", i, claims, len(l.telling))
		}
	}
}

// Claims come after the deltas that wait, which would look lost if they were overtaken.
func TestClaimsFollowDeltas(t *testing.T) {
	l, names := fleet(3, 2)
	l.opt.Owned = false
	l.g.Drain()
	next := l.Position(names[0]).Next
	if v := l.Append(Delta{Source: names[0], Inc: 1, First: next, Last: next, Payload: []byte{1}}); v != Applied {
		t.Fatal(v)
	}
	l.Reading(names[0], true)
	l.Tick()
	var kinds []byte
	for _, e := range l.g.Drain() {
		kinds = append(kinds, e.Frame[2])
	}
	if want := []byte{group.KindDelta, group.KindDigest}; !bytes.Equal(kinds, want) {
		t.Errorf("frames of the kinds %d were sent, not %d", kinds, want)
	}
}
