package budget

import (
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// pressedPercent is the part of the limit above which live memory means that
// what is still arriving must be cut off.
const pressedPercent = 55

// lookEvery is the time between two looks at the runtime's figures.
const lookEvery = 5 * time.Millisecond

// liveMetric is what the last garbage collection found alive. Near the limit
// collections follow each other closely, so that it is young when it matters.
const liveMetric = "/gc/heap/live:bytes"

var began = time.Now() // times since then are by a clock that is not set

type pressure struct {
	threshold uint64
	next      atomic.Int64 // of the next look, nanoseconds since began
	pressed   atomic.Bool
}

// UnderPressure reports whether live memory is so high that the process must let go of
// what it can. It is cheap enough for every message.
func (b *Budget) UnderPressure() bool {
	if b == nil {
		return false
	}
	p := &b.live
	now, next := int64(time.Since(began)), p.next.Load()
	if now >= next && p.next.CompareAndSwap(next, now+int64(lookEvery)) {
		sample := []metrics.Sample{{Name: liveMetric}}
		metrics.Read(sample)
		p.pressed.Store(sample[0].Value.Kind() == metrics.KindUint64 && sample[0].Value.Uint64() > p.threshold)
	}
	return p.pressed.Load()
}
