package gate

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow"
)

// Unit says what a place is.
type Unit uint8

// Units of capacity.
const (
	// Learned places are requests; engines' limits are found by watching them.
	Learned Unit = iota
	// Requests are counted against a limit per endpoint.
	Requests
	// Tokens of prompts are counted against a limit per endpoint.
	Tokens
	// Larger of the shares of both limits.
	Larger
)

// Sizing says how large the pool is.
type Sizing struct {
	Unit     Unit
	Requests int64 // limit per endpoint, of Requests and Larger
	Tokens   int64 // of Tokens and Larger
	Queue    int64 // of Learned: requests that may wait in an engine
}

const (
	fresh       = 2 * time.Second // gauges older than this say nothing
	firstGuess  = 256             // requests that an engine runs, until it shows a limit
	probeEvery  = time.Second     // a full engine in which nothing waits is tried with one more, so often
	wholeShare  = int64(1_000_000)
	leastPlaces = 1
)

// places returns how many places a request takes.
func (s Sizing) places(tokens int) int64 {
	switch s.Unit {
	case Tokens:
		return max(int64(tokens), 1)
	case Larger:
		return max(wholeShare/s.Requests, int64(tokens)*wholeShare/s.Tokens, 1)
	default:
		return 1
	}
}

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
		l.places, l.triedAt = max(int64(r.Running), leastPlaces), now
	case r.Waiting == 0 && inFlight >= l.places+queue && now.Sub(l.triedAt) >= probeEvery:
		l.places, l.triedAt = l.places+1+l.places/32, now
	}
}

// measure returns the capacity of the endpoints of a group, and how many requests
// they run; known is false when that cannot be said of all of them.
func (g *Gate) measure(grp *group, snap *endpoint.Snapshot, now time.Time) (c flow.Capacity, running int64, known bool) {
	known = grp.sizing.Unit == Learned || grp.sizing.Unit == Requests
	for _, ep := range snap.Endpoints {
		if base := ep.Base(); base != grp.model && base != "" || ep.Down() {
			continue
		}
		c.Endpoints++
		r := ep.Reading(now.UnixNano())
		if !r.Sampled || r.Age > fresh {
			known = false
		}
		running += int64(r.Running + r.Waiting)
		switch grp.sizing.Unit {
		case Requests:
			c.Places += grp.sizing.Requests
		case Tokens:
			c.Places += grp.sizing.Tokens
		case Larger:
			c.Places += wholeShare
		default:
			l := grp.limits[ep.ID]
			if l == nil {
				l = &limit{}
				grp.limits[ep.ID] = l
			}
			l.learn(r, g.o.Pool.Book().Load(ep, now).Requests, grp.sizing.Queue, now)
			c.Places += l.places + grp.sizing.Queue
		}
	}
	grp.forget(snap)
	return c, running, known
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

type limits map[indexer.EndpointID]*limit
