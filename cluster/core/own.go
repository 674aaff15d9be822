package core

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

func hashString(s string) uint64 { return xxhash.Sum64String(s) }

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

// Owners returns the members of IDs, best first, for a source: what the
// ranking in force would be if all of them were reachable.
func Owners(members []Member, source string) []Member {
	out := append([]Member(nil), members...)
	src := hashString(source)
	for i := 1; i < len(out); i++ {
		for j := i; j > 0 && memberOutranks(out[j], out[j-1], src); j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

func memberOutranks(a, b Member, src uint64) bool {
	return outranks(hashString(nameOf(a)), a.ID, hashString(nameOf(b)), b.ID, src)
}

func nameOf(m Member) string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID
}

// setMesh decides between mesh and partitioned, with hysteresis after the
// first time.
func (l *Log) setMesh(first bool) {
	switch l.c.opt.Share {
	case ShareMesh:
		l.mesh = true
	case SharePartitioned:
		l.mesh = false
	default:
		limit := l.c.opt.MeshSources
		if !l.mesh && !first {
			limit = limit * 3 / 4
		}
		l.mesh = len(l.order) <= limit
	}
}

// eligible reports whether p can own sources of l.
func (l *Log) eligible(p *peer) bool {
	return p.up && !p.leaving && p.logs[l.id].known
}

// assignRoles looks at every source and tells the application what changed.
func (l *Log) assignRoles() {
	l.rolesDirty = false
	l.nextRoles = l.c.now + 250*time.Millisecond
	if !l.opt.Owned {
		l.nextRoles = never
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
func (l *Log) before(p *peer, s *source) bool {
	if p.leaving != l.c.leaving {
		return l.c.leaving
	}
	return outranks(p.hash, p.m.ID, l.c.selfHash, l.c.opt.Self.ID, s.hash)
}

// roleOf applies the rules of ownership; see the package documentation of
// cluster. place is this member's place in the line of those reachable, read
// says that somebody reachable reads s, above that one of them comes before us.
func (l *Log) roleOf(s *source) Role {
	place, read, above := 0, false, false
	for _, p := range l.c.peers {
		if !p.up {
			continue
		}
		ok := l.eligible(p) && l.before(p, s)
		if ok {
			place++
		}
		if p.logs[l.id].claims[s.slot].reading {
			read = true
			above = above || ok
		}
	}
	if read {
		s.orphan = 0
	} else if s.orphan == 0 {
		s.orphan = max(l.c.now, 1)
	}
	orphaned := !read && l.c.now-s.orphan >= time.Duration(place)*l.c.opt.OrphanGrace
	switch {
	case l.c.leaving && above:
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
	for _, p := range l.c.peers {
		if p.up && p.logs[l.id].claims[s.slot].reading && l.before(p, s) {
			return false
		}
	}
	return true
}

// handedOver reports whether every source read here is read elsewhere too, or
// nobody could.
func (l *Log) handedOver() bool {
	if !l.opt.Owned {
		return true
	}
	heirs := false
	for _, p := range l.c.peers {
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
	for _, p := range l.c.peers {
		if l.eligible(p) && p.logs[l.id].claims[s.slot].reading {
			return true
		}
	}
	return false
}
