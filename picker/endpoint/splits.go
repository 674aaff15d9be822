package endpoint

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Splits records, for each pair of prefill and decode endpoints, whether split requests are computed
// by the prefill endpoint. A pair that fails several times in a row is off: only one decision in
// splitTrial may use it. A success turns it on again. The zero value is ready. It is safe for
// concurrent use; reads do not block.
type Splits struct {
	mu        sync.Mutex
	pairs     atomic.Pointer[map[splitPair]*splitState] // replaced on change
	off       atomic.Int32                              // pairs that are off
	decisions atomic.Uint64                             // while a pair is off
}

type splitPair struct{ from, to block.EndpointID }

type splitState struct {
	worked, failed atomic.Int64
	row            atomic.Int32 // failures in a row
	off            atomic.Bool
	gained         atomic.Int64 // microseconds against the predicted time of the whole request
}

const (
	splitFails = 3  // failures in a row that turn a pair off
	splitTrial = 64 // decisions per trial
	maxSplits  = 1 << 14
)

// Trial reports whether a decision may use pairs that are off. It must be called once per decision.
func (s *Splits) Trial() bool { return s.off.Load() > 0 && s.decisions.Add(1)%splitTrial == 0 }

// Off returns the number of pairs that are off.
func (s *Splits) Off() int { return int(s.off.Load()) }

// Works reports whether a pair is on.
func (s *Splits) Works(from, to *Endpoint) bool {
	if s.off.Load() == 0 {
		return true
	}
	p := s.find(from, to)
	return p == nil || !p.off.Load()
}

func (s *Splits) find(from, to *Endpoint) *splitState {
	m := s.pairs.Load()
	if m == nil {
		return nil
	}
	return (*m)[splitPair{from.ID, to.ID}]
}

// state returns the record of a pair, or nil if there are too many.
func (s *Splits) state(from, to *Endpoint) *splitState {
	if p := s.find(from, to); p != nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.find(from, to); p != nil {
		return p
	}
	next := map[splitPair]*splitState{}
	if m := s.pairs.Load(); m != nil {
		if len(*m) >= maxSplits {
			return nil
		}
		next = maps.Clone(*m)
	}
	p := new(splitState)
	next[splitPair{from.ID, to.ID}] = p
	s.pairs.Store(&next)
	return p
}

// Learn records the outcome of a split request: whether from computed the prompt for to, and the
// seconds gained against the predicted time of the whole request. It reports whether the pair was
// turned on or off.
func (s *Splits) Learn(from, to *Endpoint, worked bool, gained float64) (changed bool) {
	p := s.state(from, to)
	if p == nil {
		return false
	}
	p.gained.Add(int64(gained * 1e6))
	if worked {
		p.worked.Add(1)
		p.row.Store(0)
		if p.off.CompareAndSwap(true, false) {
			p.row.Store(splitFails - 1) // the next failure turns it off again
			s.off.Add(-1)
			return true
		}
		return false
	}
	p.failed.Add(1)
	if p.row.Add(1) >= splitFails && p.off.CompareAndSwap(false, true) {
		s.off.Add(1)
		return true
	}
	return false
}

// SplitRecord is the record of one pair.
type SplitRecord struct {
	From, To       block.EndpointID
	Worked, Failed int64
	Off            bool
	Gained         float64 // seconds, negative if lost
}

// Records returns the records of all pairs, in no order.
func (s *Splits) Records() []SplitRecord {
	m := s.pairs.Load()
	if m == nil {
		return nil
	}
	list := make([]SplitRecord, 0, len(*m))
	for k, p := range *m {
		list = append(list, SplitRecord{k.from, k.to, p.worked.Load(), p.failed.Load(), p.off.Load(), float64(p.gained.Load()) / 1e6})
	}
	return list
}

// Keep removes the records of pairs whose endpoints have left.
func (s *Splits) Keep(known func(block.EndpointID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.pairs.Load()
	if m == nil {
		return
	}
	next := maps.Clone(*m)
	for k, p := range next {
		if known(k.from) && known(k.to) {
			continue
		}
		delete(next, k)
		if p.off.CompareAndSwap(true, false) {
			s.off.Add(-1)
		}
	}
	s.pairs.Store(&next)
}
