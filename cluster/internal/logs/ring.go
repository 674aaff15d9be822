package logs

import (
	"bytes"
	"sort"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// ringEntry is an applied delta and the digest after it.
type ringEntry struct {
	group.Entry
	digest Digest
}

// ring keeps the last applied deltas of a source, without gaps.
type ring struct {
	entries []ringEntry
	bytes   int
}

const entryOverhead = 64

func (r *ring) push(e ringEntry, maxBytes, maxEntries int) {
	if n := len(r.entries); n > 0 && r.entries[n-1].Last+1 != e.First {
		r.clear()
	}
	r.entries = append(r.entries, e)
	r.bytes += len(e.Payload) + entryOverhead
	for len(r.entries) > maxEntries || (r.bytes > maxBytes && len(r.entries) > 1) {
		r.bytes -= len(r.entries[0].Payload) + entryOverhead
		r.entries[0] = ringEntry{}
		r.entries = r.entries[1:]
	}
}

func (r *ring) clear() { r.entries, r.bytes = nil, 0 }

// from returns the entries from sequence number next on. It returns false if no held entry starts
// at next.
func (r *ring) from(next uint64) ([]ringEntry, bool) {
	i := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].First >= next })
	if i == len(r.entries) || r.entries[i].First != next {
		return nil, false
	}
	return r.entries[i:], true
}

// digestAt returns the digest at position next.
func (r *ring) digestAt(next uint64) (Digest, bool) {
	i := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Last+1 >= next })
	if i == len(r.entries) || r.entries[i].Last+1 != next {
		return Digest{}, false
	}
	return r.entries[i].digest, true
}

// pending buffers deltas of one incarnation that wait for earlier ones, ordered by First.
type pending struct {
	deltas []Delta
	bytes  int
}

func (q *pending) len() int { return len(q.deltas) }

// add keeps d if there is room. If two deltas have the same First, the one added first stays.
func (q *pending) add(d Delta, maxBytes int) bool {
	i := sort.Search(len(q.deltas), func(i int) bool { return q.deltas[i].First >= d.First })
	if i < len(q.deltas) && q.deltas[i].First == d.First {
		if d.Local && q.deltas[i].Last == d.Last {
			q.deltas[i].Local = true
		}
		return true
	}
	size := len(d.Payload) + entryOverhead
	if q.bytes+size > maxBytes {
		return false
	}
	q.bytes += size
	if !d.Local {
		d.Payload = bytes.Clone(d.Payload) // otherwise its frame would stay in memory
	}
	q.deltas = append(q.deltas, Delta{})
	copy(q.deltas[i+1:], q.deltas[i:])
	q.deltas[i] = d
	return true
}

// startsAt reports whether the first delta starts at next.
func (q *pending) startsAt(next uint64) bool {
	return len(q.deltas) > 0 && q.deltas[0].First == next
}

// take removes and returns the delta that starts at next.
func (q *pending) take(next uint64) (Delta, bool) {
	if !q.startsAt(next) {
		return Delta{}, false
	}
	d := q.deltas[0]
	q.drop(1)
	return d, true
}

// dropBefore removes deltas of other incarnations and deltas that start before next.
func (q *pending) dropBefore(inc, next uint64) {
	n := 0
	for n < len(q.deltas) && (q.deltas[n].Inc != inc || q.deltas[n].First < next) {
		n++
	}
	q.drop(n)
}

func (q *pending) drop(n int) {
	for i := range n {
		q.bytes -= len(q.deltas[i].Payload) + entryOverhead
		q.deltas[i] = Delta{}
	}
	q.deltas = q.deltas[n:]
	if len(q.deltas) == 0 {
		q.deltas = nil
	}
}
