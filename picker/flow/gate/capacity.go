package gate

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow"
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
func (g *Gate) measure(grp *group, snap *endpoint.Snapshot, now time.Time) (c flow.Capacity, running int64, known bool) {
	var first entrance
	known = grp.sizing.Unit == flow.Learned || grp.sizing.Unit == flow.Requests
	for _, ep := range snap.Endpoints {
		if base := ep.Base(); base != grp.model && base != "" || ep.Down() {
			continue
		}
		c.Endpoints++
		r := ep.Reading(now.UnixNano())
		if !r.Sampled || r.Age > fresh {
			known = false
		}
		room := &c.Places
		if ep.Role&endpoint.RoleDecode == 0 {
			room = first.add(ep, grp.sizing, g.o.Pool.Book().Load(ep, now))
		}
		before := *room
		switch grp.sizing.Unit {
		case flow.Requests:
			*room += grp.sizing.Requests
			ep.SetPlaces(grp.sizing.Requests)
		case flow.Tokens:
			*room += grp.sizing.Tokens
		case flow.Larger:
			*room += flow.WholeShare
		default:
			l := grp.limits[ep.ID]
			if l == nil {
				l = &limit{}
				grp.limits[ep.ID] = l
			}
			l.learn(r, g.o.Pool.Book().Load(ep, now).Requests, grp.sizing.Queue, now)
			*room += l.places + grp.sizing.Queue
			ep.SetPlaces(l.places + grp.sizing.Queue)
		}
		// What an engine has beyond its own places takes none of the others'.
		running += min(int64(r.Running)+int64(r.Waiting), *room-before)
	}
	first.limit(&c)
	grp.forget(snap)
	return c, running, known
}

// entrance is what a pool's endpoints for prompts can take, and hold.
type entrance struct {
	endpoints    int
	places, held int64
	ignored      int64 // of endpoints that are for neither prompts nor answers
}

// add counts what an endpoint that makes no answers holds, and returns where its places
// are counted.
func (e *entrance) add(ep *endpoint.Endpoint, s flow.Sizing, l endpoint.Load) *int64 {
	if ep.Role&endpoint.RolePrefill == 0 {
		return &e.ignored
	}
	e.endpoints++
	switch requests := max(l.Requests, 0); s.Unit {
	case flow.Tokens:
		e.held += max(l.Tokens, requests)
	case flow.Larger:
		e.held += max(requests*flow.WholeShare/s.Requests, l.Tokens*flow.WholeShare/s.Tokens)
	default:
		e.held += requests
	}
	return &e.places
}

// limit makes the entrance a stage of its own. A pool that has nothing else is one of
// whole requests.
func (e *entrance) limit(c *flow.Capacity) {
	switch {
	case e.endpoints == 0:
	case c.Places == 0:
		c.Places = e.places
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
