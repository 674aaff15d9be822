package share

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// mode is who writes the content of a source.
type mode uint8

const (
	modeAsking mode = iota // nobody: the engine's incarnation is being asked for
	modeDirect             // this replica's reader; nothing is shared
	modeShared             // the log: what is read here goes through it
)

var modeNames = [...]string{"asking", "direct", "shared"}

func (m mode) String() string { return modeNames[m] }

// source is one event stream as this replica shares it. mu guards the
// mode together with what the index holds of the source: whoever writes the
// content holds mu and has looked at the mode. It is taken below the lock
// that the group has for the source.
type source struct {
	name string
	src  indexer.Source
	ep   *endpoint.Endpoint
	at   events.Stream
	of   *events.Model
	x    *indexer.Index

	mu   sync.Mutex
	mode mode
	head shareHead
	// tails are of the batches up to head.last, as far as they came without a gap.
	tails indexer.Tails
	inc   uint64 // incarnation that this replica's reader reads

	seen   atomic.Uint32 // mode, for those who do not wait for mu
	cold   atomic.Bool   // the stream is read from its beginning, not from the log's position
	newer  atomic.Uint64 // incarnation that peers know and this replica's reader is behind
	local  atomic.Pointer[localDelta]
	role   atomic.Uint32 // cluster.Role
	up     atomic.Bool   // the stream is connected
	verify atomic.Bool   // it was connected anew: the incarnation is to be read again
	state  atomic.Uint32 // events.State of what the log knows
	behind atomic.Uint64
	full   atomic.Bool // followed since the cache was empty
	reader atomic.Pointer[string]
	reason atomic.Pointer[string] // why the log knows no better

	plan sourcePlan // of the plan
}

// localDelta is a batch on its way through the log in its decoded form.
type localDelta struct {
	payload *byte
	delta   *indexer.Delta
}

var (
	errNotShared = errors.New("share: the source is not shared")
)

// become changes the mode and empties the content.
func (s *source) become(m mode, inc uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode, s.inc, s.head = m, inc, shareHead{}
	s.tails.Reset()
	s.seen.Store(uint32(m))
	s.state.Store(uint32(events.Approximate))
	s.full.Store(false)
	s.x.Reset(s.src)
}

// isMode reports the mode and the incarnation that is read.
func (s *source) isMode() (mode, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode, s.inc
}

// store is the LogStore over the precise index.
type store struct{ share *Index }

func (st store) find(name string) *source { return (*st.share.byName.Load())[name] }

// Apply implements cluster.LogStore.
func (st store) Apply(d cluster.Delta) error {
	s := st.find(d.Source)
	if s == nil {
		return errNotShared
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != modeShared {
		return errNotShared
	}
	if !s.follows(d.First) {
		s.tails.Reset()
	}
	unsure := false
	if l := s.local.Load(); l != nil && len(d.Payload) > 0 && l.payload == &d.Payload[0] {
		s.apply(l.delta)
		if !fits(l.delta) {
			s.tails.Reset() // others have them from its parts
		}
	} else {
		scratch, _ := st.share.scratch.Get().(*indexer.Delta)
		if scratch == nil {
			scratch = &indexer.Delta{}
		}
		defer st.share.scratch.Put(scratch)
		parts, maybe, err := s.decode(d.Payload, scratch)
		if err != nil {
			s.head.doubt, s.head.have = true, false
			s.tails.Reset()
			return err
		}
		unsure = maybe
		for i := range parts {
			s.apply(&parts[i])
		}
		if len(parts) > 1 {
			s.tails.Reset()
		}
	}
	s.head.have, s.head.last, s.head.sum = true, d.Last, payloadSum(d.Payload)
	if unsure {
		s.head.doubt = true
		return cluster.ErrUnsure
	}
	return nil
}

// apply performs one delta; mu is held.
func (s *source) apply(d *indexer.Delta) {
	for i := range d.Ops {
		if d.Ops[i].Kind == indexer.OpClear {
			s.head.doubt = false // what was wrong before is gone
			break
		}
	}
	if len(d.Ops) > 0 {
		s.x.Apply(s.src, d)
		s.tails.Note(d)
	}
}

// Reset implements cluster.LogStore.
func (st store) Reset(name string, _ uint64) {
	if s := st.find(name); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mode == modeShared {
			s.head = shareHead{}
			s.tails.Reset()
			s.x.Reset(s.src)
		}
	}
}

// Digest implements cluster.LogStore.
func (st store) Digest(name string) cluster.Digest {
	s := st.find(name)
	if s == nil {
		return cluster.Digest{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != modeShared {
		return cluster.Digest{}
	}
	n, xor := s.x.Digest(s.src)
	return cluster.Digest{Count: n, Xor: xor}
}

// Forget implements cluster.LogStore.
func (st store) Forget(name string) { st.Reset(name, 0) }

// Assign implements cluster.LogStore.
func (st store) Assign(name string, r cluster.Role) {
	if s := st.find(name); s != nil {
		s.role.Store(uint32(r))
	}
	st.share.poke()
}
