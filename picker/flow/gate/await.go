package gate

import (
	"context"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// waiter is a waiting request. It implements picker.QueueEntry.
type waiter struct {
	g        *Gate
	grp      *group
	request  *request.Request
	h        rules.Handle
	outcome  chan rules.Outcome
	notify   func(rules.Outcome) // nil: the channel is used
	begun    int64
	expected float64 // predicted seconds of the whole wait when it began; 0: unknown
	rest     float64 // result of Expected
}

// Expected implements picker.QueueEntry.
func (w *waiter) Expected() float64 { return w.rest }

// Wait implements picker.QueueEntry.
func (w *waiter) Wait(ctx context.Context, most time.Duration) (waits bool, err error) {
	var over <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case out := <-w.outcome:
		return false, refusal(out, w.end(out))
	case <-ctx.Done():
		out := w.quit(rules.Cancelled)
		return false, refusal(out, w.end(out))
	case <-over:
		w.rest = w.left(w.g.now())
		return true, nil
	}
}

// Withdraw implements picker.QueueEntry.
func (w *waiter) Withdraw() { w.end(w.quit(rules.Departed)) }

// left returns the expected rest of the wait. An overdue wait is expected to take as long again as
// it is overdue.
func (w *waiter) left(now int64) float64 {
	return math.Abs(w.expected - float64(now-w.begun)/1e9)
}

// end counts the end of the wait and recycles w. It returns the request.
func (w *waiter) end(out rules.Outcome) *request.Request {
	g, r, waited := w.g, w.request, time.Duration(w.g.now()-w.begun)
	g.metrics.waited(r.Priority, out, waited)
	if w.request = nil; out != rules.Dispatched {
		g.refused(r, out, waited)
	}
	g.waiters.Put(w)
	return r
}

// quit removes a request from the queue, and releases its permits if it was dispatched in the
// meantime.
func (w *waiter) quit(why rules.Outcome) rules.Outcome {
	w.grp.mu.Lock()
	end := w.grp.core.Cancel
	if why == rules.Departed {
		end = w.grp.core.CancelRemote
	}
	waited := end(w.g.now(), w.h)
	w.grp.changed = true
	w.grp.deliver()
	w.grp.mu.Unlock()
	if out := <-w.outcome; waited || out != rules.Dispatched {
		if why == rules.Departed {
			return why // also if it was no longer waiting: it has left
		}
		return out
	}
	w.g.Leave(picker.Permit{Queue: w.grp.number, Handle: uint64(w.h)}, -1)
	return why
}
