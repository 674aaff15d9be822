package logs

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// spare is how many sources above the mean one member may own: one part in spare.
const spare = 20

// divide assigns every source to the highest-ranked member with room, members of the source's zone
// first. So members own about equally many, and a member that joins or leaves moves few sources
// besides its own. Members with the same view of members and sources compute the same assignment.
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
	byHash := slices.Clone(l.order) // later sources find less room, so the order must not always favor the same names
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

// heavier reports whether a comes before b for s by zone and weight alone. Nil is this member.
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

// zoneOf returns the zone of a member. Nil is this member.
func (l *Log) zoneOf(p *group.Peer) string {
	if p == nil {
		return l.g.Opt.Self.Zone
	}
	return p.Zone
}

// near reports whether a member is in the zone of s. Nil is this member. Zones are ignored if the
// zone of s or of any member is unknown: members without zones divide without them, and all must
// compute the same.
func (l *Log) near(p *group.Peer, s *source) bool {
	return l.zoned && s.zone != "" && l.zoneOf(p) == s.zone
}

// SetZones sets the zones of sources, including those added later. Sources that are not in zones
// have none. If all members have a zone, members of a source's zone read it before others do.
func (l *Log) SetZones(zones map[string]string) {
	l.zones = zones
	for _, s := range l.order {
		s.zone = zones[s.name]
	}
	l.redivide()
}

// setMesh chooses between mesh and partitioned, with hysteresis after the first time.
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

// lookAgain is how often the roles of orphans are checked.
const lookAgain = 250 * time.Millisecond

// rolesDirty reports whether roles must be checked now.
func (l *Log) rolesDirty() bool { return l.undivided || len(l.moved) > 0 }

// reassign queues a check of the role of s.
func (l *Log) reassign(s *source) {
	if !s.moving {
		s.moving = true
		l.moved = append(l.moved, s)
	}
}

// assignRoles checks the sources whose roles may have changed and reports changes to the
// application. It checks all sources when members or sources changed. Otherwise it checks those
// that gained or lost a reader, and periodically those without a reader, of which there may be
// thousands when a member dies.
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

// before reports whether p ranks before this member for s: first the owner, then by zone and
// weight. Leaving members come last.
func (l *Log) before(p *group.Peer, s *source) bool { return l.precedes(p, nil, s) }

// precedes reports whether a ranks before b for s, as before does. Nil is this member.
func (l *Log) precedes(a, b *group.Peer, s *source) bool {
	switch la, lb := l.leaving(a), l.leaving(b); {
	case la != lb:
		return lb
	case l.opt.Owned && s.owner == a:
		return true
	case l.opt.Owned && s.owner == b:
		return false
	}
	return l.heavier(a, b, s)
}

// leaving reports whether a member leaves. Nil is this member.
func (l *Log) leaving(p *group.Peer) bool {
	if p == nil {
		return l.g.Leaving
	}
	return p.Leaving
}

// roleOf applies the rules of ownership; see the package documentation of cluster. waits is true if
// time alone may change the role. place is this member's rank among reachable members. read reports
// whether a reachable member reads s, and above whether a higher-ranked one does.
func (l *Log) roleOf(s *source) (r Role, waits bool) {
	read := l.readAnywhere(s)
	// Ranks beyond the second only matter for how long to wait, and for which member.
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
		return RoleReader, waits // until the member before this one reads
	case place == 1:
		return RoleStandby, waits
	}
	return RoleNone, waits
}

// readAnywhere reports whether a reachable peer reads s.
func (l *Log) readAnywhere(s *source) bool {
	return slices.ContainsFunc(l.g.Peers, func(p *group.Peer) bool { return p.Up && l.of(p).claims[s.slot].reading })
}

// publishes reports whether this member publishes the deltas of s that it reads. The first reader
// in rank order does.
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

// SourcesTransferred reports whether a peer reads each source that this member reads, or no peer can.
func (l *Log) SourcesTransferred() bool {
	if !l.opt.Owned {
		return true
	}
	if !slices.ContainsFunc(l.g.Peers, l.eligible) {
		return true
	}
	for _, s := range l.order {
		if s.reading && !l.readByOther(s) {
			return false
		}
	}
	return true
}

func (l *Log) readByOther(s *source) bool {
	return slices.ContainsFunc(l.g.Peers, func(p *group.Peer) bool { return l.eligible(p) && l.of(p).claims[s.slot].reading })
}
