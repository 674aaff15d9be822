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
	fresh       = 2 * time.Second // older gauges are ignored
	firstGuess  = 256             // requests that an engine runs, until it shows a limit
	probeEvery  = time.Second     // interval at which a full engine without a queue is tested with one more request
	leastPlaces = 1
	mostPlaces  = 1 << 14 // upper limit for any engine, independent of its reports
)

// limit is the number of requests that one engine was observed to run at once.
type limit struct {
	places  int64
	triedAt time.Time
}

// learn uses one reading. The number of running requests while others wait in the engine is its
// limit. A full engine without waiting requests may get one more.
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

// measure returns the capacity of a group's endpoints, and the requests they run, by readings of up
// to an age. known is false if the latter is unknown for some endpoint.
//
// In-flight requests at endpoints that accept no new requests, or few, count as held, but only
// against that endpoint's own permits. So an engine that hangs or drains does not reduce the
// permits of the others.
func (g *Gate) measure(grp *group, snap *endpoint.Snapshot, now time.Time) (c rules.Capacity, running int64, age time.Duration, known bool) {
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
		age = max(age, r.Age)
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
		// Load beyond an engine's own permits takes none of the others'.
		running += min(int64(r.Running)+int64(r.Waiting), *room-before)
	}
	left := g.left(grp, snap, now)
	c.Permits, running = c.Permits+left, running+left
	first.limit(&c)
	grp.forget(snap)
	return c, running, age, known
}

// members returns the listed endpoints that serve the group's model. The caller holds grp.mu, or
// grp is not shared yet.
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

// serves reports whether the group's requests may be at an endpoint. Requests that arrived before
// any endpoint served their model may be at any endpoint.
func (grp *group) serves(ep *endpoint.Endpoint) bool {
	base := ep.Base()
	return base == grp.model || base == "" || grp.model == ""
}

// stays returns the permits held at an endpoint, 0 if it does not generate responses.
func (g *Gate) stays(grp *group, ep *endpoint.Endpoint, now time.Time) int64 {
	if ep.Role&endpoint.RoleDecode == 0 {
		return 0
	}
	return held(grp.sizing, g.o.Pool.LoadTracker().Load(ep, now))
}

// maxLeaving is the maximum number of endpoints that left the list with responses in progress.
const maxLeaving = 1 << 12

// left returns the permits held at endpoints that are no longer listed.
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

// entrance is the capacity and the load of a pool's prefill endpoints.
type entrance struct {
	endpoints    int
	places, held int64
	ignored      int64 // of endpoints for neither prompts nor responses
}

// add adds the load of an endpoint that does not generate responses, and returns the counter for
// its permits.
func (e *entrance) add(ep *endpoint.Endpoint, s rules.Sizing, l endpoint.Load) *int64 {
	if ep.Role&endpoint.RolePrefill == 0 {
		return &e.ignored
	}
	e.endpoints++
	e.held += held(s, l)
	return &e.places
}

// held returns the permits that a load takes.
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

// limit makes the entrance a separate stage. A pool with only prefill endpoints has one stage.
func (e *entrance) limit(c *rules.Capacity) {
	switch {
	case e.endpoints == 0:
	case c.Permits == 0:
		c.Permits = e.places
	default:
		c.Staged, c.Entry = true, max(e.places-e.held, 0)
	}
}

// forget drops the limits of removed endpoints.
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
