package gate

import (
	"context"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Delays between checks of whether a waiting request moves to another cluster. Each delay is twice
// the previous one.
const (
	firstLook = 250 * time.Millisecond
	lastLook  = 4 * time.Second
)

// wait is a waiting request.
type wait struct {
	grp      *group
	h        rules.Handle
	w        *waiter
	begun    int64
	expected float64 // predicted seconds when it was queued; 0: unknown
}

// left returns the expected rest of the wait. An overdue wait is expected to take as long again as
// it is overdue.
func (p *wait) left(now int64) float64 {
	return math.Abs(p.expected - float64(now-p.begun)/1e9)
}

// await returns the outcome of a waiting request.
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

// quit removes a request from the queue, and releases its permits if it was dispatched in the
// meantime.
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
			return why // also if it was no longer waiting: it has left
		}
		return out
	}
	g.Leave(picker.Permit{Queue: p.grp.number, Handle: uint64(p.h)}, -1)
	return why
}
