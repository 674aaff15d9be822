package budget

import (
	"context"
	"runtime"
)

// heavy is the input size above which a turn is needed. Smaller inputs take less than a scheduler
// time slice.
const heavy = 256 << 10

// turns limits work on large inputs to half of the CPUs, so that small inputs are not delayed.
type turns chan struct{}

func newTurns() turns { return make(turns, max(runtime.GOMAXPROCS(0)/2, 1)) }

// AcquireCPU waits until the work of reading n bytes may start. It returns a function to call at
// the end, or false if ctx ends first. A nil Budget never waits.
func (b *Budget) AcquireCPU(ctx context.Context, n int) (end func(), ok bool) {
	if b == nil || n < heavy {
		return func() {}, true
	}
	select {
	case b.turns <- struct{}{}:
		return func() { <-b.turns }, true
	case <-ctx.Done():
		return nil, false
	}
}
