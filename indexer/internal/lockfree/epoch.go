package lockfree

import "sync/atomic"

const epochShards = 16

// Counter counts readers, on a separate cache line.
type Counter struct {
	n atomic.Int64
	_ [56]byte
}

// Epochs lets readers walk without waiting while writers reuse memory. A reader registers in the
// current epoch. Memory unlinked in epoch e is reused in epoch e+2, when no reader that entered at
// e or before is left.
type Epochs struct {
	now     atomic.Uint64
	readers [2][epochShards]Counter
}

// Enter registers a reader. Pass the result to Leave.
func (e *Epochs) Enter(shard uint32) *Counter {
	for {
		now := e.now.Load()
		c := &e.readers[now&1][shard%epochShards]
		c.n.Add(1)
		if e.now.Load() == now {
			return c
		}
		c.n.Add(-1)
	}
}

// Leave ends the registration of Enter.
func (*Epochs) Leave(c *Counter) { c.n.Add(-1) }

// Advance advances the epoch unless a reader of the previous one is left. Only the writer calls it.
func (e *Epochs) Advance() bool {
	now := e.now.Load()
	var n int64
	for i := range e.readers[(now+1)&1] {
		n += e.readers[(now+1)&1][i].n.Load()
	}
	if n != 0 {
		return false
	}
	e.now.Store(now + 1)
	return true
}

// Limbo holds retired identifiers until no reader can see them.
type Limbo struct {
	ids   [3][]uint32
	epoch [3]uint64
}

// Retire stores id in the current epoch.
func (l *Limbo) Retire(e *Epochs, id uint32) {
	now := e.now.Load()
	i := now % 3
	l.ids[i] = append(l.ids[i], id)
	l.epoch[i] = now
}

// reclaimMost bounds the identifiers freed per call, since other writers wait.
const reclaimMost = 1 << 16

// Reclaim calls free for reusable identifiers, up to reclaimMost per epoch.
func (l *Limbo) Reclaim(e *Epochs, free func(uint32)) {
	now := e.now.Load()
	for i, ids := range l.ids {
		if len(ids) == 0 || now < l.epoch[i]+2 {
			continue
		}
		rest := max(0, len(ids)-reclaimMost)
		for _, id := range ids[rest:] {
			free(id)
		}
		l.ids[i] = ids[:rest]
	}
}

// Pending returns the number of retired identifiers.
func (l *Limbo) Pending() int { return len(l.ids[0]) + len(l.ids[1]) + len(l.ids[2]) }
