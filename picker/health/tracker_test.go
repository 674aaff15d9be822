package health

import (
	"testing"
	"time"
)

func TestTracker(t *testing.T) {
	var tr Tracker
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	var quick, late, cut, hung Watch
	for _, w := range []*Watch{&quick, &late, &cut, &hung} {
		tr.Begin(w, at(0), at(2))
	}
	awake := func(from, to float64) {
		for s := from; s < to; s += .25 {
			tr.Evidence(at(s))
		}
	}
	quick.Moved(at(1), at(5))
	quick.End(at(4), None)
	if e := tr.Evidence(at(4)); e.Good != 1 || e.Overdue != 3 || e.Bad[Late] != 3 || e.Twice || e.Moved != 0 {
		t.Errorf("after the first answer: %+v", e)
	}
	awake(4, 5)
	late.End(at(5), None)
	cut.End(at(5), Cut)
	if !hung.Late(at(3)) {
		t.Error("the request past its time is not late")
	}
	awake(5, 6)
	hung.End(at(6), Void)
	awake(6, 7)
	e := tr.Evidence(at(7))
	if e.Good != 1 || e.Bad[Late] != 3 || e.Bad[Cut] != 1 || e.InFlight != 0 || e.Overdue != 0 || e.Moved != time.Second {
		t.Errorf("at the end: %+v", e)
	}
	hung.End(at(8), Failed) // a second end is ignored
	if tr.Evidence(at(8)).Bad[Failed] != 0 {
		t.Error("a request ended twice")
	}
	moment := func(n int) time.Time { return at(8).Add(time.Duration(n) * oneMoment) }
	if !tr.Cut(7, moment(0)) || tr.Cut(7, moment(1)) || tr.Cut(8, moment(1).Add(-1)) || !tr.Cut(8, moment(1)) {
		t.Error("one client's cut answers count more than once")
	}
}

// TestAwake: the time during which the process does not run does not count for a request. An answer
// that was read late for this reason is not late, and neither are the next ones.
func TestAwake(t *testing.T) {
	var tr Tracker
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	var answered, left, waits, next Watch
	for _, w := range []*Watch{&answered, &left, &waits} {
		tr.Begin(w, at(0), at(2))
	}
	tr.Evidence(at(1))
	answered.End(at(11), None)
	if left.Late(at(11)) {
		t.Error("late for a client that left while the tracker paused")
	}
	left.End(at(11), Left)
	tr.Begin(&next, at(11), at(13))
	if e := tr.Evidence(at(11.1)); e.Good != 1 || e.Bad != [NumCauses]uint64{} || e.Overdue != 0 {
		t.Errorf("after a pause of ten seconds: %+v", e)
	}
	for s := 11.5; s < 12.1; s += .5 {
		tr.Evidence(at(s))
	}
	if e := tr.Evidence(at(12.2)); e.Bad[Late] != 1 || e.Overdue != 1 || !waits.Late(at(12.2)) {
		t.Errorf("a second later one is late: %+v", e)
	}
}

// TestFull: an engine that refuses all requests as full gets fewer and fewer requests, down to one
// in ten seconds. An engine that answers between two refusals does not.
func TestFull(t *testing.T) {
	var tr Tracker
	begun := time.Unix(1000, 0)
	now := begun
	for _, want := range []int{1, 2, 4, 8, 10, 10} {
		want := time.Duration(want) * time.Second
		for range 5 { // requests already in flight are refused too
			tr.SetFull(now, time.Second)
		}
		if got := tr.FullFor(now); got != want {
			t.Errorf("after %v it counts as full for %v, want %v", now.Sub(begun), got, want)
		}
		if now = now.Add(want); !tr.FullAt(now.UnixNano()-1) || tr.FullAt(now.UnixNano()) {
			t.Errorf("after %v it is not full for as long as that", now.Sub(begun))
		}
	}
	var w Watch
	tr.Begin(&w, now, now.Add(time.Second))
	w.End(now, None)
	tr.SetFull(now, time.Second)
	if got := tr.FullFor(now); got != time.Second {
		t.Errorf("full again after an answer, for %v", got)
	}
	if tr.SetFull(now, time.Hour); tr.FullFor(now) != fullLongest {
		t.Errorf("full for %v", tr.FullFor(now))
	}
}

func TestTrackerIsFree(t *testing.T) {
	var tr Tracker
	var w Watch
	now := time.Unix(1000, 0)
	if n := testing.AllocsPerRun(100, func() {
		tr.Begin(&w, now, now.Add(time.Second))
		w.Moved(now, now.Add(time.Second))
		w.End(now, None)
	}); n != 0 {
		t.Errorf("%v allocations for a request", n)
	}
}

func TestPrompts(t *testing.T) {
	var p Prompts
	now := time.Unix(1000, 0)
	if !p.Empty() || p.Failed(1, 0, now) || p.Failed(1, 0, now) {
		t.Error("a prompt is guilty that failed at one endpoint only")
	}
	if !p.Failed(1, 1, now) || !p.Suspected(1, now) || p.Suspected(1, now.Add(time.Hour)) {
		t.Error("a prompt is innocent that failed at two endpoints")
	}
	p.Succeeded(1, now)
	if p.Suspected(1, now) || !p.Empty() || p.Failed(1, 2, now) {
		t.Error("a prompt that was answered is still remembered")
	}
	for k := range uint64(3 * maxPrompts) {
		if p.Failed(100+k, 0, now) {
			t.Fatalf("prompt %d is guilty at once", k)
		}
	}
	if p.Failed(0, 0, now) || p.Failed(0, 1, now) {
		t.Error("a prompt without a name is guilty")
	}
}

// TestHear: counts start at another replica's first evidence. A restarted replica is not counted
// twice, and a departed one is dropped.
func TestHear(t *testing.T) {
	s, now := NewSet(Options{}), time.Unix(1000, 0)
	s.Join(0, "a", now)
	s.Join(1, "a", now)
	s.Join(2, "a", now)
	say := func(failed uint64) State {
		e := unknown()
		e.Bad[Failed] = failed
		now = now.Add(tick)
		s.Receive("peer", 0, e, now)
		s.Step(now)
		return s.View(0).State
	}
	if got := say(100); got != Healthy {
		t.Errorf("what a peer saw before: %s", got)
	}
	if got := say(110); got != Out {
		t.Errorf("ten failures: %s", got)
	}
	s.Leave(0, now)
	s.Join(0, "b", now)
	if got := s.View(0).State; got != Healthy {
		t.Errorf("another endpoint under the id: %s", got)
	}
	e := unknown()
	e.Refused = true
	s.Receive("peer", 1, e, now)
	s.Drop("peer")
	s.Step(now.Add(tick))
	if got := s.View(1).State; got != Healthy {
		t.Errorf("word of a replica that left: %s", got)
	}
}

// TestLook: one answer a second is watched to its end, and after a bad one every answer for a
// while.
func TestLook(t *testing.T) {
	var tr Tracker
	var w Watch
	now := time.Unix(1000, 0)
	looks := func(d time.Duration) (n int) {
		for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
			if tr.SampleAnswer(now) {
				n++
			}
		}
		return n
	}
	if n := looks(5 * time.Second); n != 5 {
		t.Errorf("%d of 50 answers in 5 s are seen, want one a second", n)
	}
	tr.AnswerSampled(now)
	if n := looks(time.Second); n != 0 {
		t.Errorf("%d of 10 answers are seen within a second of one that was sampled, want 0", n)
	}
	tr.Begin(&w, now, now.Add(time.Second))
	w.End(now, Void)
	if n := looks(time.Second); n != 1 {
		t.Errorf("%d of 10 after an outcome without evidence", n)
	}
	tr.Begin(&w, now, now.Add(time.Second))
	w.End(now, Cut)
	if n := looks(wariness); n != 50 {
		t.Errorf("%d of 50 after one that broke off, want all", n)
	}
	if n := looks(2 * time.Second); n > 2 {
		t.Errorf("%d of 20 once that is over", n)
	}
}

// TestOddLooksAreLimited: an endpoint whose answers have odd content for a minute does not have all of
// them observed, at any rate of requests.
func TestOddLooksAreLimited(t *testing.T) {
	for _, rate := range []int{1, 30, 500} {
		var tr Tracker
		var w Watch
		now, n := time.Unix(1000, 0), 0
		for range 60 * rate {
			now = now.Add(time.Second / time.Duration(rate))
			if tr.SampleAnswer(now) {
				n++
			}
			tr.Begin(&w, now, now.Add(time.Second))
			w.End(now, Invalid)
		}
		if most := oddLooks + 60*int(time.Second/oddPause) + 60; n > most || rate > 1 && n < oddLooks {
			t.Errorf("%d of %d answers are observed at %d/s, want %d to %d", n, 60*rate, rate, oddLooks, most)
		}
	}
}
