package remotecluster

import (
	"math"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// account holds this replica's own observations of one cluster. It outlives the cluster's
// announcements.
type account struct {
	mu   sync.Mutex
	sent [sentSlots]sentSlot
	won  time.Time // when the last request was sent there

	failures  int // consecutive
	failedAt  time.Time
	until     time.Time
	full      time.Time
	refusals  int // consecutive, for lack of capacity
	refusedAt time.Time

	probing time.Time // a late cluster gets no other request before
	late    float64   // smoothed delay of answers beyond the prediction, in seconds
	lateAt  time.Time

	missing   float64 // smoothed fraction of announced prefix tokens that were not there
	missingAt time.Time

	unanswered int       // pickers there that did not answer
	askAfter   time.Time // earliest next request to one

	held memory
}

// sentSlot is the work sent in one period.
type sentSlot struct {
	stretch int64
	seconds float64
}

const (
	sentSlots   = 32
	sentStretch = 125 * time.Millisecond

	firstBackoff = time.Second
	mostBackoff  = 30 * time.Second

	lateShare = .3               // weight of a new observation in late
	lateHalf  = 15 * time.Second // half-life of late without observations
	lateGrace = .05              // seconds of lateness that are ignored
	// lateProbed is the observed lateness from which a cluster gets one request at a time. It fades
	// without observations, so that only an answer in time proves the cluster's announcements.
	lateProbed = .25
	probeFor   = 30 * time.Second // longest time for that request

	missingShare = .3              // weight of a new observation in doubt
	missingHalf  = 5 * time.Minute // half-life of doubt without observations
	missingGrace = 64              // tokens; fewer may be the end of a page
)

// book records work sent to the cluster.
func (a *account) book(seconds float64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := now.UnixNano() / int64(sentStretch)
	s := &a.sent[at%sentSlots]
	if s.stretch != at {
		*s = sentSlot{stretch: at}
	}
	s.seconds += seconds
	a.won = now
}

// state is the part of an account that a quote needs.
type state struct {
	backlog float64 // seconds of work sent since the cluster's announcement
	late    float64
	out     bool // requests have failed there
	trial   bool // the same, and the next request is a trial
	full    bool
	probed  bool    // it was late, and a request there is being observed
	open    bool    // requests were sent there recently
	missing float64 // fraction of its announced prefixes that it lacks
}

// state returns the current account. told is the time of the cluster's load announcement.
func (a *account) state(now, told time.Time, hold float64) state {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := state{
		late: a.lateNow(now), missing: a.missingNow(now), out: now.Before(a.until), trial: (a.failures > 0 || a.refusals > 0 || a.late > lateProbed) && !now.Before(a.until), full: now.Before(a.full),
		probed: a.late > lateProbed && now.Before(a.probing),
		open:   !a.won.IsZero() && now.Sub(a.won).Seconds() < hold,
	}
	from, to := told.UnixNano()/int64(sentStretch), now.UnixNano()/int64(sentStretch)
	from = max(from, to-sentSlots+1)
	for i := range a.sent {
		if s := &a.sent[i]; s.stretch >= from && s.stretch <= to {
			st.backlog += s.seconds
		}
	}
	return st
}

func (a *account) lateNow(now time.Time) float64 {
	if a.late <= 0 {
		return 0
	}
	return a.late * math.Exp2(-now.Sub(a.lateAt).Seconds()/lateHalf.Seconds())
}

func (a *account) missingNow(now time.Time) float64 {
	if a.missing <= 0 {
		return 0
	}
	return a.missing * math.Exp2(-now.Sub(a.missingAt).Seconds()/missingHalf.Seconds())
}

// audit compares the announced prefix with the cached tokens in the response.
func (a *account) audit(held, cached int, now time.Time) {
	if held < missingGrace || cached < 0 {
		return
	}
	missing := max(float64(held-cached-missingGrace), 0) / float64(held)
	a.missing, a.missingAt = (1-missingShare)*a.missingNow(now)+missingShare*missing, now
}

// trial claims the single trial request for a cluster that failed, refused or was late. Until it
// has ended, or the same time has passed again, no other request is sent there.
func (a *account) trial(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.until) || now.Before(a.full) || a.late > lateProbed && now.Before(a.probing) {
		return false
	}
	if a.failures > 0 {
		a.until = now.Add(backoff(a.failures))
	}
	if a.refusals > 0 {
		a.full = now.Add(backoff(a.refusals))
	}
	if a.late > lateProbed {
		a.probing = now.Add(probeFor)
	}
	return true
}

func backoff(failures int) time.Duration {
	return min(firstBackoff<<min(max(failures-1, 0), 10), mostBackoff)
}

// ended records the outcome of a request there.
func (a *account) ended(e *picker.RemoteOutcome, roundTrip float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.Cause {
	case health.Failed, health.Broken, health.Stalled:
		if !e.Sent.Before(a.failedAt) { // otherwise it was sent before the last failure
			a.failures++
			a.failedAt, a.until = e.At, e.At.Add(backoff(a.failures))
		}
	case health.None:
		a.failures, a.until = 0, time.Time{}
	}
	switch {
	case e.Full && !e.Sent.Before(a.refusedAt): // otherwise it was sent before the last refusal
		a.refusals++
		a.refusedAt, a.full = e.At, e.At.Add(backoff(a.refusals))
	case e.Complete && !e.Full && e.Cause == health.None:
		a.refusals, a.full = 0, time.Time{}
	}
	if e.First > 0 || !e.Sent.Before(a.lateAt) {
		a.probing = time.Time{}
	}
	a.audit(e.Held, e.Cached, e.At)
	if excess, ok := excessOf(e); ok {
		excess -= roundTrip + lateGrace
		a.late = (1-lateShare)*a.lateNow(e.At) + lateShare*max(excess, 0)
		a.lateAt = e.At
	}
}

// excessOf returns by how many seconds a first token came after its prediction. If only the end of a
// complete answer was observed, the excess over a slow decode counts.
func excessOf(e *picker.RemoteOutcome) (seconds float64, ok bool) {
	switch {
	case e.First > 0:
		return e.First.Seconds() - e.Predicted.TTFT(), true
	case e.Complete && e.Cause == health.None:
		return e.At.Sub(e.Sent).Seconds() - e.Predicted.TTFT() - slowDecode*e.Decode, true
	}
	return 0, false
}

// slowDecode is the ratio to its prediction up to which decoding does not make a whole answer late.
const slowDecode = 1.25

// memory records the prompts sent to a cluster until its filter contains them, so that
// conversations return to it. It stores keys at growing distances, about a hundred per prompt.
type memory struct{ slots []memorySlot }

type memorySlot struct {
	key block.Key
	at  int64 // Unix seconds
}

const (
	memorySlots = 1 << 14
	memoryLife  = 120 // seconds
	memoryWays  = 4
)

// next returns the next stored position after at.
func next(at int) int { return at + 1 + at/24 }

func (m *memory) record(keys []block.Key, now time.Time) {
	if len(keys) == 0 {
		return
	}
	if m.slots == nil {
		m.slots = make([]memorySlot, memorySlots)
	}
	for at := 1; at <= len(keys); at = next(at) {
		m.put(keys[at-1], now.Unix())
	}
}

func (m *memory) put(key block.Key, now int64) {
	ways := m.ways(key)
	oldest := 0
	for i := range ways {
		if ways[i].key == key {
			ways[i].at = now
			return
		}
		if ways[i].at < ways[oldest].at {
			oldest = i
		}
	}
	ways[oldest] = memorySlot{key, now}
}

func (m *memory) ways(key block.Key) []memorySlot {
	h := uint64(key) * 0x9e3779b97f4a7c15 >> 40
	at := h % (memorySlots / memoryWays) * memoryWays
	return m.slots[at : at+memoryWays]
}

// run returns how many leading blocks of a prompt were recently sent there.
func (m *memory) run(keys []block.Key, now time.Time) (run int) {
	if m.slots == nil {
		return 0
	}
	for at := 1; at <= len(keys); at = next(at) {
		found := false
		for _, w := range m.ways(keys[at-1]) {
			age := now.Unix() - w.at // negative if the clock was set back
			found = found || w.key == keys[at-1] && age >= 0 && age < memoryLife
		}
		if !found {
			break
		}
		run = at
	}
	return run
}
