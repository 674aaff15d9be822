package gate

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Pace of Run.
const (
	busyPace = 50 * time.Millisecond // while something waits or is in flight
	idlePace = time.Second
)

// Run keeps capacities up to date and ends waits whose time is over, until ctx ends.
// Then all that waits is let go: engines can take it, or refuse.
func (g *Gate) Run(ctx context.Context) {
	timer := time.NewTimer(idlePace)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			g.Configure(nil)
			return
		case <-g.wake:
		case <-timer.C:
		}
		timer.Reset(g.Poll())
	}
}

// Poll is one round of Run, for callers with a clock of their own: it measures what pools
// can take and ends waits whose time is over. It returns after which time the next is due.
func (g *Gate) Poll() time.Duration {
	g.open()
	pace := idlePace
	for _, grp := range g.all() {
		grp.mu.Lock()
		g.resize(grp)
		grp.active = grp.core.Busy()
		if grp.active {
			pace = busyPace
		}
		grp.deliver()
		grp.mu.Unlock()
	}
	return pace
}

// open makes the queues of pools that are new, so that the others hear of this replica before
// somebody asks for one of their places.
func (g *Gate) open() {
	if g.config.Load() == nil {
		return
	}
	for base := range g.o.Pool.Snapshot().Bases() {
		g.groupOf(base)
	}
}

// booked looks at a pool again when its first stage took a request or was done with one.
func (g *Gate) booked(ep *endpoint.Endpoint) {
	if ep.Role&endpoint.RoleDecode == 0 && g.config.Load() != nil {
		g.poke()
	}
}

// poke ends a long pause of Run.
func (g *Gate) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// resize measures a group's capacity. grp.mu is held, or grp is not shared yet.
func (g *Gate) resize(grp *group) {
	now := g.now() // before: who was let go just then may not be counted at its endpoint yet
	c, running, known := g.measure(grp, g.o.Pool.Snapshot(), g.o.Now())
	grp.core.SetCapacity(now, c)
	if known {
		grp.core.ObserveRunning(now, running)
	}
	grp.core.Advance(now)
}

// PeerLeft is told that a replica has left the group.
func (g *Gate) PeerLeft(origin string) {
	g.mu.Lock()
	delete(g.peers, origin)
	g.mu.Unlock()
	for _, grp := range g.all() {
		grp.mu.Lock()
		grp.core.PeerLeft(g.now(), origin)
		delete(grp.heard, origin)
		grp.deliver()
		grp.mu.Unlock()
	}
}

// Receive takes what another replica tells of a model's pool.
func (g *Gate) Receive(origin, model string, gauges []rules.Gauge) {
	g.mu.RLock()
	known := g.peers[origin]
	g.mu.RUnlock()
	if !known {
		g.mu.Lock()
		g.peers[origin] = true
		g.mu.Unlock()
	}
	grp := g.groupOf(model)
	if grp == nil {
		return
	}
	grp.mu.Lock()
	grp.core.ReceiveShares(g.now(), origin, gauges)
	grp.changed = grp.changed || !known // whether it answers is asked once
	grp.deliver()
	grp.mu.Unlock()
}

// Changes calls tell with the gauges of every pool that has changed since the last
// call; with all, of every pool that holds something. The slice is tell's to keep.
func (g *Gate) Changes(all bool, tell func(model string, gauges []rules.Gauge)) {
	for _, grp := range g.all() {
		grp.mu.Lock()
		due := grp.changed || all && grp.core.Busy()
		grp.changed = false
		var gauges []rules.Gauge
		mark := int64(0)
		if due {
			gauges = grp.core.Gauges(nil)
			mark = grp.core.Mark(g.now())
		}
		if mark != 0 || grp.asked {
			grp.answer, grp.asked = &rules.Answer{PeerMark: rules.PeerMark{Incarnation: g.life, Mark: mark}, Marks: slices.Collect(maps.Values(grp.heard))}, false
		}
		grp.mu.Unlock()
		if due {
			tell(grp.model, gauges)
		}
	}
}

// Answers calls tell with what Changes found to be asked or answered. Others are to hear of it
// after what Changes told.
func (g *Gate) Answers(tell func(model string, a rules.Answer)) {
	for _, grp := range g.all() {
		grp.mu.Lock()
		a := grp.answer
		grp.answer = nil
		grp.mu.Unlock()
		if a != nil {
			tell(grp.model, *a)
		}
	}
}

// Answered takes what another replica asks and answers, after the gauges that it told before.
func (g *Gate) Answered(origin, model string, a rules.Answer) {
	grp := g.groupOf(model)
	if grp == nil {
		return
	}
	grp.mu.Lock()
	defer grp.mu.Unlock()
	if a.Mark != 0 {
		grp.heard[origin], grp.asked = a.PeerMark, true
	}
	for _, h := range a.Marks {
		if h.Incarnation == g.life {
			grp.core.Echo(g.now(), origin, h.Mark)
		}
	}
	grp.deliver()
}
