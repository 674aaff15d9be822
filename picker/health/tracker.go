package health

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Tracker watches the in-flight requests of one endpoint. It is safe for concurrent use. Its zero
// value is ready.
type Tracker struct {
	mu       sync.Mutex
	first    *Watch // in flight, latest first
	inFlight int
	good     uint64
	bad      [NumCauses]uint64
	moved    time.Time
	cuts     [4]uint64 // clients of the last truncated answers
	nextCut  int
	lastCut  time.Time
	fulls    int // consecutive rejections by a full queue
	hunger   hunger
	avoided  avoidances

	full    atomic.Int64  // Unix nanoseconds until which its queue counts as full
	wary    atomic.Int64  // Unix nanoseconds until which every answer is observed
	odd     atomic.Int64  // the same, within oddLooks
	spent   atomic.Int64  // Unix nanoseconds at which all oddLooks are available again
	looked  atomic.Int64  // Unix nanoseconds when an answer was last selected
	sampled atomic.Int64  // answers observed for other reasons
	failing atomic.Uint32 // question of the last failed request; 0: unknown
	ends    atomic.Bool   // its streams have a finish reason
	closes  atomic.Bool   // its streams end with a closing event
}

const (
	oneMoment = 50 * time.Millisecond
	lookEvery = time.Second
	wariness  = 5 * time.Second

	// oddLooks is how many answers are observed at most because the content of others was odd, and
	// oddPause is after which time another one may be. A client can ask for odd answers for hours,
	// at all endpoints, and must not make every answer more expensive.
	oddLooks = 50
	oddPause = 500 * time.Millisecond
)

// SampleAnswer reports whether to observe the next answer to its end. It selects one per second,
// because a truncated answer looks normal at first, and all answers for a while after a failure. After
// an answer with odd content, it selects a limited number.
func (t *Tracker) SampleAnswer(now time.Time) bool {
	n, last := now.UnixNano(), t.looked.Load()
	return n < t.wary.Load() || n < t.odd.Load() && t.mayLook(n) || n-last >= int64(lookEvery) && t.looked.CompareAndSwap(last, n)
}

// mayLook takes one of oddLooks.
func (t *Tracker) mayLook(now int64) bool {
	for {
		full := t.spent.Load()
		next := max(full, now) + int64(oddPause)
		if next-now > oddLooks*int64(oddPause) {
			return false
		}
		if t.spent.CompareAndSwap(full, next) {
			return true
		}
	}
}

// AnswerSampled records that the next answer is observed for another reason, so that SampleAnswer
// need not select one in the same second.
func (t *Tracker) AnswerSampled(now time.Time) {
	t.looked.Store(now.UnixNano())
	t.sampled.Add(1)
}

// AnswersSampled returns the number of calls of AnswerSampled.
func (t *Tracker) AnswersSampled() int64 { return t.sampled.Load() }

// WatchClosely selects all answers for a while, for example after another replica saw a truncated
// one.
func (t *Tracker) WatchClosely(now time.Time) { t.wary.Store(now.Add(wariness).UnixNano()) }

// watchAfter selects answers for a while after one that failed for a cause.
func (t *Tracker) watchAfter(now time.Time, c Cause) {
	if c == Invalid || c == Short || c == Declined {
		t.odd.Store(now.Add(wariness).UnixNano())
		return
	}
	t.WatchClosely(now)
}

// Watch is one in-flight request. It is not safe for concurrent use, but its Tracker may read it at
// any time. Begin it once.
type Watch struct {
	Traits   Traits   // of the request; set them before Begin
	Question Question // the same
	Read     bool     // the content of the answer will be known; the same

	t          *Tracker
	prev, next *Watch
	begun, due time.Time
	judged     bool
	body       time.Time // deadline for the rest of a body that has begun; zero: not begun
	client     uint64    // client that receives the body
}

// Begin watches a request whose first progress or end is expected by due.
func (t *Tracker) Begin(w *Watch, now, due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awake(now)
	*w = Watch{Traits: w.Traits, Question: w.Question, Read: w.Read, t: t, begun: now, due: due, next: t.first}
	t.avoided.begin(&w.Traits, now)
	if t.first != nil {
		t.first.prev = w
	}
	t.first = w
	t.inFlight++
}

// Moved records progress of the answer. The next progress, or the end, is expected by due.
func (w *Watch) Moved(now, due time.Time) {
	if w.t == nil {
		return
	}
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.t.awake(now)
	w.judge(None, now)
	w.t.moved = now
	w.begun, w.due = now, due
}

// CountRemote counts a request whose end another process observed. None means success.
func (t *Tracker) CountRemote(now time.Time, c Cause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case c == None:
		t.good++
		t.fulls = 0
	case c < NumCauses:
		t.bad[c]++
		t.watchAfter(now, c)
	}
	if c == None || c == Failed || c.relative() { // there was a response
		t.moved = now
	}
}

// Late reports whether the request is overdue.
func (w *Watch) Late(now time.Time) bool {
	if w.t == nil {
		return false
	}
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.t.awake(now)
	return now.After(w.due)
}

// End stops watching the request. None means success, Void that the answer is no evidence, and Left
// that it ended without an answer.
func (w *Watch) End(now time.Time, c Cause) {
	t := w.t
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awake(now)
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	default:
		t.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	t.inFlight--
	if c == None && !w.judged && now.After(w.due) {
		c = Late
	}
	if c < NumCauses {
		w.judge(c, now)
	}
	if c < NumCauses && c != None {
		t.watchAfter(now, c)
	}
	if c == None || c == Late || c == Failed || c == Void || c.relative() { // there was a response
		t.moved = now
	}
	w.t, w.prev, w.next, w.body = nil, nil, nil, time.Time{}
}

// Ends of requests that are not evidence.
const (
	Void = NumCauses + iota // an answer without information on the endpoint, such as a client error
	Left                    // no answer: the client left or the request was cancelled
)

// judge counts the request once. A failure replaces an earlier success.
func (w *Watch) judge(c Cause, now time.Time) {
	t := w.t
	switch {
	case c == None && !w.judged:
		t.good++
		t.fulls = 0
		t.avoided.note(&w.Traits, None, w.Read, now)
	case c != None && c < NumCauses && (!w.judged || c != Late):
		if !t.avoided.explains(&w.Traits) {
			t.bad[c]++
			t.SetFailing(w.Question)
		}
		t.avoided.note(&w.Traits, c, w.Read, now)
	}
	w.judged = true
}

// Progress records a sign that the engine works, for example growing counters on its metrics page.
func (t *Tracker) Progress(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.moved) {
		t.moved = now
	}
}

// Cut reports whether a truncated answer to a client may count. It counts once per client among the
// last four, and once per moment, since a crashing client aborts all its requests together.
func (t *Tracker) Cut(client uint64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.lastCut) < oneMoment || !t.distinct(client) {
		return false
	}
	t.lastCut = now
	return true
}

// distinct reports whether a client is not among the last four with truncated answers, and records
// it. A slow reader delays only its own answers. The caller holds t.mu.
func (t *Tracker) distinct(client uint64) bool {
	for _, c := range t.cuts {
		if c == client {
			return false
		}
	}
	t.cuts[t.nextCut%len(t.cuts)] = client
	t.nextCut++
	return true
}

// BodyBegun records that a non-streamed response body has begun. Engines send it in one go, so the
// rest is expected by due.
func (w *Watch) BodyBegun(client uint64, due time.Time) {
	if w.t == nil {
		return
	}
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.body, w.client = due, client
}

// Question identifies the kind of request that a probe should send; 0: any.
type Question uint8

// Questions of probes; see [Question].
const (
	AskAny Question = iota
	AskCompletion
	AskCompletionStream
	AskChat
	AskChatStream
	AskEmbedding
)

// SetFailing records the kind of a request that failed, at this replica or another one; 0: none.
func (t *Tracker) SetFailing(q Question) {
	if q != 0 && t.Failing() != q {
		t.failing.Store(uint32(q))
	}
}

// Failing returns the kind of the last failed request, so that probes repeat it.
func (t *Tracker) Failing() Question { return Question(t.failing.Load()) }

// SetCloses records that a stream of the endpoint ended with its closing event.
func (t *Tracker) SetCloses() {
	if !t.closes.Load() {
		t.closes.Store(true)
	}
}

// Closes reports whether the endpoint's streams are known to end with a closing event, so that a
// stream without it is truncated.
func (t *Tracker) Closes() bool { return t.closes.Load() }

// SetFinishes records that a stream of the endpoint had a finish reason.
func (t *Tracker) SetFinishes() {
	if !t.ends.Load() {
		t.ends.Store(true)
	}
}

// Finishes reports whether the endpoint's streams are known to have a finish reason, so that a
// stream without one is incomplete.
func (t *Tracker) Finishes() bool { return t.ends.Load() }

// fullLongest is the maximum time for which a full queue excludes an endpoint.
const fullLongest = 10 * time.Second

// SetFull records that the engine rejected a request because its queue is full. The endpoint counts
// as full for d. Each further rejection after that doubles the time, up to ten seconds, until a
// request is answered.
func (t *Tracker) SetFull(now time.Time, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.FullAt(now.UnixNano()) {
		t.fulls = min(t.fulls+1, 8)
	}
	until := now.Add(min(d<<max(t.fulls-1, 0), fullLongest)).UnixNano()
	t.full.Store(max(until, t.full.Load()))
	t.avoided.restrict()
}

// refusals is how many consecutive rejections by a full queue are believed, if nothing in between shows that
// the engine works.
const refusals = 3

// Refuses reports whether the engine rejects all requests and does not work: a queue that is full becomes
// shorter.
func (t *Tracker) Refuses(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fulls >= refusals && t.inFlight <= 1 && now.Sub(t.moved) >= stallAfter
}

// OnRestrict sets a flag that the tracker sets when it finds the queue full, or requests to avoid.
// Call it before any other method.
func (t *Tracker) OnRestrict(flag *atomic.Bool) { t.avoided.restricted = flag }

// FullAt reports whether the queue counts as full at a time in Unix nanoseconds.
func (t *Tracker) FullAt(now int64) bool { return t.full.Load() > now }

// FullFor returns how long the queue still counts as full, or 0.
func (t *Tracker) FullFor(now time.Time) time.Duration {
	return max(time.Duration(t.full.Load()-now.UnixNano()), 0)
}

// Evidence returns the observations, with counts from the beginning. It judges overdue requests
// once. The caller fills in the fields of the metrics page.
func (t *Tracker) Evidence(now time.Time) Evidence {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awake(now)
	e := Evidence{Answered: Never, Moved: Never, InFlight: t.inFlight}
	var longest time.Duration
	for w := t.first; w != nil; w = w.next {
		if patience := w.due.Sub(w.begun); patience < Unbounded {
			longest = max(longest, patience)
		}
		if !w.body.IsZero() && now.After(w.body) && !w.judged {
			if t.distinct(w.client) {
				w.judge(Halted, now)
				t.WatchClosely(now)
			}
			w.body = time.Time{}
		}
		if !now.After(w.due) {
			continue
		}
		w.judge(Late, now)
		if t.avoided.explains(&w.Traits) {
			continue
		}
		e.Overdue++
		e.Twice = e.Twice || now.Sub(w.begun) > 2*w.due.Sub(w.begun)
	}
	if waited := t.hunger.wait(now, t.moved, longest); waited >= 1 && e.Overdue == 0 {
		e.Overdue, e.Starved, e.Twice = 1, true, waited >= 2
	}
	e.Good, e.Bad, e.Failing = t.good, t.bad, t.Failing()
	if !t.moved.IsZero() {
		e.Moved = max(now.Sub(t.moved), 0)
	}
	return e
}

// awake extends the deadlines of in-flight requests by the time for which this replica was paused.
// A long gap between calls of Evidence reveals a pause, during which answers may have arrived
// unread. The caller holds t.mu.
func (t *Tracker) awake(now time.Time) {
	gap := now.Sub(t.hunger.at)
	if t.hunger.at.IsZero() || gap <= pauseAt {
		return
	}
	t.hunger.at = now
	for w := t.first; w != nil; w = w.next {
		w.begun, w.due = w.begun.Add(gap), w.due.Add(gap)
	}
}

// Unbounded is the minimum duration of a request whose limit is unknown.
const Unbounded = time.Hour

// hunger measures how long consecutive requests have waited without progress, as a share of one
// request's limit. It detects a stall even if each client leaves before its request is overdue.
// Each reading of the evidence updates it.
type hunger struct {
	at, moved time.Time
	share     float64
}

// hungerHalf is the half-life of share while there are no requests.
const hungerHalf = 10 * time.Second

// wait updates and returns the share. moved is the time of the last progress; patience is the
// longest limit of the requests in flight, 0 if there are none.
func (h *hunger) wait(now, moved time.Time, patience time.Duration) float64 {
	span := now.Sub(h.at)
	switch {
	case h.at.IsZero(), !moved.Equal(h.moved):
		h.share = 0
	case span > 0 && patience > 0:
		h.share += float64(span) / float64(patience)
	case span > 0:
		h.share *= math.Exp2(-float64(span) / float64(hungerHalf))
	}
	h.at, h.moved = now, moved
	if patience <= 0 {
		return 0
	}
	return h.share
}
