package gate

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/health"
)

const (
	fresh       = 2 * time.Second // gauges older than this say nothing
	firstGuess  = 256             // requests that an engine runs, until it shows a limit
	probeEvery  = time.Second     // a full engine in which nothing waits is tried with one more, so often
	leastPlaces = 1
	mostPlaces  = 1 << 14 // no engine runs more at once, whatever it says
)

// limit is what one engine was seen to run at once.
type limit struct {
	places  int64
	triedAt time.Time
}

// learn takes one reading: what an engine runs while requests wait in it is its
// limit; one that is full and has nobody waiting may take one more.
func (l *limit) learn(r endpoint.Reading, inFlight int64, queue int64, now time.Time) {
	if l.places == 0 {
		l.places = firstGuess
	}
	switch {
	case !r.Sampled || r.Age > fresh:
	case r.Waiting > 0 && r.Running > 0:
		l.places, l.triedAt = min(max(int64(r.Running), leastPlaces), mostPlaces), now
	case r.Waiting == 0 && inFlight >= l.places+queue && now.Sub(l.triedAt) >= probeEvery:
		l.places, l.triedAt = min(l.places+1+l.places/32, mostPlaces), now
	}
}

// measure returns the capacity of the endpoints of a group, and how many requests
// they run; known is false when that cannot be said of all of them.
//
// What is in flight where nothing may be placed, or little, is counted as held until it
// ends: the places that it holds are such an endpoint's own and nobody else's, so that one
// engine that hangs, or drains, leaves the others all of theirs.
func (g *Gate) measure(grp *group, snap *endpoint.Snapshot, now time.Time) (c rules.Capacity, running int64, known bool) {
	var first entrance
	known = grp.sizing.Unit == rules.Learned || grp.sizing.Unit == rules.Requests
	for _, ep := range grp.members(snap) {
		if ep.Down() {
			stays := g.stays(grp, ep, now)
			c.Permits, running = c.Permits+stays, running+stays
			continue
		}
		c.Endpoints++
		r := ep.Reading(now.UnixNano())
		if !r.Sampled || r.Age > fresh {
			known = false
		}
		room := &c.Permits
		if ep.Role&endpoint.RoleDecode == 0 {
			room = first.add(ep, grp.sizing, g.o.Pool.LoadTracker().Load(ep, now))
		}
		before := *room
		switch grp.sizing.Unit {
		case rules.Requests:
			*room += grp.sizing.Requests
			ep.SetPermits(grp.sizing.Requests)
		case rules.Tokens:
			*room += grp.sizing.Tokens
		case rules.Larger:
			*room += rules.WholeShare
		default:
			l := grp.limits[ep.ID]
			if l == nil {
				l = &limit{}
				grp.limits[ep.ID] = l
			}
			l.learn(r, g.o.Pool.LoadTracker().Load(ep, now).Requests, grp.sizing.Queue, now)
			*room += l.places + grp.sizing.Queue
			ep.SetPermits(l.places + grp.sizing.Queue)
		}
		if share := ep.Share(); share < health.Full {
			all := *room - before
			*room = before + max(all*int64(share)/health.Full, min(g.stays(grp, ep, now), all))
		}
		// What an engine has beyond its own places takes none of the others'.
		running += min(int64(r.Running)+int64(r.Waiting), *room-before)
	}
	left := g.left(grp, snap, now)
	c.Permits, running = c.Permits+left, running+left
	first.limit(&c)
	grp.forget(snap)
	return c, running, known
}

// members returns those that serves has of the listed endpoints. grp.mu is held, or grp is
// not shared yet.
func (grp *group) members(snap *endpoint.Snapshot) []*endpoint.Endpoint {
	if grp.model == "" {
		return snap.Endpoints
	}
	if grp.of != snap {
		grp.of, grp.own = snap, grp.own[:0]
		for _, list := range [...][]int32{snap.ByBaseModel(grp.model), snap.ByBaseModel("")} {
			for _, i := range list {
				grp.own = append(grp.own, snap.Endpoints[i])
			}
		}
	}
	return grp.own
}

// serves reports whether a group's requests may be at an endpoint. Those that came while nobody
// served their model, as when there was no endpoint, may be at any: it is known then who does.
func (grp *group) serves(ep *endpoint.Endpoint) bool {
	base := ep.Base()
	return base == grp.model || base == "" || grp.model == ""
}

// stays returns the places that are held at an endpoint, 0 where no answers are made.
func (g *Gate) stays(grp *group, ep *endpoint.Endpoint, now time.Time) int64 {
	if ep.Role&endpoint.RoleDecode == 0 {
		return 0
	}
	return held(grp.sizing, g.o.Pool.LoadTracker().Load(ep, now))
}

// maxLeaving bounds the endpoints that left the list while they answered.
const maxLeaving = 1 << 12

// left returns the places that are held at endpoints that are listed no more.
func (g *Gate) left(grp *group, snap *endpoint.Snapshot, now time.Time) (places int64) {
	for _, ep := range snap.Absent {
		if grp.serves(ep) && len(grp.leaving) < maxLeaving && g.stays(grp, ep, now) > 0 && !slices.ContainsFunc(grp.leaving, same(ep)) {
			grp.leaving = append(grp.leaving, ep)
		}
	}
	grp.leaving = slices.DeleteFunc(grp.leaving, func(ep *endpoint.Endpoint) bool {
		stays := g.stays(grp, ep, now)
		if back := snap.ByID(int(ep.ID)); stays == 0 || back != nil && back.Addr == ep.Addr {
			return true
		}
		places += stays
		return false
	})
	return places
}

func same(ep *endpoint.Endpoint) func(*endpoint.Endpoint) bool {
	return func(o *endpoint.Endpoint) bool { return o.ID == ep.ID && o.Addr == ep.Addr }
}

// entrance is what a pool's endpoints for prompts can take, and hold.
type entrance struct {
	endpoints    int
	places, held int64
	ignored      int64 // of endpoints that are for neither prompts nor answers
}

// add counts what an endpoint that makes no answers holds, and returns where its places
// are counted.
func (e *entrance) add(ep *endpoint.Endpoint, s rules.Sizing, l endpoint.Load) *int64 {
	if ep.Role&endpoint.RolePrefill == 0 {
		return &e.ignored
	}
	e.endpoints++
	e.held += held(s, l)
	return &e.places
}

// held returns how many places a load takes.
func held(s rules.Sizing, l endpoint.Load) int64 {
	switch requests := max(l.Requests, 0); s.Unit {
	case rules.Tokens:
		return max(l.Tokens, requests)
	case rules.Larger:
		return max(requests*rules.WholeShare/s.Requests, l.Tokens*rules.WholeShare/s.Tokens)
	default:
		return requests
	}
}

// limit makes the entrance a stage of its own. A pool that has nothing else is one of
// whole requests.
func (e *entrance) limit(c *rules.Capacity) {
	switch {
	case e.endpoints == 0:
	case c.Permits == 0:
		c.Permits = e.places
	default:
		c.Staged, c.Entry = true, max(e.places-e.held, 0)
	}
}

// forget drops the limits of endpoints that are gone.
func (grp *group) forget(snap *endpoint.Snapshot) {
	if len(grp.limits) <= len(snap.Endpoints) {
		return
	}
	for id := range grp.limits {
		if snap.ByID(int(id)) == nil {
			delete(grp.limits, id)
		}
	}
}

type limits map[block.EndpointID]*limit
