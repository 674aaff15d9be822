package clustertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
)

// Sums is a LogStore that adds up the numbers in its payloads.
type Sums struct {
	mu    sync.Mutex
	of    map[string]uint64
	roles map[string]cluster.Role
}

// NewSums returns an empty store.
func NewSums() *Sums { return &Sums{of: map[string]uint64{}, roles: map[string]cluster.Role{}} }

var errPayload = errors.New("clustertest: payload is not 8 bytes long")

// Apply adds the payload's number.
func (s *Sums) Apply(d cluster.Delta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(d.Payload) != 8 {
		return errPayload
	}
	s.of[d.Source] += binary.LittleEndian.Uint64(d.Payload)
	return nil
}

// Reset zeroes the sum.
func (s *Sums) Reset(source string, _ uint64) { s.set(source, 0) }

// Digest is the sum.
func (s *Sums) Digest(source string) cluster.Digest { return cluster.Digest{Xor: s.Get(source)} }

// Snapshot is one page.
func (s *Sums) Snapshot(source string, _ int) (cluster.Dump, error) {
	return Pages([][]byte{binary.LittleEndian.AppendUint64(nil, s.Get(source))}), nil
}

// Stage is a new sum.
func (s *Sums) Stage(source string, _ uint64) (cluster.Stage, error) {
	v := uint64(0)
	return &Stage{
		Add: func(p []byte) error {
			if len(p) != 8 {
				return errPayload
			}
			v = binary.LittleEndian.Uint64(p)
			return nil
		},
		Take: func() error { s.set(source, v); return nil },
	}, nil
}

// Forget zeroes the sum.
func (s *Sums) Forget(source string) { s.set(source, 0) }

// Assign stores the role.
func (s *Sums) Assign(source string, r cluster.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roles[source] = r
}

func (s *Sums) set(source string, v uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[source] = v
}

// Get returns the sum of a source.
func (s *Sums) Get(source string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[source]
}

// Role returns this replica's role for a source.
func (s *Sums) Role(source string) cluster.Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roles[source]
}

// Table is a GaugeSink. It is also a FeedSink that keeps the last hint of each origin under the key
// "hint".
type Table struct {
	mu sync.Mutex
	of map[string]map[string]string
}

// Merge stores the value.
func (t *Table) Merge(origin string, _ uint64, key string, value []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[origin] == nil {
		t.of[origin] = map[string]string{}
	}
	t.of[origin][key] = string(value)
	return nil
}

// Drop removes the origin.
func (t *Table) Drop(origin string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, origin)
}

// Deliver stores the hint.
func (t *Table) Deliver(origin string, version uint64, payload []byte) error {
	return t.Merge(origin, version, "hint", payload)
}

// Get returns a value.
func (t *Table) Get(origin, key string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[origin][key]
}

// Replica is a Node with a gauge "load", a feed "hints" and a log "index".
type Replica struct {
	*cluster.Node
	Load  *cluster.Gauge
	Hints *cluster.Feed
	Index *cluster.Log
	Sums  *Sums
	Loads *Table
	Feeds *Table
}

// NewReplica returns a replica that is not open.
func NewReplica(opt cluster.Options) *Replica {
	r := &Replica{
		Node:  cluster.New(opt),
		Sums:  NewSums(),
		Loads: &Table{of: map[string]map[string]string{}},
		Feeds: &Table{of: map[string]map[string]string{}},
	}
	r.Load = r.Gauge("load", 1, r.Loads)
	r.Hints = r.Feed("hints", 1, r.Feeds)
	r.Index = r.Log("index", 1, r.Sums, cluster.LogOptions{Owned: true})
	return r
}

// Start opens the replica with sources.
func (r *Replica) Start(t testing.TB, sources ...string) {
	t.Helper()
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Index.SetSources(sources)
}

// Append appends the number seq+1 at sequence number seq of incarnation 1.
func (r *Replica) Append(source string, seq uint64) cluster.Verdict {
	return r.Index.Append(cluster.Delta{
		Source: source, Inc: 1, First: seq, Last: seq, Payload: binary.LittleEndian.AppendUint64(nil, seq+1),
	})
}

// Stop closes replicas.
func Stop(t testing.TB, rs ...*Replica) {
	t.Helper()
	for _, r := range rs {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Joined returns why some replica does not see all others as up, or "".
func Joined(rs ...*Replica) string {
	for _, r := range rs {
		s := r.Status()
		if len(s.Peers) != len(rs)-1 {
			return fmt.Sprintf("%s sees %d peers, not %d (%s)", r.Self().Name, len(s.Peers), len(rs)-1, s.Health.Line)
		}
		for _, p := range s.Peers {
			if p.State != "up" {
				return fmt.Sprintf("%s sees %s %s", r.Self().Name, p.Name, p.State)
			}
		}
	}
	return ""
}

// ReadAll makes the readers of sources append numbers up to seq. It returns why some replica does
// not have all numbers, or "".
func ReadAll(sources []string, seq uint64, rs ...*Replica) string {
	for _, r := range rs {
		for _, s := range sources {
			read := r.Sums.Role(s) == cluster.RoleReader
			r.Index.Reading(s, read)
			for i := r.Index.Position(s).Next; read && i <= seq; i++ {
				r.Append(s, i)
			}
		}
	}
	for _, r := range rs {
		for _, s := range sources {
			if got, want := r.Sums.Get(s), (seq+1)*(seq+2)/2; got != want {
				return fmt.Sprintf("%s: sum of %s is %d, not %d", r.Self().Name, s, got, want)
			}
		}
	}
	return ""
}

// LoadMismatch returns why some other replica does not have v as the load of r, or "".
func (r *Replica) LoadMismatch(v string, others ...*Replica) string {
	for _, o := range others {
		if got := o.Loads.Get(r.Self().ID, "k"); o != r && got != v {
			return fmt.Sprintf("%s believes %q of %s, not %q", o.Self().Name, got, r.Self().Name, v)
		}
	}
	return ""
}
