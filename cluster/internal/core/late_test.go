package core

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// writer appends a delta of s1 at a member every 20 ms.
func (tb *table) writer(id string, next *uint64, lasts time.Duration, each func()) {
	for end := tb.now + lasts; tb.now < end; {
		tb.appendAt(id, 1, *next)
		*next++
		tb.run(20 * time.Millisecond)
		each()
	}
}

// TestLateFramesAreNotExact: frames from a reader prove nothing about later ones. Its sources are exact while
// its heartbeats arrive, and the frames that these name.
func TestLateFramesAreNotExact(t *testing.T) {
	const bound = 720 * time.Millisecond
	for _, tc := range []struct {
		name string
		lost []byte // kinds of frames
		late bool
	}{
		{"no loss", nil, false},
		{"heartbeats are lost, changes arrive", []byte{group.KindBeat}, true},
		{"changes and their repair are lost", []byte{group.KindDelta, group.KindDigest, group.KindRangeReply}, true},
		{"changes are lost, and their repair arrives", []byte{group.KindDelta}, false},
	} {
		tb := newTable(t, partitioned, "a", "b")
		b, next := tb.get("b"), uint64(0)
		tb.writer("a", &next, 2*time.Second, func() {})
		tb.hold = func(from, _ string, f []byte) bool { return from == "a" && slices.Contains(tc.lost, f[2]) }
		begun, exact := tb.now, tb.now
		tb.writer("a", &next, 2*time.Second, func() {
			if v, _ := b.log.Source("s1"); v.Knowledge == knowledge.Exact {
				exact = tb.now
			}
		})
		if got := exact-begun > bound; got == tc.late {
			t.Errorf("%s: last exact %v after the fault began, late: %v", tc.name, exact-begun, tc.late)
		}
		tb.hold = nil
		tb.writer("a", &next, time.Second, func() {})
		if v, _ := b.log.Source("s1"); v.Knowledge != knowledge.Exact {
			t.Errorf("%s: %v a second after the fault", tc.name, v.Knowledge)
		}
	}
}

// TestNewConnectionIsNotExact: the first heartbeat of a new connection is no evidence that the frames of the
// last one arrived.
func TestNewConnectionIsNotExact(t *testing.T) {
	tb := newTable(t, partitioned, "a", "b")
	b, next := tb.get("b"), uint64(0)
	tb.writer("a", &next, 2*time.Second, func() {})
	for range 20 { // a link so slow that the peer stays up
		b.byID["a"].RTT.Add(tb.now, time.Second)
	}
	var late [][]byte // changes
	tb.hold = func(from, _ string, f []byte) bool {
		if from == "a" && f[2] == group.KindDelta {
			late = append(late, slices.Clone(f))
		}
		return from == "a"
	}
	tb.writer("a", &next, 1200*time.Millisecond, func() {})
	beats := 0
	tb.hold = func(from, _ string, f []byte) bool {
		if from == "a" && f[2] == group.KindBeat {
			beats++
		}
		return from == "a" && f[2] != group.KindBeat
	}
	for beats == 0 {
		tb.writer("a", &next, 20*time.Millisecond, func() {})
	}
	tb.writer("a", &next, 100*time.Millisecond, func() {
		if v, _ := b.log.Source("s1"); v.Knowledge == knowledge.Exact {
			t.Errorf("%v, at %+v of %d", v.Knowledge, v.Position, next)
		}
	})
	// The claims of missed frames show how far the reader is. Content is not exact until it is as far, even if
	// late changes arrive just now.
	tb.hold = func(from, _ string, f []byte) bool {
		return from == "a" && f[2] != group.KindBeat && f[2] != group.KindDigest
	}
	behind := 0
	for i := 0; behind < 30; i++ {
		tb.run(10 * time.Millisecond)
		if i%3 == 0 && len(late) > 0 {
			b.Receive("a", late[0])
			late = late[1:]
		}
		v, _ := b.log.Source("s1")
		if v.Lag > 0 {
			behind++
		}
		if v.Knowledge == knowledge.Exact {
			t.Fatalf("%v, at %+v of %d, %d behind", v.Knowledge, v.Position, next, v.Lag)
		}
	}
}

// TestPublisherIsQuiet: if several members read a source, the first of them sends its changes. Others are no
// evidence that these arrive.
func TestPublisherIsQuiet(t *testing.T) {
	for _, publisher := range []bool{true, false} {
		tb := newTable(t, partitioned, "a", "b", "c")
		first, second, follower := "a", "c", tb.get("b")
		for _, id := range []string{first, second} {
			tb.appendAt(id, 1, 0, 1, 2)
		}
		tb.run(time.Second)
		if v, _ := follower.log.Source("s1"); v.Knowledge != knowledge.Exact || tb.get(first).store.roles["s1"] != logs.RoleReader || tb.get(second).store.roles["s1"] == logs.RoleReader {
			t.Fatalf("%v before the fault, %s does not own s1", v.Knowledge, first)
		}
		quiet := map[bool]string{true: first, false: second}[publisher]
		tb.hold = func(from, to string, f []byte) bool {
			return from == quiet && to == follower.id && f[2] == group.KindBeat
		}
		next := uint64(3)
		tb.writer(first, &next, 720*time.Millisecond, func() {
			tb.appendAt(second, 1, next-1)
			tb.get(second).feed.Send([]byte("a frame"))
		})
		if v, _ := follower.log.Source("s1"); (v.Knowledge != knowledge.Exact) != publisher {
			t.Errorf("%v, if the silent reader publishes: %v", v.Knowledge, publisher)
		}
	}
}
