package flow

import "github.com/grapevine-epp/grapevine/picker/flow/rules"

// Keys of the heaps.
const (
	byOrder = iota // in its flow's heap
	byEnd          // in the heap of all waiters, by deadline
	heaps
)

// none is the absence of a waiter.
const none = int32(-1)

// waiter is a request that waits or holds permits. Slots are reused; gen distinguishes handles of
// earlier users.
type waiter struct {
	key  [heaps]int64
	pos  [heaps]int32
	seq  uint64
	flow *flow

	// As requested: Reconfigure uses these to sort it again.
	id       string
	priority int
	ttl      int64 // 0: from the options
	target   int64
	tokens   int64

	// arrival includes Request.Waited, and orders requests of one flow. offered is the time of Offer.
	// It decides between flows, so that a flow gains nothing over others by an age that a proxy reports.
	arrival, offered, dispatched int64

	bytes, places int64
	sizes, work   float64 // predicted seconds: by size alone, and with learned ratios

	prev, next int32 // in the band by arrival, or in flight by dispatch; next also links free slots
	gen        uint32
	state      rules.Outcome
	endable    bool // it may be evicted
	revoked    bool // it was evicted
}

// heap is a 4-ary heap of slots, lowest key first, ties by arrival. Waiters know their position, so
// any can be removed.
type heap struct {
	by    int
	items []int32
}

func (h *heap) less(s []waiter, a, b int32) bool {
	x, y := &s[a], &s[b]
	if x.key[h.by] != y.key[h.by] {
		return x.key[h.by] < y.key[h.by]
	}
	return x.seq < y.seq
}

func (h *heap) push(s []waiter, i int32) {
	h.items = append(h.items, i)
	h.up(s, len(h.items)-1)
}

func (h *heap) remove(s []waiter, i int32) {
	at, last := int(s[i].pos[h.by]), len(h.items)-1
	moved := h.items[last]
	h.items = h.items[:last]
	if at == last {
		return
	}
	h.items[at] = moved
	s[moved].pos[h.by] = int32(at)
	h.up(s, at)
	h.down(s, int(s[moved].pos[h.by]))
}

func (h *heap) up(s []waiter, at int) {
	i := h.items[at]
	for at > 0 {
		parent := (at - 1) / 4
		if !h.less(s, i, h.items[parent]) {
			break
		}
		h.items[at] = h.items[parent]
		s[h.items[at]].pos[h.by] = int32(at)
		at = parent
	}
	h.items[at] = i
	s[i].pos[h.by] = int32(at)
}

func (h *heap) down(s []waiter, at int) {
	i := h.items[at]
	for {
		least := 4*at + 1
		if least >= len(h.items) {
			break
		}
		for c := least + 1; c < min(4*at+5, len(h.items)); c++ {
			if h.less(s, h.items[c], h.items[least]) {
				least = c
			}
		}
		if !h.less(s, h.items[least], i) {
			break
		}
		h.items[at] = h.items[least]
		s[h.items[at]].pos[h.by] = int32(at)
		at = least
	}
	h.items[at] = i
	s[i].pos[h.by] = int32(at)
}

// fix restores the order after all keys have changed.
func (h *heap) fix(s []waiter) {
	if len(h.items) < 2 {
		return
	}
	for at := (len(h.items) - 2) / 4; at >= 0; at-- {
		h.down(s, at)
	}
}
