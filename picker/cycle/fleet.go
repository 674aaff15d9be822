package cycle

import (
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// fleet keeps the views of a pool's endpoints from one decision to the next. A decision reads only
// endpoints that have changed in between, because reading all of a large pool takes the most time. It
// belongs to one Cycle, so nothing is locked.
type fleet struct {
	endpoints []*endpoint.Endpoint
	turn      uint64 // number of observations
	clock     endpoint.Clock

	// By position in the pool.
	marks []mark
	kept  []storedView
	terms []Terms
	slots []slotTerms

	// Results of shareSlots, if it ran in this observation: sequence limits by position, 0 if
	// unknown, and the roles that have a free slot.
	shared bool
	limits []int64
	free   [endpoint.Roles]bool
}

// mark tells when an endpoint was read.
type mark struct {
	changes uint32 // its count of changes
	read    bool
	flags   flags
}

// storedView is the view of one endpoint, as of its last change.
type storedView struct {
	timed endpoint.Timed
	turn  uint64 // observation for which advance was called
	place int32  // position in the pool
	View
}

// slotTerms decide whether an engine, or the rank that would get the request, has a free slot.
type slotTerms struct {
	known             fit.KeptSlots
	running, requests int64
	role              endpoint.Role
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
	f.shared = false
	same := len(f.endpoints) == len(s.Endpoints) && (len(s.Endpoints) == 0 || &f.endpoints[0] == &s.Endpoints[0])
	if f.clock.Set(now) && same {
		return
	}
	f.endpoints = s.Endpoints
	n := len(s.Endpoints)
	f.marks, f.kept, f.terms = resize(f.marks, n), resize(f.kept, n), resize(f.terms, n)
	f.slots, f.limits = resize(f.slots, n), resize(f.limits, n)
	clear(f.marks)
	clear(f.kept[:cap(f.kept)])
}

// view returns the view of the endpoint at position i of the pool, and adds its properties to seen.
func (f *fleet) view(s *endpoint.Snapshot, i int32, seen *flags) *storedView {
	m := &f.marks[i]
	if changes := s.Mark(i).Changes(); !m.read || m.changes != changes {
		m.flags = f.read(s.Endpoints[i], i)
		m.changes, m.read = changes, true
	}
	*seen |= m.flags
	return &f.kept[i]
}

// read reads the endpoint at position i.
func (f *fleet) read(ep *endpoint.Endpoint, i int32) (set flags) {
	k := &f.kept[i]
	k.place = i
	v := &k.View
	v.Endpoint, v.Cost = ep, ep.Cost()
	ep.ReadState(&v.Load, &v.Reading, &k.timed, &f.clock)
	f.terms[i].read(k)
	load, reading := v.Load.PerRank(v.Ranks), v.Reading.PerRank()
	f.slots[i] = slotTerms{k.timed.Slots().PerRank(v.Ranks), int64(reading.Running), load.Requests, v.Role}
	set.set(flagRanks, v.Ranks > 1)
	set.set(flagSlots, k.timed.Slots().Limit > 0)
	set.set(flagFull, v.full())
	set.set(flagAdapters, v.LoRA() != nil)
	set.set(flagHelps, v.Role&endpoint.RoleDecode == 0)
	return set
}

func (f *flags) set(flag flags, yes bool) {
	if yes {
		*f |= flag
	}
}

// advance sets the parts of v that depend on the time of the decision or on other candidates.
func (f *fleet) advance(k *storedView) {
	v := &k.View
	k.timed.Advance(&v.Load, &v.Reading, &f.clock)
	v.otherFree, k.turn = true, f.turn
	if v.Ranks > 1 {
		if v.rank == nil {
			v.rank = new(View)
		}
		*v.rank = v.PerRank()
		v = v.rank
	} else {
		v.rank = nil
	}
	if f.shared {
		v.Slots, v.otherFree = f.limits[k.place], f.free[v.Role]
	}
}

// shareSlots sets an endpoint's unknown slot count to the largest known count of its role.
// Otherwise it would look free next to an endpoint known to be full. shareSlots also records which
// roles have a free slot. places are the positions of the candidates.
func (f *fleet) shareSlots(places []int32) {
	var most [endpoint.Roles]int64
	f.shared, f.free = true, [endpoint.Roles]bool{}
	now := f.clock.Now()
	for _, i := range places {
		s := &f.slots[i]
		f.limits[i], _ = s.known.At(now)
		most[s.role] = max(most[s.role], f.limits[i])
	}
	for _, i := range places {
		s := &f.slots[i]
		if f.limits[i] == 0 {
			if _, ran := s.known.At(now); max(ran, s.running) <= most[s.role] {
				f.limits[i] = most[s.role]
			}
		}
		f.free[s.role] = f.free[s.role] || f.limits[i] == 0 || s.requests < f.limits[i]
	}
}

// freeSlots returns the sequence limit of the endpoint at position i, 0 if it is unknown or no
// candidate of its role has a free slot.
func (f *fleet) freeSlots(i int32) int64 {
	if !f.shared || !f.free[f.slots[i].role] {
		return 0
	}
	return f.limits[i]
}
