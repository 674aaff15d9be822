package facts

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Limits on how long the requests of a departed replica count.
const (
	// remainsLimit applies to engines whose gauges are read: other sources of requests would otherwise
	// keep a remainder alive.
	remainsLimit = 10 * time.Minute
	// remainsBlind applies to engines whose gauges were not read since the replica departed.
	remainsBlind = time.Minute
)

// remains are the requests that a replica had in flight at an endpoint when it departed. The proxy
// completes them without it, so they count until the engine's gauges show that they have ended.
type remains struct {
	endpoint.Load
	origin  string
	process uint64    // of the replica; 0: not sent by older releases
	since   time.Time // when it departed
	room    int64     // requests that the last sample leaves to departed replicas; -1: no sample yet
}

// depart turns origin's last report on an endpoint into remains, and reports whether there are any. The
// caller holds l.remote.
func (l *Load) depart(origin, address string, now time.Time) bool {
	last := l.loads.Get(address, origin)
	l.loads.Delete(address, origin)
	if last.Requests == 0 {
		return false
	}
	last.Rate, last.Busy = 0, 0 // it dispatches no more
	l.remains[address] = append(l.remains[address], remains{Load: last, origin: origin, process: l.process[origin], since: now, room: -1})
	return true
}

// Remaining reports whether requests of departed replicas count at an endpoint.
func (l *Load) Remaining(ep *endpoint.Endpoint) bool {
	l.remote.Lock()
	defer l.remote.Unlock()
	return len(l.remains[ep.Address]) > 0
}

// returned drops the remains of a replica that reports again. A restarted replica is a new process:
// its predecessor's requests still count. The caller holds l.remote.
func (l *Load) returned(origin string, process uint64) {
	l.process[origin] = process
	delete(l.departed, origin)
	for address := range l.remains {
		l.keep(address, func(r *remains) bool {
			return r.origin != origin || r.process != 0 && process != 0 && r.process != process
		})
	}
}

// keep drops the remains at an endpoint for which f returns false. The caller holds l.remote.
func (l *Load) keep(address string, f func(*remains) bool) {
	old := l.remains[address]
	kept := old[:0]
	for i := range old {
		if f(&old[i]) {
			kept = append(kept, old[i])
		}
	}
	if len(kept) == len(old) {
		return
	}
	if l.remains[address] = kept; len(kept) == 0 {
		delete(l.remains, address)
	}
	l.apply(address)
}

// Restarted drops the remains at endpoints whose engine has restarted: their requests have ended.
func (l *Load) Restarted(eps []*endpoint.Endpoint) {
	l.remote.Lock()
	defer l.remote.Unlock()
	for _, ep := range eps {
		l.keep(ep.Address, func(*remains) bool { return false })
	}
}

// Sampled compares the requests of departed replicas with an engine's new gauges. The engine's
// requests that no living replica reports are the most that can remain. A single sample proves
// nothing, because reports and samples cross: the larger of the last two counts.
func (l *Load) Sampled(ep *endpoint.Endpoint) {
	l.remote.Lock()
	defer l.remote.Unlock()
	list := l.remains[ep.Address]
	if len(list) == 0 {
		return
	}
	g := ep.Gauges()
	live := l.o.Pool.LoadTracker().Local(ep, l.o.Now()).Requests
	for load := range l.loads.Values(ep.Address) {
		live += load.Requests
	}
	room := max(int64(g.Waiting+g.Running)-live, 0)
	// The room is shared in the order in which replicas departed.
	for i := range list {
		r := &list[i]
		before := r.room
		r.room = min(room, r.Requests)
		room -= r.room
		if before >= 0 {
			r.shrink(max(before, r.room), g.Waiting == 0)
		}
	}
	l.keep(ep.Address, func(r *remains) bool { return r.Requests > 0 })
	l.apply(ep.Address)
}

// shrink reduces the load to n requests. prefilled means that none waits for its first token.
func (r *remains) shrink(n int64, prefilled bool) {
	if prefilled {
		r.Context, r.Waiting, r.Prefill, r.Pairs, r.Moving = r.Tokens, 0, 0, 0, 0
	}
	if n >= r.Requests {
		return
	}
	part := float64(n) / float64(r.Requests)
	scale := func(v int64) int64 { return int64(float64(v) * part) }
	r.Waiting, r.Prefill, r.Tokens, r.Context, r.Moving = scale(r.Waiting), scale(r.Prefill), scale(r.Tokens), scale(r.Context), scale(r.Moving)
	r.Pairs, r.Requests = r.Pairs*part, n
}

// expire drops remains that have reached their time limit.
func (l *Load) expire(now time.Time) {
	l.remote.Lock()
	defer l.remote.Unlock()
	for address := range l.remains {
		l.keep(address, func(r *remains) bool {
			limit := remainsLimit
			if r.room < 0 {
				limit = remainsBlind
			}
			return now.Sub(r.since) < limit
		})
	}
	counted := map[string]bool{}
	for _, list := range l.remains {
		for i := range list {
			counted[list[i].origin] = true
		}
	}
	for origin := range l.departed {
		if !counted[origin] {
			delete(l.departed, origin)
			delete(l.process, origin)
		}
	}
}
