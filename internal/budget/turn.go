package budget

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// heavy is from how many bytes on reading them takes a turn: less is done in less time
// than a scheduler's slice.
const heavy = 256 << 10

// turns lets half of the processors at most be busy with large inputs, so that small ones
// do not wait for these.
type turns chan struct{}

func newTurns() turns { return make(turns, max(runtime.GOMAXPROCS(0)/2, 1)) }

// Turn runs f, which reads n bytes, and reports true at its end; false, and f did not run,
// when ctx ended before it was its turn. Where n is large f runs on a thread of its own, to
// which the system prefers all others: small inputs share neither the thread nor the part of
// the processors that it has used up. A panic of f is one of the caller. A nil Budget runs f
// at once.
func (b *Budget) Turn(ctx context.Context, n int, f func()) bool {
	if b == nil || n < heavy {
		f()
		return true
	}
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-b.turns }()
	broken := make(chan any)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with f
		giveWay()
		var wrong any = errEnded // a Goexit
		defer func() {
			if v := recover(); v != nil {
				wrong = fmt.Sprintf("%v\n%s", v, debug.Stack())
			}
			broken <- wrong
		}()
		f()
		wrong = nil
	}()
	if wrong := <-broken; wrong != nil {
		panic(wrong)
	}
	return true
}

var errEnded = errors.New("budget: what had a turn ended its goroutine")
