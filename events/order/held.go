package order

import (
	"bytes"
	"slices"
)

// held stores early batches, in order and bounded. Batches that do not fit are requested again
// later.
type held struct {
	list  []heldBatch // ascending seq
	bytes int
}

type heldBatch struct {
	seq     uint64
	payload []byte
}

// addLive stores a copy of a live batch. The oldest ones are dropped, since a replay returns them.
func (h *held) addLive(seq uint64, payload []byte) {
	if len(payload) > heldBytes {
		return
	}
	for len(h.list) >= heldBatches || len(h.list) > 0 && h.bytes+len(payload) > heldBytes {
		h.pop()
	}
	h.insert(seq, payload)
}

// addReplayed stores a copy of a replayed batch after a gap, if there is room.
func (h *held) addReplayed(seq uint64, payload []byte) {
	if len(h.list) < heldBatches && h.bytes+len(payload) <= heldBytes {
		h.insert(seq, payload)
	}
}

func (h *held) insert(seq uint64, payload []byte) {
	i := len(h.list)
	if i > 0 && h.list[i-1].seq >= seq {
		var found bool
		if i, found = slices.BinarySearchFunc(h.list, seq, func(b heldBatch, seq uint64) int {
			switch {
			case b.seq < seq:
				return -1
			case b.seq > seq:
				return 1
			}
			return 0
		}); found {
			return
		}
	}
	h.list = slices.Insert(h.list, i, heldBatch{seq, bytes.Clone(payload)})
	h.bytes += len(payload)
}

// pop takes the oldest batch out.
func (h *held) pop() heldBatch {
	b := h.list[0]
	h.list[0] = heldBatch{}
	h.list = h.list[1:]
	h.bytes -= len(b.payload)
	if len(h.list) == 0 {
		h.list = nil
	}
	return b
}

func (h *held) oldest() (uint64, bool) {
	if len(h.list) == 0 {
		return 0, false
	}
	return h.list[0].seq, true
}

func (h *held) newest() (uint64, bool) {
	if len(h.list) == 0 {
		return 0, false
	}
	return h.list[len(h.list)-1].seq, true
}

func (h *held) clear() { h.list, h.bytes = nil, 0 }
