package budget

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Holders are owners of memory that wait for more input, such as bodies being received. If the
// memory is used up, the holder with the most is ended for a new one, provided it holds more than
// the new one would. So slow clients with large bodies do not block small or fast ones. Safe for
// concurrent use.
type Holders struct {
	b      *Budget
	use    Use
	turn   atomic.Uint32
	shards [8]holderShard

	mu     sync.Mutex
	ending map[*Holder]int64 // ended holders with unreleased memory, and the part that is not lent yet
}

type holderShard struct {
	mu      sync.Mutex
	waiting list.List // of *Holder, oldest first
}

// lookAt is how many of a shard's oldest holders are compared. Small holders do not wait long.
const lookAt = 64

// littlePart limits lending of memory that is about to be released: a borrower may hold one part in
// this many. It helps small requests while all memory belongs to holders that are being ended.
const littlePart = 1024

// NewHolders returns Holders for a use of b, which may be nil.
func NewHolders(b *Budget, u Use) *Holders {
	return &Holders{b: b, use: u, ending: map[*Holder]int64{}}
}

// Holder is one owner of memory. The zero value holds nothing and has no limit until Begin. Take is
// safe for concurrent use; the other methods are for one goroutine.
type Holder struct {
	of    *Holders
	end   func()
	held  atomic.Int64
	shard *holderShard
	place *list.Element // among the waiting ones; nil once it must not be ended; guarded by shard.mu
	ended bool          // for another one; guarded by shard.mu while it waits
}

// Begin adds h to hs. end is called, with locks held, when h must release its memory. It must
// return immediately and cause a call of h.End. If it is nil, h is never ended.
func (hs *Holders) Begin(h *Holder, end func()) {
	h.of, h.end = hs, end
}

// Take takes n more bytes, ending another holder if necessary. It returns false if there is not
// enough memory.
func (h *Holder) Take(n int) bool {
	if h.of == nil || n <= 0 {
		return true
	}
	if !h.of.b.Take(h.of.use, n) {
		if want := h.held.Load() + int64(n); !h.of.lend(want, int64(n)) && !h.of.displace(h, want) {
			return false
		}
		// The other holder releases its memory soon; until then it counts.
		h.of.b.uses[h.of.use].used.Add(int64(n))
	}
	h.held.Add(int64(n))
	return true
}

// Wait marks h as waiting for input: from now on it may be ended.
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

// Keep marks h as not waiting: it cannot be ended until the next Wait.
func (h *Holder) Keep() {
	if h.shard == nil {
		return
	}
	h.shard.mu.Lock()
	h.shard.remove(h)
	h.shard.mu.Unlock()
	h.shard = nil
}

// End releases all memory of h.
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

// remove removes h from the list. The shard is locked.
func (s *holderShard) remove(h *Holder) {
	if h.place != nil {
		s.waiting.Remove(h.place)
		h.place = nil
	}
}

// most returns the holder with the most memory among the shard's oldest, except but. The shard is
// locked.
func (s *holderShard) most(but *Holder) (most *Holder, held int64) {
	for e, i := s.waiting.Front(), 0; e != nil && i < lookAt; e, i = e.Next(), i+1 {
		h := e.Value.(*Holder)
		if n := h.held.Load(); h != but && n > held {
			most, held = h, n
		}
	}
	return most, held
}

// displace ends the holder with the most memory, if it is more than want, except but. It reports
// whether it did.
func (hs *Holders) displace(but *Holder, want int64) bool {
	for { // the choice may have ended in the meantime
		var at *holderShard
		most := want
		for i := range hs.shards {
			s := &hs.shards[i]
			s.mu.Lock()
			if _, n := s.most(but); n > most {
				at, most = s, n
			}
			s.mu.Unlock()
		}
		if at == nil {
			return false
		}
		at.mu.Lock()
		h, n := at.most(but)
		ended := n > want
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
}

// lend reports whether n bytes of memory that is about to be released may be lent to a holder that
// would then hold want.
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
