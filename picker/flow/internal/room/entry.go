package room

import "time"

// Entry is the room of a pool's first stage: the prefill stage, if it has separate endpoints. A
// request holds permits of the pool until its response ends, and permits of the first stage for a
// part of that time that this package cannot see. So every SetCapacity resets the room, and
// dispatched requests reduce it in between.
//
// A request that was just dispatched is not in the first stage's count yet, so requests dispatched
// within grace are subtracted.
type Entry struct {
	limited  bool
	left     int64    // this replica's part in permits
	recent   [2]int64 // permits dispatched in the current window and in the previous one
	windowAt int64
}

// grace is how long after dispatch a request may be missing from its endpoint's in-flight count.
const grace = int64(20 * time.Millisecond)

// Set sets the room. It reports whether it increased.
func (e *Entry) Set(now int64, limited bool, room int64, replicas int) (more bool) {
	e.turn(now)
	before, was := e.left, e.limited
	if room > 0 {
		room = max((room+int64(replicas)-1)/int64(replicas), 1)
	}
	e.limited, e.left = limited, room-e.recent[0]-e.recent[1]
	return !limited && was || e.left > before
}

func (e *Entry) turn(now int64) {
	switch windows := (now - e.windowAt) / grace; {
	case windows <= 0:
	case windows == 1:
		e.recent, e.windowAt = [2]int64{0, e.recent[0]}, e.windowAt+grace
	default:
		e.recent, e.windowAt = [2]int64{}, now
	}
}

// Fits reports whether that many permits fit.
func (e *Entry) Fits(places int64) bool { return !e.limited || e.left >= places }

// Take counts dispatched permits.
func (e *Entry) Take(now, places int64) {
	e.turn(now)
	e.left -= places
	e.recent[0] += places
}
