package endpoint

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Splits learns, for each pair of prefill and decode endpoints, how often split requests succeed and
// the time that they gain. A pair is off, and only one decision in splitTrial may use it, if
//
//   - it failed splitFails times in a row: the decode endpoint computed the prompts; or
//   - its first tokens are later than those of whole requests would be, by slowMargin on average.
//
// A success turns a failing pair on again. A slow pair is on again once its average gain is positive.
// The zero value is ready. It is safe for concurrent use; reads do not block.
type Splits struct {
	mu        sync.Mutex
	onOutcome atomic.Pointer[func(from, to *Endpoint, fault PairFault)]
	pairs     atomic.Pointer[map[splitPair]*splitState] // replaced on change
	off       atomic.Int32                              // pairs that are off
	unsure    atomic.Int32                              // pairs with a probability of success below 1
	decisions atomic.Uint64                             // while a pair is off or unsure
}

type splitPair struct{ from, to block.EndpointID }

// splitState is the record of a pair. Writers hold Splits.mu.
type splitState struct {
	success        atomic.Uint64 // float64 bits: probability of success
	fault          atomic.Uint32 // PairFault: why it is off
	worked, failed int64
	gained         float64   // seconds against the predicted time of whole requests
	last           PairFault // of the last failure
	row            int       // failures in a row
	compared       int       // outcomes with a comparison
	gain, whole    float64   // averages of these, in seconds
	unsure         bool
}

// PairFault is why a pair is off. The zero value means that it is on.
type PairFault uint8

// Faults of pairs.
const (
	PairWorks    PairFault = iota
	PairNothing            // the prefill endpoint answers without a KV transfer
	PairTransfer           // the decode endpoint fails with the KV transfer
	PairLate               // KV transfers are too old, or stale, when decode reads them
	PairSlow               // first tokens are later than without the split
	NumPairFaults
)

var pairFaults = [NumPairFaults]string{"works", "nothing_handed_over", "transfer_failed", "transfer_late", "slower"}

// String returns the fault's name for metrics.
func (f PairFault) String() string { return pairFaults[min(f, NumPairFaults-1)] }

const (
	splitFails  = 3  // failures in a row that turn a pair off
	splitTrial  = 64 // decisions per trial
	maxSplits   = 1 << 14
	successFade = .25 // weight of a new outcome in the probability of success
	certain     = .99 // a probability of success above this counts as 1
	slowEnough  = 6   // comparisons before a pair can be slow
	gainFade    = .2  // weight of a new comparison in the averages
	trialFade   = .5  // the same while the pair is slow, because trials are rare
	slowMargin  = .1  // of the time of whole requests
)

// SplitOutcome is the outcome of a split request.
type SplitOutcome struct {
	Fault  PairFault // why the prefill endpoint did not compute the prompt; PairWorks if it did
	Gained float64   // seconds to the first token that the split saved, against the predicted time of the whole request
	// Compared means that Gained is evidence: both times are known. Whole is the predicted cost of the
	// whole request, and Spared the part of it that other requests at the decode endpoint would bear.
	Compared      bool
	Whole, Spared float64
}

// Trial reports whether a decision may use pairs that are off. It must be called once per decision.
func (s *Splits) Trial() bool {
	return s.off.Load()+s.unsure.Load() > 0 && s.decisions.Add(1)%splitTrial == 0
}

// Off returns the number of pairs that are off.
func (s *Splits) Off() int { return int(s.off.Load()) }

// Works reports whether a pair is on.
func (s *Splits) Works(from, to *Endpoint) bool {
	if s.off.Load() == 0 {
		return true
	}
	p := s.find(from, to)
	return p == nil || p.fault.Load() == uint32(PairWorks)
}

// Success returns the probability that the prefill endpoint of a pair computes the prompt.
func (s *Splits) Success(from, to *Endpoint) float64 {
	if s.unsure.Load() == 0 {
		return 1
	}
	if p := s.find(from, to); p != nil {
		return math.Float64frombits(p.success.Load())
	}
	return 1
}

func (s *Splits) find(from, to *Endpoint) *splitState {
	m := s.pairs.Load()
	if m == nil {
		return nil
	}
	return (*m)[splitPair{from.ID, to.ID}]
}

// state returns the record of a pair, or nil if there are too many. The caller holds s.mu.
func (s *Splits) state(from, to *Endpoint) *splitState {
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
	p.success.Store(math.Float64bits(1))
	next[splitPair{from.ID, to.ID}] = p
	s.pairs.Store(&next)
	return p
}

// OnOutcome sets the callback for every failure of a pair, and for every success of a pair that had failed
// before. It is used to inform other replicas. f must return quickly.
func (s *Splits) OnOutcome(f func(from, to *Endpoint, fault PairFault)) { s.onOutcome.Store(&f) }

// Learn records the outcome of a split request at a pair. It returns the pair's fault and whether it
// changed.
func (s *Splits) Learn(from, to *Endpoint, o SplitOutcome) (fault PairFault, changed bool) {
	fault, changed, news := s.record(from, to, func(p *splitState, was PairFault) PairFault { return p.learn(o, was) })
	if f := s.onOutcome.Load(); news && f != nil {
		(*f)(from, to, o.Fault)
	}
	return fault, changed
}

// Merge applies the outcome of another replica's request. Counts and gains are each replica's own.
func (s *Splits) Merge(from, to *Endpoint, fault PairFault) {
	if fault == PairSlow {
		return // not an outcome
	}
	s.record(from, to, func(p *splitState, was PairFault) PairFault { return p.count(fault, was) })
}

// record updates the record of a pair. news means that the pair has failed, or had failed before.
func (s *Splits) record(from, to *Endpoint, update func(p *splitState, was PairFault) PairFault) (fault PairFault, changed, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.state(from, to)
	if p == nil {
		return PairWorks, false, false
	}
	was, row := PairFault(p.fault.Load()), p.row
	fault = update(p, was)
	news = p.row > 0 || row > 0
	p.fault.Store(uint32(fault))
	switch {
	case was == PairWorks && fault != PairWorks:
		s.off.Add(1)
	case was != PairWorks && fault == PairWorks:
		s.off.Add(-1)
	}
	if unsure := math.Float64frombits(p.success.Load()) < 1; unsure != p.unsure {
		p.unsure = unsure
		if unsure {
			s.unsure.Add(1)
		} else {
			s.unsure.Add(-1)
		}
	}
	return fault, fault != was, news
}

// learn updates the record and returns the pair's new fault.
func (p *splitState) learn(o SplitOutcome, was PairFault) PairFault {
	p.gained += o.Gained
	fault := p.count(o.Fault, was)
	if o.Fault != PairWorks {
		p.failed++
		return fault
	}
	p.worked++
	if !o.Compared {
		return fault
	}
	weight := max(gainFade, 1/float64(p.compared+1))
	if was == PairSlow {
		weight = trialFade
	}
	p.compared++
	p.gain += weight * (o.Gained + o.Spared - p.gain)
	p.whole += weight * (o.Whole + o.Spared - p.whole)
	switch {
	case fault == PairWorks && p.compared >= slowEnough && p.gain < -slowMargin*p.whole:
		return PairSlow
	case fault == PairSlow && p.gain > 0:
		return PairWorks
	}
	return fault
}

// count updates the probability of success and the failures in a row. It returns the pair's new fault.
func (p *splitState) count(fault, was PairFault) PairFault {
	success := math.Float64frombits(p.success.Load())
	if fault != PairWorks {
		p.row++
		p.last = fault
		p.success.Store(math.Float64bits(success - successFade*success))
		if p.row < splitFails && (was == PairWorks || was == PairSlow) {
			return was
		}
		return fault
	}
	p.row = 0
	if success += successFade * (1 - success); success > certain {
		success = 1
	}
	if fault = was; was != PairWorks && was != PairSlow {
		fault, p.row, success = PairWorks, splitFails-1, max(success, 1-successFade) // the next failure turns it off again
	}
	p.success.Store(math.Float64bits(success))
	return fault
}

// SplitRecord is the record of one pair.
type SplitRecord struct {
	From, To       block.EndpointID
	Worked, Failed int64
	Fault          PairFault // why it is off
	Last           PairFault // of its last failure
	Success        float64   // probability of success
	Gained         float64   // seconds, negative if lost
	Gain           float64   // average of a request, in seconds, with the time spared for others
	Compared       int       // outcomes in Gain
}

// Records returns the records of all pairs, in no order.
func (s *Splits) Records() []SplitRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.pairs.Load()
	if m == nil {
		return nil
	}
	list := make([]SplitRecord, 0, len(*m))
	for k, p := range *m {
		list = append(list, SplitRecord{
			From: k.from, To: k.to, Worked: p.worked, Failed: p.failed, Fault: PairFault(p.fault.Load()), Last: p.last,
			Success: math.Float64frombits(p.success.Load()), Gained: p.gained, Gain: p.gain, Compared: p.compared,
		})
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
		if p.fault.Swap(uint32(PairWorks)) != uint32(PairWorks) {
			s.off.Add(-1)
		}
		if p.unsure {
			s.unsure.Add(-1)
		}
	}
	s.pairs.Store(&next)
}
