package share

import (
	"errors"
	"strings"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
)

var (
	errNotShared = errors.New("share: the source is not shared")
)

// store is the LogStore backed by the precise index.
type store struct{ share *Index }

func (st store) find(name string) *source {
	shown, _, _ := strings.Cut(name, suffixMark)
	if s := (*st.share.byName.Load())[shown]; s != nil && s.name == name {
		return s
	}
	return nil
}

// Apply implements cluster.LogStore.
func (st store) Apply(d cluster.Delta) error {
	s := st.find(d.Source)
	if s == nil {
		return errNotShared
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != plan.Shared {
		return errNotShared
	}
	if !s.follows(d.First) {
		s.tails.Reset()
	}
	unsure, missed := false, len(d.Payload) > 0 && d.Payload[0]&payloadMissed != 0
	if l := s.local.Load(); l != nil && d.Local && l.inc == d.Inc && l.first == d.First {
		s.apply(l.delta)
		if !fits(l.delta) {
			s.tails.Reset() // other members have them from its parts
		}
	} else {
		scratch, _ := st.share.scratch.Get().(*block.Delta)
		if scratch == nil {
			scratch = &block.Delta{}
		}
		defer st.share.scratch.Put(scratch)
		parts, maybe, err := s.decode(d.Payload, scratch)
		if err != nil {
			s.head.mayBeStale, s.head.have = true, false
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
		s.head.mayBeStale = true
	}
	if unsure || missed {
		return cluster.ErrUnsure
	}
	return nil
}

// apply performs one delta. The caller holds mu.
func (s *source) apply(d *block.Delta) {
	for i := range d.Ops {
		if d.Ops[i].Kind == block.OpClear {
			s.head.mayBeStale = false // earlier errors are gone
			break
		}
	}
	if len(d.Ops) > 0 {
		s.x.Apply(s.src, d)
		s.tails.Note(d)
		s.shown.lastChange.Store(monotime.Now().UnixNano())
	}
}

// Reset implements cluster.LogStore.
func (st store) Reset(name string, _ uint64) {
	if s := st.find(name); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mode == plan.Shared {
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
	if s.mode != plan.Shared {
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
