package cycle

import (
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// fleet keeps the views of a pool's endpoints from one decision to the next. A decision reads only
// endpoints that have changed in between: reading all of a large pool takes longer than everything
// else. It belongs to one Cycle, so nothing is locked.
type fleet struct {
	endpoints []*endpoint.Endpoint
	kept      []kept
	terms     []Terms
	turn      uint64 // number of observations
	clock     endpoint.Clock
}

// kept is the view of one endpoint, as of its last change.
type kept struct {
	timed   endpoint.Timed
	changes uint64 // the endpoint's count of changes, plus one; 0: never read
	turn    uint64 // observation for which advance was called
	flags   flags
	View
}

// flags are the properties of one endpoint that decide which passes over the candidates are needed.
// In large pools each pass takes as long as memory needs to deliver the candidates.
type flags uint8

const (
	flagRanks    flags = 1 << iota // the engine has several ranks
	flagSlots                      // its sequence limit is or was known
	flagFull                       // it has reached its permit limit
	flagAdapters                   // it reports adapters
	flagHelps                      // it neither serves whole requests nor decodes
)

// follow begins an observation of a pool at a time in Unix nanoseconds.
func (f *fleet) follow(s *endpoint.Snapshot, now int64) {
	f.turn++
	same := len(f.endpoints) == len(s.Endpoints) && (len(s.Endpoints) == 0 || &f.endpoints[0] == &s.Endpoints[0])
	if f.clock.Set(now) && same {
		return
	}
	f.endpoints = s.Endpoints
	f.kept, f.terms = resize(f.kept, len(s.Endpoints)), resize(f.terms, len(s.Endpoints))
	clear(f.kept[:cap(f.kept)])
}

// view returns the view of the endpoint at position i of the pool, and adds its properties to seen.
func (f *fleet) view(s *endpoint.Snapshot, i int32, seen *flags) *kept {
	k := &f.kept[i]
	if changes := uint64(s.Mark(i).Changes()) + 1; k.changes != changes {
		k.read(s.Endpoints[i], &f.clock)
		f.terms[i].read(k)
		k.changes = changes
	}
	*seen |= k.flags
	return k
}

func (k *kept) read(ep *endpoint.Endpoint, clock *endpoint.Clock) {
	v := &k.View
	v.Endpoint, v.Cost = ep, ep.Cost()
	ep.ReadState(&v.Load, &v.Reading, &k.timed, clock)
	k.flags = 0
	k.flags.set(flagRanks, v.Ranks > 1)
	k.flags.set(flagSlots, k.timed.MaySlot())
	k.flags.set(flagFull, v.full())
	k.flags.set(flagAdapters, v.LoRA() != nil)
	k.flags.set(flagHelps, v.Role&endpoint.RoleDecode == 0)
}

func (f *flags) set(flag flags, yes bool) {
	if yes {
		*f |= flag
	}
}

// advance sets the parts of v that depend on the time of the decision or on other candidates.
func (f *fleet) advance(k *kept) {
	v := &k.View
	k.timed.Advance(&v.Load, &v.Reading, &f.clock)
	v.freeElsewhere, k.turn = true, f.turn
	if v.Ranks <= 1 {
		v.rank = nil
		return
	}
	if v.rank == nil {
		v.rank = new(View)
	}
	*v.rank = v.PerRank()
}
