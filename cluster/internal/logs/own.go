package logs

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// mix spreads the bits of x (the finisher of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// weight is a member's weight for a source. The heaviest owns it (rendezvous
// hashing: a member that comes or goes moves only its own share).
func weight(member, src uint64) uint64 { return mix(member ^ mix(src)) }

// outranks reports whether member a comes before member b for a source.
func outranks(a uint64, aID string, b uint64, bID string, src uint64) bool {
	wa, wb := weight(a, src), weight(b, src)
	if wa != wb {
		return wa > wb
	}
	return aID < bID
}

// Owners returns members, best first, for a source: what the ranking in force
// would be if all of them were reachable.
func Owners(members []group.Member, source string) []group.Member {
	src := group.Hash(source)
	return slices.SortedFunc(slices.Values(members), func(a, b group.Member) int {
		if outranks(nameHash(a), a.ID, nameHash(b), b.ID, src) {
			return -1
		}
		return 1
	})
}

func nameHash(m group.Member) uint64 {
	if m.Name != "" {
		return group.Hash(m.Name)
	}
	return group.Hash(m.ID)
}

// setMesh decides between mesh and partitioned, with hysteresis after the
// first time.
func (l *Log) setMesh(first bool) {
	switch l.g.Opt.Share {
	case group.ShareMesh:
		l.mesh = true
	case group.SharePartitioned:
		l.mesh = false
	default:
		limit := l.g.Opt.MeshSources
		if !l.mesh && !first {
			limit = limit * 3 / 4
		}
		l.mesh = len(l.order) <= limit
	}
}

// eligible reports whether p can own sources of l.
func (l *Log) eligible(p *group.Peer) bool {
	return p.Up && !p.Leaving && l.of(p).version > 0
}

// assignRoles looks at every source and tells the application what changed.
func (l *Log) assignRoles() {
	l.rolesDirty = false
	l.nextRoles = l.g.Now + 250*time.Millisecond
	if !l.opt.Owned {
		l.nextRoles = group.Never
		return
	}
	for _, s := range l.order {
		if r := l.roleOf(s); r != s.role {
			s.role = r
			l.store.Assign(s.name, r)
		}
	}
}

// before reports whether p comes before this member in the line for s. Those
// who leave come last.
func (l *Log) before(p *group.Peer, s *source) bool {
	if p.Leaving != l.g.Leaving {
		return l.g.Leaving
	}
	return outranks(p.Hash, p.ID, l.g.SelfHash, l.g.Opt.Self.ID, s.hash)
}

// roleOf applies the rules of ownership; see the package documentation of
// cluster. place is this member's place in the line of those reachable, read
// says that somebody reachable reads s, above that one of them comes before us.
func (l *Log) roleOf(s *source) Role {
	place, read, above := 0, false, false
	for _, p := range l.g.Peers {
		if !p.Up {
			continue
		}
		ok := l.eligible(p) && l.before(p, s)
		if ok {
			place++
		}
		if l.of(p).claims[s.slot].reading {
			read = true
			above = above || ok
		}
	}
	if read {
		s.orphan = 0
	} else if s.orphan == 0 {
		s.orphan = max(l.g.Now, 1)
	}
	orphaned := !read && l.g.Now-s.orphan >= time.Duration(place)*l.g.Opt.OrphanGrace
	switch {
	case l.g.Leaving && above:
		return RoleNone
	case l.mesh, place == 0, orphaned:
		return RoleReader
	case s.role == RoleReader && s.reading && !above:
		return RoleReader // until the one before us reads
	case place == 1:
		return RoleStandby
	}
	return RoleNone
}

// publishes reports whether this member sends what it reads of s to others:
// the first of those who read it does.
func (l *Log) publishes(s *source) bool {
	if !l.opt.Owned {
		return true
	}
	for _, p := range l.g.Peers {
		if p.Up && l.of(p).claims[s.slot].reading && l.before(p, s) {
			return false
		}
	}
	return true
}

// HandedOver reports whether every source read here is read elsewhere too, or
// nobody could.
func (l *Log) HandedOver() bool {
	if !l.opt.Owned {
		return true
	}
	heirs := false
	for _, p := range l.g.Peers {
		heirs = heirs || l.eligible(p)
	}
	if !heirs {
		return true
	}
	for _, s := range l.order {
		if s.reading && !l.readElsewhere(s) {
			return false
		}
	}
	return true
}

func (l *Log) readElsewhere(s *source) bool {
	for _, p := range l.g.Peers {
		if l.eligible(p) && l.of(p).claims[s.slot].reading {
			return true
		}
	}
	return false
}
