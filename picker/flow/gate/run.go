package gate

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Intervals of Run.
const (
	busyPace = 50 * time.Millisecond // while requests wait or are in flight
	idlePace = time.Second
)

// Run updates capacities and expires waits until ctx ends. Then all waiting requests are
// dispatched; engines can accept or reject them.
func (g *Gate) Run(ctx context.Context) {
	timer := time.NewTimer(ticks.Until(idlePace))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			g.Configure(nil)
			return
		case <-g.wake:
		case <-timer.C:
		}
		g.o.Watch.Working()
		timer.Reset(ticks.Until(g.Poll()))
		g.o.Watch.Waiting()
	}
}

// MoveAway refuses the waiting requests about which their proxies ask another replica then.
func (g *Gate) MoveAway() {
	for _, grp := range g.all() {
		grp.mu.Lock()
		for _, w := range grp.waiters {
			if w != nil && w.request.Moves {
				grp.core.Withdraw(g.now(), w.h)
			}
		}
		grp.deliver()
		grp.mu.Unlock()
	}
}

// Poll is one round of Run, for callers with their own clock. It updates capacities and expires
// waits, and returns the time until the next round.
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

// open creates the queues of new pools, so that peers receive gauges from this replica before its
// first request for these pools.
func (g *Gate) open() {
	if g.config.Load() == nil {
		return
	}
	for base := range g.o.Pool.Snapshot().Bases() {
		g.groupOf(base)
	}
}

// loadChanged triggers an update when a pool's first stage got or finished a request.
func (g *Gate) loadChanged(ep *endpoint.Endpoint) {
	if ep.Role&endpoint.RoleDecode == 0 && g.config.Load() != nil {
		g.wakeRun()
	}
}

// wakeRun wakes Run.
func (g *Gate) wakeRun() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// resize measures a group's capacity. The caller holds grp.mu, or grp is not shared yet.
func (g *Gate) resize(grp *group) {
	now := g.now() // read first: a request dispatched after this may not be in its endpoint's count
	c, running, age, known := g.measure(grp, g.o.Pool.Snapshot(), g.o.Now())
	grp.core.SetCapacity(now, c)
	if known {
		grp.core.ObserveRunning(now, now-int64(age), running)
	}
	grp.core.Advance(now)
}

// PeerLeft handles a replica that left the group.
func (g *Gate) PeerLeft(origin string) {
	g.mu.Lock()
	delete(g.peers, origin)
	g.mu.Unlock()
	for _, grp := range g.all() {
		grp.mu.Lock()
		grp.core.PeerLeft(g.now(), origin)
		delete(grp.peerMarks, origin)
		grp.deliver()
		grp.mu.Unlock()
	}
}

// Receive handles another replica's gauges for a model's pool.
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
	grp.changed = grp.changed || !known // determine once whether it acknowledges
	grp.deliver()
	grp.mu.Unlock()
}

// Dirty receives when Changes or Answers may have something to send. It has one reader.
func (g *Gate) Dirty() <-chan struct{} { return g.dirty }

// Changes calls notify with the gauges of every pool that has changed since the last call. If all is
// set, it includes every pool that holds something. notify may keep the slice.
func (g *Gate) Changes(all bool, notify func(model string, gauges []rules.Gauge)) {
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
		if mark != 0 || grp.markReceived {
			grp.answer, grp.markReceived = &rules.Answer{PeerMark: rules.PeerMark{Incarnation: g.incarnation, Mark: mark}, Marks: slices.Collect(maps.Values(grp.peerMarks))}, false
		}
		grp.mu.Unlock()
		if due {
			notify(grp.model, gauges)
		}
	}
}

// Answers calls notify with the marks and acknowledgments that Changes found. They must be sent after
// the gauges of Changes.
func (g *Gate) Answers(notify func(model string, a rules.Answer)) {
	for _, grp := range g.all() {
		grp.mu.Lock()
		a := grp.answer
		grp.answer = nil
		grp.mu.Unlock()
		if a != nil {
			notify(grp.model, *a)
		}
	}
}

// Answered handles another replica's marks and acknowledgments, after the gauges it sent before.
func (g *Gate) Answered(origin, model string, a rules.Answer) {
	grp := g.groupOf(model)
	if grp == nil {
		return
	}
	grp.mu.Lock()
	defer grp.mu.Unlock()
	if a.Mark != 0 {
		grp.peerMarks[origin], grp.markReceived = a.PeerMark, true
	}
	for _, h := range a.Marks {
		if h.Incarnation == g.incarnation {
			grp.core.Echo(g.now(), origin, h.Mark)
		}
	}
	grp.deliver()
}
