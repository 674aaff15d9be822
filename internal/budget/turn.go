package budget

import (
	"context"
	"runtime"
)

// heavy is from how many bytes on reading them takes a turn: less is done in less time
// than a scheduler's slice.
const heavy = 256 << 10

// turns lets half of the processors at most be busy with large inputs, so that small ones
// do not wait for these.
type turns chan struct{}

func newTurns() turns { return make(turns, max(runtime.GOMAXPROCS(0)/2, 1)) }

// AcquireCPU waits until the work of reading n bytes may begin, and returns what to call at
// its end. It reports false when ctx ended before. A nil Budget never waits.
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
