package core

import (
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// lease is a prompt's blocks that wait to be read by another engine. The core's
// goroutine owns it.
type lease struct {
	request uint64
	stamp   uint64 // identifies the content of the blocks
	timer   *time.Timer
}

// hold leases the blocks of a job that has ended.
func (c *Core) hold(j *Job) {
	l := &lease{request: j.Req.ID, stamp: j.Stamp}
	id := j.Lease
	c.leases[id] = l
	l.timer = time.AfterFunc(c.lease, func() {
		c.post(func() { c.give(id, &c.transfers.expired) })
	})
	c.transfers.held.Add(1)
}

// give ends a lease and counts its result; it returns false if there is no lease.
func (c *Core) give(id string, how *atomic.Int64) bool {
	l := c.leases[id]
	if l == nil {
		return false
	}
	delete(c.leases, id)
	l.timer.Stop()
	c.eng.Release(l.request)
	c.transfers.held.Add(-1)
	how.Add(1)
	return true
}

// drop ends all leases, as the death of an engine does.
func (c *Core) drop() {
	for _, l := range c.leases {
		l.timer.Stop()
	}
	c.transfers.held.Add(-int64(len(c.leases)))
	clear(c.leases)
}

// ask runs f on the core's goroutine; ok is false if the core is closed.
func ask[T any](c *Core, f func() T) (answer T, ok bool) {
	done := make(chan T, 1)
	if !c.post(func() { done <- f() }) {
		return answer, false
	}
	select {
	case answer = <-done:
		return answer, true
	case <-c.done:
		return answer, false
	}
}

func hashes(names []uint64) []engine.Hash {
	out := make([]engine.Hash, len(names))
	for i, n := range names {
		out[i] = engine.Hash(n)
	}
	return out
}

// LeasedBlocks returns the blocks of a lease, nil when there is none.
func (c *Core) LeasedBlocks(id string) []int32 {
	blocks, _ := ask(c, func() []int32 {
		l := c.leases[id]
		if l == nil {
			return nil
		}
		return append([]int32{}, c.eng.HeldBlocks(l.request)...)
	})
	return blocks
}

// Read returns the content stamp of a lease's blocks, or 0 if there is no such lease. It counts as
// a sign of life from the reader.
func (c *Core) Read(id string) (stamp uint64) {
	stamp, _ = ask(c, func() uint64 {
		if l := c.leases[id]; l != nil {
			l.timer.Reset(c.lease * 2 / 3) // the reader's heartbeat
			return l.stamp
		}
		return 0
	})
	return stamp
}

// End ends a lease that was read, and reports whether there was one.
func (c *Core) End(id string) bool {
	gave, _ := ask(c, func() bool { return c.give(id, &c.transfers.read) })
	return gave
}

// Late counts a notification for a lease that does not exist.
func (c *Core) Late() { c.transfers.late.Add(1) }

// Failed counts a pull that failed.
func (c *Core) Failed() { c.transfers.failed.Add(1) }

// Wrong counts a pull of blocks that belong to another.
func (c *Core) Wrong() { c.transfers.wrong.Add(1) }

// Transfers returns the KV transfer counters.
func (c *Core) Transfers() TransferStats { return c.transfers.stats() }

// Transfers are a core's KV transfer counters.
type Transfers struct {
	held    atomic.Int64 // leases at this moment
	read    atomic.Int64 // leases that were read
	expired atomic.Int64
	late    atomic.Int64 // notifications for leases that do not exist
	failed  atomic.Int64 // pulls that failed
	wrong   atomic.Int64 // pulls of blocks that belong to another
}

// TransferStats are the figures of an engine's KV transfers.
type TransferStats struct {
	Held    int64 `json:"held"`
	Read    int64 `json:"read"`
	Expired int64 `json:"expired"`
	Late    int64 `json:"late"`
	Failed  int64 `json:"failed"`
	Wrong   int64 `json:"wrong"`
}

func (t *Transfers) stats() TransferStats {
	return TransferStats{t.held.Load(), t.read.Load(), t.expired.Load(), t.late.Load(), t.failed.Load(), t.wrong.Load()}
}

// counts returns the counters of the metrics page.
func (t *Transfers) counts() page.Transfers {
	return page.Transfers{Expired: uint64(t.expired.Load()), Failed: uint64(t.failed.Load()), Late: uint64(t.late.Load())}
}

// StampOf returns a stamp for the content of a prompt's blocks.
func StampOf(tokens []uint32) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range tokens {
		h = (h ^ uint64(t)) * 1099511628211
	}
	return h | 1
}
