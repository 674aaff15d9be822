package logs

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// nothing is an empty LogStore.
type nothing struct{}

func (nothing) Apply(Delta) error                   { return nil }
func (nothing) Reset(string, uint64)                {}
func (nothing) Digest(string) Digest                { return Digest{} }
func (nothing) Snapshot(string, int) (Dump, error)  { return nil, nil }
func (nothing) Stage(string, uint64) (Stage, error) { return nil, nil }
func (nothing) Forget(string)                       {}
func (nothing) Assign(string, Role)                 {}

// sums is a LogStore of digests.
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

// staged is a Stage for a source of sums.
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
		t.Errorf("%d sources left out, %d known", left, len(l.order))
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
		t.Errorf("%d sources left out; a digest takes %d bytes", left, n)
	}
}

// Slots of removed sources are reused, and no two sources share a slot.
func TestSlotsAreUsedAgain(t *testing.T) {
	l := NewSet(group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})).New("index", 1, nothing{}, LogOptions{})
	for _, names := range [][]string{{"a", "b", "c"}, {"c"}, {"c", "d", "e", "f"}, {}, {"g", "h"}, {"h", "i", "j", "k"}} {
		l.SetSources(names)
		if len(l.order) != len(names) || len(l.sources) != len(names) {
			t.Errorf("%d sources known, want %v", len(l.order), names)
		}
		for _, s := range l.order {
			if l.slots[s.slot] != s {
				t.Errorf("%s shares the slot of %v", s.name, l.slots[s.slot])
			}
		}
	}
	if len(l.slots) != 4 {
		t.Errorf("%d slots of 4 sources at a time", len(l.slots))
	}
}

// A kept delta is an exact copy. Payloads of many sources share a frame, and a quiet source keeps
// its deltas for long, which would keep the frame in memory.
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

// sized is a LogStore with given entry counts.
type sized struct {
	nothing
	entries uint64
}

func (s *sized) Digest(string) Digest { return Digest{Count: s.entries} }

// A small source's ring takes no more memory than its snapshot.
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

// A source is unclaimed once every peer has sent a full digest without it.
func TestUnclaimed(t *testing.T) {
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{})
	l.SetSources([]string{"s"})
	f := func(want bool, when string) {
		t.Helper()
		if v, ok := l.Source("s"); !ok || v.Unclaimed != want {
			t.Errorf("%s: Unclaimed = %v", when, v.Unclaimed)
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

// If an engine restarts while its last deltas wait to be pushed, the deltas of the new incarnation
// are pushed once.
func TestPushOfNewIncarnation(t *testing.T) {
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
		t.Errorf("source is queued for pushing %d times, want 1", n)
	}
	if l.flush(); len(l.pushing) != 0 || len(g.Drain()) != 1 {
		t.Errorf("%d sources still queued after the push", len(l.pushing))
	}
	l.take(l.sources["s"], Delta{Source: "s", Inc: 3, First: 1, Last: 1, Payload: []byte{1}, Local: true})
	l.attend(l.sources["s"])
	if l.flush(); len(g.Drain()) != 1 {
		t.Error("next delta is not queued for pushing")
	}
}

// Deltas of an older incarnation are not served as those of a new one with the same sequence
// numbers.
func TestNewIncarnationDropsDeltas(t *testing.T) {
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
		t.Fatal("applied delta is not held")
	}
	if v := l.take(s, at(2, 5)); v != Gap {
		t.Fatal(v)
	}
	if _, ok := s.ring.from(0); ok {
		t.Error("deltas of the older incarnation are held")
	}
}

// TestDigestAtAPosition checks that digestAt returns the digest only at a position where a delta ends.
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

// TestReaderThatLacksSomething: a member that reads a stream but has missed a part does not claim
// to read it until the part has arrived. Otherwise peers would stop reading it.
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
			t.Errorf("after %d: claimsReading = %v, want %v", step.seq, got, step.want)
		}
	}
	l.sources["s"].load = &load{snapshot: true}
	l.announce(l.sources["s"])
	if told() {
		t.Error("claimsReading is true while a snapshot is loading")
	}
}

// A change is claimed once. Later claims do not repeat it.
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
						t.Errorf("%d: claim for %s has Reading = %v", i, c.Source, c.Reading)
					}
				}
			}
		}
		if claims != 1 || len(l.announcing) > 0 {
			t.Errorf("%d: %d claims sent, %d queued", i, claims, len(l.announcing))
		}
	}
}

// Claims are sent after waiting deltas, which would otherwise look lost.
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
		t.Errorf("sent frames of kinds %d, want %d", kinds, want)
	}
}
