package budget

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Holders are those who hold memory of a use while they wait for more of what they take it
// for, as bodies that are still arriving. When there is none left for one of them, the one
// that holds the most is ended for it, if that is more than the other would hold:
// who fills the memory and keeps the end back keeps nobody out who takes little or goes on.
// Safe for concurrent use.
type Holders struct {
	b      *Budget
	use    Use
	turn   atomic.Uint32
	shards [8]holderShard

	mu     sync.Mutex
	ending map[*Holder]int64 // those that were ended and have not given back yet: what of that is nobody's yet
}

type holderShard struct {
	mu      sync.Mutex
	waiting list.List // of *Holder, the oldest first
}

// lookAt is how many holders of a shard, the oldest, are compared: who waits for little does
// not wait long.
const lookAt = 64

// littlePart is the part of the memory, one in so many, that a holder has at most to be lent what
// others are about to give back. Where all that was held is just being ended, nobody is left who
// could be ended for who comes with little.
const littlePart = 1024

// NewHolders returns Holders of a use of b, which may be nil.
func NewHolders(b *Budget, u Use) *Holders {
	return &Holders{b: b, use: u, ending: map[*Holder]int64{}}
}

// Holder is one of Holders. The zero value holds nothing, and takes from nobody until it is
// begun. Take may be called by several goroutines, the rest is for one.
type Holder struct {
	of    *Holders
	end   func()
	held  atomic.Int64
	shard *holderShard
	place *list.Element // among those that wait, nil once it may not be ended any more; guarded by shard.mu
	ended bool          // for another one; guarded by shard.mu while it waits
}

// Begin makes h one of hs. end is called, with locks held, when h is to give back what it
// holds: it must return at once, and what it begins must lead to h.End. It may be nil: h is
// never ended then.
func (hs *Holders) Begin(h *Holder, end func()) {
	h.of, h.end = hs, end
}

// Take takes n bytes more, and ends another holder where that must be. It returns false where
// there are not so many.
func (h *Holder) Take(n int) bool {
	if h.of == nil || n <= 0 {
		return true
	}
	if !h.of.b.Take(h.of.use, n) {
		if want := h.held.Load() + int64(n); !h.of.lend(want, int64(n)) && !h.of.displace(h, want) {
			return false
		}
		// What the other holds is given back in a moment, and counts until then.
		h.of.b.uses[h.of.use].used.Add(int64(n))
	}
	h.held.Add(int64(n))
	return true
}

// Wait says that h waits for more: from now on it may be ended.
func (h *Holder) Wait() {
	if h.shard != nil || h.of == nil || h.of.b == nil || h.end == nil {
		return
	}
	s := &h.of.shards[h.of.turn.Add(1)%uint32(len(h.of.shards))]
	h.shard = s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.place = s.waiting.PushBack(h)
}

// Keep says that h waits no more: it is not ended any more, and may wait again.
func (h *Holder) Keep() {
	if h.shard == nil {
		return
	}
	h.shard.mu.Lock()
	h.shard.remove(h)
	h.shard.mu.Unlock()
	h.shard = nil
}

// End gives back what h holds.
func (h *Holder) End() {
	h.Keep()
	if h.of == nil {
		return
	}
	if h.ended {
		h.of.mu.Lock()
		delete(h.of.ending, h)
		h.of.mu.Unlock()
	}
	h.of.b.Release(h.of.use, int(h.held.Swap(0)))
}

// Bytes returns how many bytes h holds.
func (h *Holder) Bytes() int64 { return h.held.Load() }

// remove takes h out of the list. The shard is locked.
func (s *holderShard) remove(h *Holder) {
	if h.place != nil {
		s.waiting.Remove(h.place)
		h.place = nil
	}
}

// most returns the one of the shard's oldest holders that holds the most, but for one. The
// shard is locked.
func (s *holderShard) most(but *Holder) (most *Holder, held int64) {
	for e, i := s.waiting.Front(), 0; e != nil && i < lookAt; e, i = e.Next(), i+1 {
		h := e.Value.(*Holder)
		if n := h.held.Load(); h != but && n > held {
			most, held = h, n
		}
	}
	return most, held
}

// displace ends the holder that holds the most, more than want bytes, but for one. It reports
// whether there was one.
func (hs *Holders) displace(but *Holder, want int64) bool {
	for range 2 { // what was found first may have come to its end meanwhile
		var at *holderShard
		most := want
		for i := range hs.shards {
			s := &hs.shards[i]
			s.mu.Lock()
			if h, n := s.most(but); h != nil && n > most {
				at, most = s, n
			}
			s.mu.Unlock()
		}
		if at == nil {
			return false
		}
		at.mu.Lock()
		h, n := at.most(but)
		ended := h != nil && n > want
		if ended {
			at.remove(h)
			h.ended = true
			hs.mu.Lock()
			hs.ending[h] = n - want
			hs.mu.Unlock()
			h.end()
		}
		at.mu.Unlock()
		if ended {
			return true
		}
	}
	return false
}

// lend reports whether n bytes of what is about to be given back are for one who would hold
// want with them.
func (hs *Holders) lend(want, n int64) bool {
	if want > hs.b.Share(hs.use)/littlePart {
		return false
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for h, left := range hs.ending {
		if left >= n {
			hs.ending[h] = left - n
			return true
		}
	}
	return false
}
