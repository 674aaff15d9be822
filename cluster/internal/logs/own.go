package logs

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// spare is how many more sources than the mean one member may own, in parts of the mean.
const spare = 20

// divide gives every source an owner among the members that can own it: the one it ranks
// first that has room, those of its zone before all others. So members own about as many each, and one that comes or goes moves few
// sources beside its own. Members that know of the same members and sources divide alike.
func (l *Log) divide() {
	l.undivided = false
	l.regrouped++
	owners := []*group.Peer{nil} // nil is this member
	if l.g.Leaving {
		owners = owners[:0]
	}
	for _, p := range l.g.Peers {
		if l.eligible(p) {
			owners = append(owners, p)
		}
	}
	if len(owners) == 0 {
		owners = append(owners, nil)
	}
	l.zoned = !slices.ContainsFunc(owners, func(p *group.Peer) bool { return l.zoneOf(p) == "" })
	n := len(owners) * spare
	room := (len(l.order)*(spare+1) + n - 1) / n
	owned := make([]int, len(owners))
	byHash := slices.Clone(l.order) // the last ones find less room: not always the same by name
	slices.SortFunc(byHash, func(a, b *source) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.name, b.name))
	})
	for _, s := range byHash {
		best := -1
		for i, p := range owners {
			if owned[i] < room && (best < 0 || l.heavier(p, owners[best], s)) {
				best = i
			}
		}
		owned[best]++
		s.owner = owners[best]
	}
}

// heavier reports whether a comes before b for s by zone and weight alone; nil is this member.
func (l *Log) heavier(a, b *group.Peer, s *source) bool {
	if na, nb := l.near(a, s), l.near(b, s); na != nb {
		return na
	}
	ha, ida, hb, idb := l.g.SelfHash, l.g.Opt.Self.ID, l.g.SelfHash, l.g.Opt.Self.ID
	if a != nil {
		ha, ida = a.Hash, a.ID
	}
	if b != nil {
		hb, idb = b.Hash, b.ID
	}
	return group.Outranks(ha, ida, hb, idb, s.hash)
}

// zoneOf returns the zone of a member; nil is this one.
func (l *Log) zoneOf(p *group.Peer) string {
	if p == nil {
		return l.g.Opt.Self.Zone
	}
	return p.Zone
}

// near reports whether a member is in the zone of s; nil is this member. Where nobody says
// where s is, or not all members say where they are, zones make no difference: members that
// do not know of zones divide without them, and all should come to the same.
func (l *Log) near(p *group.Peer, s *source) bool {
	return l.zoned && s.zone != "" && l.zoneOf(p) == s.zone
}

// SetZones says in which zones sources are. Where all members say theirs, those of a
// source's zone read it before others do. It holds for sources that are named later, too; names that are not among
// zones are in none.
func (l *Log) SetZones(zones map[string]string) {
	l.zones = zones
	for _, s := range l.order {
		s.zone = zones[s.name]
	}
	l.redivide()
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

// lookAgain is how often the roles of orphans are looked at.
const lookAgain = 250 * time.Millisecond

// rolesDirty reports whether roles are to be looked at, whatever the time is.
func (l *Log) rolesDirty() bool { return l.undivided || len(l.moved) > 0 }

// reassign has the role of s looked at: what it follows from changed.
func (l *Log) reassign(s *source) {
	if !s.moving {
		s.moving = true
		l.moved = append(l.moved, s)
	}
}

// assignRoles looks at the sources whose roles may have changed and tells the application which
// did: at all when members or sources changed, else at those that somebody began or ceased to
// read, and now and then at those that nobody reads, of which there may be thousands when one dies.
func (l *Log) assignRoles() {
	all := l.opt.Owned && l.undivided
	if all || l.g.Now >= l.nextRoles {
		for _, s := range l.orphans {
			s.waits = false
			l.reassign(s)
		}
		l.nextRoles, l.orphans = group.Never, l.orphans[:0]
	}
	look := l.moved
	if all {
		l.divide()
		look = l.order
	}
	for _, s := range l.moved {
		s.moving = false
	}
	l.undivided, l.moved, l.looked = false, l.looked[:0], l.moved
	if !l.opt.Owned {
		return
	}
	for _, s := range look {
		r, waits := l.roleOf(s)
		if waits && !s.waits {
			s.waits = true
			l.orphans = append(l.orphans, s)
			l.nextRoles = min(l.nextRoles, l.g.Now+lookAgain)
		}
		if r != s.role {
			s.role = r
			l.store.Assign(s.name, r)
		}
	}
}

// before reports whether p comes before this member in the line for s: its owner, then by
// zone and weight. Those who leave come last.
func (l *Log) before(p *group.Peer, s *source) bool {
	switch {
	case p.Leaving != l.g.Leaving:
		return l.g.Leaving
	case l.opt.Owned && s.owner == p:
		return true
	case l.opt.Owned && s.owner == nil:
		return false
	}
	return l.heavier(p, nil, s)
}

// roleOf applies the rules of ownership; see the package documentation of
// cluster. place is this member's place in the line of those reachable, read
// says that somebody reachable reads s, above that one of them comes before us. It waits when
// time alone may change the role.
func (l *Log) roleOf(s *source) (r Role, waits bool) {
	read := l.readAnywhere(s)
	// Nobody asks for more than the second place, but for how long to wait, and whom to wait for.
	whole := !read || l.g.Leaving || s.role == RoleReader && s.reading
	place, above := 0, false
	for _, p := range l.g.Peers {
		if !l.eligible(p) || !l.before(p, s) {
			continue
		}
		place++
		above = above || l.of(p).claims[s.slot].reading
		if place == 2 && !whole {
			break
		}
	}
	if read {
		s.orphan = 0
	} else if s.orphan == 0 {
		s.orphan = max(l.g.Now, 1)
	}
	orphaned := !read && l.g.Now-s.orphan >= time.Duration(place)*l.g.Opt.OrphanGrace
	waits = !read && !orphaned
	switch {
	case l.g.Leaving && above:
		return RoleNone, waits
	case l.mesh, place == 0, orphaned:
		return RoleReader, false
	case s.role == RoleReader && s.reading && !above:
		return RoleReader, waits // until the one before us reads
	case place == 1:
		return RoleStandby, waits
	}
	return RoleNone, waits
}

// readAnywhere reports whether a member that can be reached reads s.
func (l *Log) readAnywhere(s *source) bool {
	return slices.ContainsFunc(l.g.Peers, func(p *group.Peer) bool { return p.Up && l.of(p).claims[s.slot].reading })
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
	if !slices.ContainsFunc(l.g.Peers, l.eligible) {
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
	return slices.ContainsFunc(l.g.Peers, func(p *group.Peer) bool { return l.eligible(p) && l.of(p).claims[s.slot].reading })
}
