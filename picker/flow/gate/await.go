package gate

import (
	"context"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Pauses after which a request that waits is asked again whether it goes to another cluster;
// each is twice the one before.
const (
	firstLook = 250 * time.Millisecond
	lastLook  = 4 * time.Second
)

// wait is a request that waits.
type wait struct {
	grp      *group
	h        rules.Handle
	w        *waiter
	begun    int64
	expected float64 // seconds, as it was said at the beginning; 0: not known
}

// left returns for how long the wait is expected to go on: one that is overdue, for as long
// again as it is overdue by.
func (p *wait) left(now int64) float64 {
	return math.Abs(p.expected - float64(now-p.begun)/1e9)
}

// await returns the outcome of a request that waits.
func (g *Gate) await(ctx context.Context, r *request.Request, p wait) rules.Outcome {
	if r.Leaves != nil && r.Leaves(p.expected) {
		return g.quit(&p, rules.Departed)
	}
	if r.Waits != nil {
		r.Waits()
	}
	var looks <-chan time.Time
	var timer *time.Timer
	pause := g.look
	if r.Leaves != nil {
		timer = time.NewTimer(pause)
		defer timer.Stop()
		looks = timer.C
	}
	for {
		select {
		case out := <-p.w.outcome:
			return out
		case <-ctx.Done():
			return g.quit(&p, rules.Cancelled)
		case <-looks:
			if r.Leaves(p.left(g.now())) {
				return g.quit(&p, rules.Departed)
			}
			pause = min(2*pause, lastLook)
			timer.Reset(pause)
		}
	}
}

// quit takes a request out of the queue that does not want a place here any more, and gives
// back the one that it may have got meanwhile.
func (g *Gate) quit(p *wait, why rules.Outcome) rules.Outcome {
	p.grp.mu.Lock()
	end := p.grp.core.Cancel
	if why == rules.Departed {
		end = p.grp.core.CancelRemote
	}
	waited := end(g.now(), p.h)
	p.grp.changed = true
	p.grp.deliver()
	p.grp.mu.Unlock()
	if out := <-p.w.outcome; waited || out != rules.Dispatched {
		if why == rules.Departed {
			return why // also where its wait was over by then: it has gone
		}
		return out
	}
	g.Leave(picker.Permit{Queue: p.grp.number, Handle: uint64(p.h)}, -1)
	return why
}
