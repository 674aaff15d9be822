package room

import "time"

// Entry is the room of a pool's first stage, the prefill of one that has endpoints for
// it. A request holds places of the pool until its answer ends, and those of the first
// stage for a part of that time, which nobody tells this package of. So what may enter
// is said anew with every SetCapacity, and goes down with what is let go meanwhile.
//
// Who has just been let go is not yet among those that are counted in the first stage:
// what was let go within grace is taken off.
type Entry struct {
	limited  bool
	left     int64    // places of this replica's part
	recent   [2]int64 // places let go in the window under way, and in the one before
	windowAt int64
}

// grace is the time within which a request that was let go is counted at its
// endpoint.
const grace = int64(20 * time.Millisecond)

// Set says what may enter from now on. It reports whether that is more than before.
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

// Fits reports whether so many places may enter.
func (e *Entry) Fits(places int64) bool { return !e.limited || e.left >= places }

// Take counts what was let go.
func (e *Entry) Take(now, places int64) {
	e.turn(now)
	e.left -= places
	e.recent[0] += places
}
