package sessions

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Key identifies a session without storing its text.
type Key uint64

// KeyOf returns the key of a session name, 0 for "".
func KeyOf(session string) Key {
	if session == "" {
		return 0
	}
	return Key(xxhash.Sum64String(session) | 1)
}

// KeyIn returns the key of a tenant's session, 0 for session "". Sessions of different tenants have
// different keys.
func KeyIn(tenant, session string) Key {
	if tenant == "" || session == "" {
		return KeyOf(session)
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(tenant)
	_, _ = d.WriteString("\x00")
	_, _ = d.WriteString(session)
	return Key(d.Sum64() | 1)
}

// ResponseKey returns the key of a response stored by an engine; 0 for "".
func ResponseKey(id string) Key { return KeyIn("\x00response", id) }

// clusters is the first number for remote clusters.
const clusters block.EndpointID = 1 << 31

// Cluster returns the number of a remote cluster among endpoints.
func Cluster(name string) block.EndpointID {
	return clusters | block.EndpointID(xxhash.Sum64String(name)&(1<<31-1))
}

// IsCluster reports whether a number is a cluster's.
func IsCluster(id block.EndpointID) bool { return id >= clusters }

const (
	numShards = 16
	// DefaultSize is the default minimum capacity of a table.
	DefaultSize = 1 << 17
)

// Table records the endpoint of each session's last request. It is bounded: when full, it drops the
// least recently used half. A session takes about 24 bytes, the default table at most 6 MB. Safe
// for concurrent use.
type Table struct {
	half   int
	hook   atomic.Pointer[func(Binding)]
	merged atomic.Pointer[func(Binding)]
	shards [numShards]shard

	awaited atomic.Int32 // number of sessions in comings
	comings comings
}

// Binding is one session's endpoint.
type Binding struct {
	Session  Key
	Endpoint block.EndpointID
	At       time.Time // the later one wins; within 17 ms the one merged last
}

type shard struct {
	mu         sync.Mutex
	young, old slots
}

// New returns a table for size sessions; 0 means DefaultSize.
func New(size int) *Table {
	if size <= 0 {
		size = DefaultSize
	}
	return &Table{half: max(size/numShards, 1)}
}

// OnBind sets a function that is called after every Bind, on the caller's goroutine. Merge does not
// call it.
func (s *Table) OnBind(f func(Binding)) { s.hook.Store(&f) }

// OnMerge sets a function that is called after every Merge, on the caller's goroutine.
func (s *Table) OnMerge(f func(Binding)) { s.merged.Store(&f) }

// Bind records that a session's request is sent to an endpoint.
func (s *Table) Bind(b Binding) {
	s.put(b)
	if f := s.hook.Load(); f != nil && *f != nil && b.Session != 0 {
		(*f)(b)
	}
}

// Merge adds a binding from another replica. A binding older than the present one changes nothing.
func (s *Table) Merge(b Binding) {
	s.put(b)
	if f := s.merged.Load(); f != nil && *f != nil && b.Session != 0 {
		(*f)(b)
	}
}

func (s *Table) put(b Binding) {
	if b.Session == 0 {
		return
	}
	at := stampOf(b.At)
	s.merge(b, at)
	s.came(b.Session)
}

func (s *Table) merge(b Binding, at stamp) {
	sh := s.shard(b.Session)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if have, ok := sh.get(b.Session); ok && have.at.after(at) {
		return
	}
	if sh.young.n >= s.half {
		sh.old, sh.young = sh.young, sh.old
		sh.young.clear()
	}
	sh.young.put(slot{b.Session, b.Endpoint, at})
}

// Lookup returns the endpoint of a session's last request.
func (s *Table) Lookup(k Key) (block.EndpointID, bool) {
	if k == 0 {
		return 0, false
	}
	sh := s.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b, ok := sh.get(k)
	return b.id, ok
}

func (s *Table) shard(k Key) *shard { return &s.shards[k>>60%numShards] }

func (sh *shard) get(k Key) (slot, bool) {
	if b, ok := sh.young.get(k); ok {
		return b, true
	}
	return sh.old.get(k)
}
