package budget

import (
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// pressedPercent is the percentage of the limit above which incoming messages must be cut off,
// given the live heap.
const pressedPercent = 55

// lookEvery is the interval between reads of the runtime's metrics.
const lookEvery = 5 * time.Millisecond

// liveMetric is the live heap after the last garbage collection. Near the limit collections are
// frequent, so it is recent when it matters.
const liveMetric = "/gc/heap/live:bytes"

var began = time.Now() // base for monotonic times

type pressure struct {
	threshold uint64
	next      atomic.Int64 // time of the next read, in nanoseconds since began
	pressed   atomic.Bool
}

// UnderPressure reports whether live memory is so high that the process must drop all optional
// data. It is cheap enough to call for every message.
func (b *Budget) UnderPressure() bool {
	if b == nil {
		return false
	}
	if b.whole != nil {
		b = b.whole
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
