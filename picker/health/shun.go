package health

import (
	"math"
	"sync/atomic"
	"time"
)

// shuns are the models of which the requests fail at an endpoint that serves others: an
// adapter that hangs, or was loaded wrongly, speaks with its few requests against no
// endpoint as a whole. Its Tracker locks it, but for open.
type shuns struct {
	list [maxShuns]shun
	open atomic.Int32 // of them, those that are passed over
}

// shun is one of them.
type shun struct {
	model  uint64 // 0: none
	score  float64
	at     time.Time // of score
	others int       // requests of other models that were answered meanwhile
	times  int       // that it has been passed over; 0: it is not
	until  time.Time
	trial  time.Time // when a request went there after that; zero: none has
}

const (
	maxShuns   = 8
	shunAt     = 10. // three requests in a row
	shunHalf   = time.Minute
	shunOthers = 3
	shunFor    = 10 * time.Second
	shunTrial  = 5 * time.Second // for which the first request is waited for
	shunMost   = 4               // doublings
)

// note takes how a request of a model ended.
func (s *shuns) note(model uint64, bad bool, now time.Time) {
	var mine, free *shun
	for i := range s.list {
		e := &s.list[i]
		if e.model != 0 && e.model != model && !bad {
			e.others++
		}
		switch {
		case model != 0 && e.model == model:
			mine = e
		case free == nil || free.model != 0 && (e.model == 0 || free.times > e.times || free.times == e.times && free.score > e.score):
			free = e
		}
	}
	if mine == nil {
		if !bad || model == 0 || free.times > 0 {
			return
		}
		mine = free
		*mine = shun{model: model, at: now}
	}
	mine.weigh(bad, now)
	switch {
	case mine.times == 0 && mine.score >= shunAt && mine.others >= shunOthers:
		mine.pass(now)
		s.open.Add(1)
	case mine.times > 0 && !mine.trial.IsZero() && bad:
		mine.pass(now)
	case mine.times > 0 && !mine.trial.IsZero(), mine.score < clearBelow && mine.times == 0:
		if mine.times > 0 {
			s.open.Add(-1)
		}
		*mine = shun{}
	}
}

func (e *shun) weigh(bad bool, now time.Time) {
	e.score *= math.Exp2(-float64(max(now.Sub(e.at), 0)) / float64(shunHalf))
	e.at = now
	gain := math.Log((1 - sickShare) / .99)
	if bad {
		gain = math.Log(sickShare / .01)
	}
	e.score = min(max(e.score+gain, 0), maxScore)
}

// pass has the model passed over, for longer each time.
func (e *shun) pass(now time.Time) {
	e.until, e.trial = now.Add(shunFor<<min(e.times, shunMost)), time.Time{}
	e.times++
}

// begin notes that a request of a model goes there.
func (s *shuns) begin(model uint64, now time.Time) {
	if s.open.Load() == 0 {
		return
	}
	for i := range s.list {
		if e := &s.list[i]; e.model == model && e.times > 0 && !now.Before(e.until) {
			e.trial = now
		}
	}
}

func (s *shuns) has(model uint64, now time.Time) bool {
	for i := range s.list {
		if e := &s.list[i]; e.model == model && e.times > 0 {
			return now.Before(e.until) || now.Sub(e.trial) < shunTrial
		}
	}
	return false
}

// Shuns reports whether requests of a model are to be sent elsewhere, since they fail here
// while those of other models are answered. After ten seconds one is let through, and when
// that fails too, the next after twice as long, up to 160 s.
func (t *Tracker) Shuns(model uint64, now time.Time) bool {
	if t.shuns.open.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shuns.has(model, now)
}

// Forgive forgets what speaks against single models, as when the endpoint is out for all of
// them, or its engine has started again.
func (t *Tracker) Forgive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.shuns.list[:])
	t.shuns.open.Store(0)
}

// Shunned returns how many models are passed over.
func (t *Tracker) Shunned() int { return int(t.shuns.open.Load()) }
