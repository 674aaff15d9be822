package health

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Tracker watches the requests in flight at one endpoint. It is safe for
// concurrent use; its zero value is ready.
type Tracker struct {
	mu       sync.Mutex
	first    *Watch // in flight, latest first
	inFlight int
	good     uint64
	bad      [NumCauses]uint64
	moved    time.Time
	cuts     [4]uint64 // clients of the last answers that ended in the middle
	nextCut  int
	lastCut  time.Time
	fulls    int // times in a row that its queue was full
	hunger   hunger
	shuns    shuns

	full    atomic.Int64 // Unix nanoseconds until which its queue counts as full
	wary    atomic.Int64 // Unix nanoseconds until which every answer is to be seen
	looked  atomic.Int64 // Unix nanoseconds when one was last to be seen
	sampled atomic.Int64 // answers that were to be seen for other reasons
	closes  atomic.Bool  // its streams end with a closing event
}

const (
	oneMoment = 50 * time.Millisecond
	lookEvery = time.Second
	wariness  = 5 * time.Second
)

// SampleAnswer reports whether the next answer is to be seen to its end: one a second,
// since an answer that breaks off looks well from its beginning, and all of them
// for a while after one spoke against the endpoint.
func (t *Tracker) SampleAnswer(now time.Time) bool {
	n, last := now.UnixNano(), t.looked.Load()
	return n < t.wary.Load() || n-last >= int64(lookEvery) && t.looked.CompareAndSwap(last, n)
}

// AnswerSampled notes that the next answer is seen for another reason, so that no further one
// has to be seen in the same second.
func (t *Tracker) AnswerSampled(now time.Time) {
	t.looked.Store(now.UnixNano())
	t.sampled.Add(1)
}

// AnswersSampled returns how many answers AnswerSampled has counted.
func (t *Tracker) AnswersSampled() int64 { return t.sampled.Load() }

// WatchClosely has all answers seen for a while, as where another replica saw one break off.
func (t *Tracker) WatchClosely(now time.Time) { t.wary.Store(now.Add(wariness).UnixNano()) }

// Watch is one request in flight. It is not safe for concurrent use, except that
// its Tracker may look at it at any time. Begin it once.
type Watch struct {
	Model uint64 // names what is asked for, 0: nothing; set it before Begin

	t          *Tracker
	prev, next *Watch
	begun, due time.Time
	judged     bool
	body       time.Time // when the rest of a body that has begun is overdue; zero: none has
	client     uint64    // of body
}

// Begin watches a request that is expected to move, or to end, by due.
func (t *Tracker) Begin(w *Watch, now, due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awake(now)
	*w = Watch{Model: w.Model, t: t, begun: now, due: due, next: t.first}
	t.shuns.begin(w.Model, now)
	if t.first != nil {
		t.first.prev = w
	}
	t.first = w
	t.inFlight++
}

// Moved notes that text of the answer came; the next is expected, or the end, by
// due.
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

// CountRemote counts a request whose end somebody else saw: None says that it ended well.
func (t *Tracker) CountRemote(now time.Time, c Cause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case c == None:
		t.good++
		t.fulls = 0
	case c < NumCauses:
		t.bad[c]++
		t.wary.Store(now.Add(wariness).UnixNano())
	}
	if c == None || c == Failed || c == Declined || c == Invalid { // somebody answered
		t.moved = now
	}
}

// Late reports whether the request was found to be past its time.
func (w *Watch) Late(now time.Time) bool {
	if w.t == nil {
		return false
	}
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.t.awake(now)
	return now.After(w.due)
}

// End takes the request out. None says that it ended well; Void, that its answer
// says nothing; Left, that it ended without one.
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
		t.WatchClosely(now)
	}
	if c == None || c == Late || c == Failed || c == Void || c == Declined || c == Invalid { // somebody answered
		t.moved = now
	}
	w.t, w.prev, w.next, w.body = nil, nil, nil, time.Time{}
}

// Ends of requests that are no evidence.
const (
	Void = NumCauses + iota // an answer that says nothing about the endpoint, such as a client's error
	Left                    // no answer: the client went away, or somebody ended the request for it
)

// judge counts the request, once. A worse word replaces that it was in time.
func (w *Watch) judge(c Cause, now time.Time) {
	t := w.t
	switch {
	case c == None && !w.judged:
		t.good++
		t.fulls = 0
		t.shuns.note(w.Model, false, now)
	case c != None && c < NumCauses && (!w.judged || c != Late):
		t.bad[c]++
		t.shuns.note(w.Model, true, now)
	}
	w.judged = true
}

// Progress notes that the engine was seen to work, as by counters on its page
// that grow.
func (t *Tracker) Progress(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.moved) {
		t.moved = now
	}
}

// Cut reports whether an answer to a client that ended in the middle may count: of one
// client's, one among the last four, and one of those that end at the same moment, as
// the requests of a program do that dies.
func (t *Tracker) Cut(client uint64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.lastCut) < oneMoment || !t.distinct(client) {
		return false
	}
	t.lastCut = now
	return true
}

// distinct reports whether a client is none of the last four whose answers stopped, and adds
// it to them. A client that reads slowly stops its own answers only. t.mu is held.
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

// BodyBegun notes that the body of an answer that is not streamed has begun. The engine sends
// it at once, so that its rest is expected by due.
func (w *Watch) BodyBegun(client uint64, due time.Time) {
	if w.t == nil {
		return
	}
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.body, w.client = due, client
}

// SetCloses notes that a stream of the endpoint's ended with its closing event.
func (t *Tracker) SetCloses() {
	if !t.closes.Load() {
		t.closes.Store(true)
	}
}

// Closes reports whether streams of the endpoint's are known to end with a closing event,
// so that one without it has broken off.
func (t *Tracker) Closes() bool { return t.closes.Load() }

// fullLongest is for how long at most an endpoint is passed over for a full queue.
const fullLongest = 10 * time.Second

// SetFull notes that the engine refused a request because its queue is full. It counts
// as full for a while: each time that this is over, and the next request is refused too,
// for twice as long, up to ten seconds, until one is answered.
func (t *Tracker) SetFull(now time.Time, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.FullAt(now.UnixNano()) {
		t.fulls = min(t.fulls+1, 8)
	}
	until := now.Add(min(d<<max(t.fulls-1, 0), fullLongest)).UnixNano()
	t.full.Store(max(until, t.full.Load()))
}

// FullAt reports whether the queue counts as full at a time in Unix nanoseconds.
func (t *Tracker) FullAt(now int64) bool { return t.full.Load() > now }

// FullFor returns for how long the queue counts as full from now on, 0 when it does not.
func (t *Tracker) FullFor(now time.Time) time.Duration {
	return max(time.Duration(t.full.Load()-now.UnixNano()), 0)
}

// Evidence returns what was seen, with counts from the beginning. Requests that
// are past their time are judged, once. The page's part is the caller's to fill.
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
		e.Overdue++
		e.Twice = e.Twice || now.Sub(w.begun) > 2*w.due.Sub(w.begun)
	}
	if waited := t.hunger.wait(now, t.moved, longest); waited >= 1 && e.Overdue == 0 {
		e.Overdue, e.Starved, e.Twice = 1, true, waited >= 2
	}
	e.Good, e.Bad = t.good, t.bad
	if !t.moved.IsZero() {
		e.Moved = max(now.Sub(t.moved), 0)
	}
	return e
}

// awake has the clocks of requests in flight stand still for as long as this replica stood
// still: where evidence, which is taken several times a second, was not taken for a while,
// answers may have come that nobody has read yet. t.mu is held.
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

// Unbounded is the least time that a request may take of which nobody knows how long it may.
const Unbounded = time.Hour

// hunger is for how long requests have waited, one after the other, while nothing moved, as a
// share of what one of them may take: where each client leaves before its request is past its
// time, none ever is. It is reckoned whenever evidence is taken.
type hunger struct {
	at, moved time.Time
	share     float64
}

// hungerHalf is its half-life while there are no requests.
const hungerHalf = 10 * time.Second

// wait returns the share, when something last moved at a time and the longest that a request
// in flight may take is patience; 0: there is none.
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
