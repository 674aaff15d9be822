package health

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// shuns are the models of which the requests fail at an endpoint that serves others: an
// adapter that hangs, or was loaded wrongly, speaks with its few requests against no
// endpoint as a whole. Its Tracker locks it, but for open.
type shuns struct {
	list [maxShuns]shun
	news uint64       // changes of what this replica found out
	open atomic.Int32 // of them, those that are passed over
}

// shun is one of them.
type shun struct {
	model  uint64 // 0: none
	score  float64
	at     time.Time // of score
	others int       // requests of other models that were answered meanwhile
	worse  int       // and those that were not
	times  int       // that it has been passed over; 0: it is not
	until  time.Time
	from   string    // the replica that found out; "": this one
	trial  time.Time // when a request went there after that; zero: none has
}

const (
	maxShuns   = 8
	shunAt     = 10. // three requests in a row
	shunHalf   = time.Minute
	shunOthers = 3
	shunPrior  = 5 // answers that are assumed of other models at first
	shunFor    = 10 * time.Second
	shunTrial  = 5 * time.Second // for which the first request is waited for
	shunMost   = 4               // doublings
	mostTimes  = shunMost + 1    // that are told apart
)

// note takes how a request of a model ended.
func (s *shuns) note(model uint64, bad bool, now time.Time) {
	var mine, free *shun
	for i := range s.list {
		e := &s.list[i]
		if e.model != 0 && e.model != model {
			if bad {
				e.worse++
			} else {
				e.others++
			}
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
		s.pass(mine, now)
		s.open.Add(1)
	case mine.times > 0 && !mine.trial.IsZero() && bad:
		s.pass(mine, now)
	case mine.times > 0 && !mine.trial.IsZero(), mine.score < clearBelow && mine.times == 0:
		s.end(mine)
	}
}

// weigh moves the score, by how other models fare there: where they fail alike, as at an
// engine that has too much to do, it is no model's fault.
func (e *shun) weigh(bad bool, now time.Time) {
	e.score *= math.Exp2(-float64(max(now.Sub(e.at), 0)) / float64(shunHalf))
	e.at = now
	usual := min(max(2*float64(e.worse)/float64(e.others+e.worse+shunPrior), .01), sickShare)
	gain := math.Log((1 - sickShare) / (1 - usual))
	if bad {
		gain = math.Log(sickShare / usual)
	}
	e.score = min(max(e.score+gain, 0), maxScore)
}

// pass has the model passed over, for longer each time.
func (s *shuns) pass(e *shun, now time.Time) {
	e.until, e.trial, e.from = now.Add(shunFor<<min(e.times, shunMost)), time.Time{}, ""
	e.times++
	s.news++
}

// end takes one out.
func (s *shuns) end(e *shun) {
	if e.times > 0 {
		s.open.Add(-1)
		s.news++
	}
	*e = shun{}
}

// find returns a model's, nil when there is none.
func (s *shuns) find(model uint64) *shun {
	for i := range s.list {
		if e := &s.list[i]; e.model == model && e.times > 0 {
			return e
		}
	}
	return nil
}

// begin notes that a request of a model goes there.
func (s *shuns) begin(model uint64, now time.Time) {
	if s.open.Load() == 0 {
		return
	}
	if e := s.find(model); e != nil && !now.Before(e.until) {
		e.trial = now
	}
}

func (s *shuns) has(model uint64, now time.Time) bool {
	e := s.find(model)
	return e != nil && (now.Before(e.until) || now.Sub(e.trial) < shunTrial)
}

// Avoids reports whether requests of a model are to be sent elsewhere, since they fail here
// while those of other models are answered. After ten seconds one is let through, and when
// that fails too, the next after twice as long, up to 160 s.
func (t *Tracker) Avoids(model uint64, now time.Time) bool {
	if t.shuns.open.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shuns.has(model, now)
}

// AvoidsFor returns for how long requests of a model are sent elsewhere from now on, unless one
// that is let through then fails too; 0 when they are not.
func (t *Tracker) AvoidsFor(model uint64, now time.Time) time.Duration {
	if t.shuns.open.Load() == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.shuns.find(model); e != nil {
		return max(e.until.Sub(now), 0)
	}
	return 0
}

// ModelAvoidance is a model that is passed over at an endpoint, as replicas tell each other.
type ModelAvoidance struct {
	Model uint64
	For   time.Duration // from now on; 0: the next request is a trial
	Times int           // that it has been passed over
}

// Found appends the models that this replica found to fail, which are passed over, and returns
// a number that is another one whenever these have changed.
func (t *Tracker) Found(list []ModelAvoidance, now time.Time) ([]ModelAvoidance, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.shuns.list {
		if e := &t.shuns.list[i]; e.times > 0 && e.from == "" {
			list = append(list, ModelAvoidance{e.model, max(e.until.Sub(now), 0), min(e.times, mostTimes)})
		}
	}
	return list, t.shuns.news
}

// ReceiveAvoidances takes all that another replica has found of the endpoint. Its models are passed over
// here too until it says otherwise, or until a request that is let through here is answered.
func (t *Tracker) ReceiveAvoidances(origin string, list []ModelAvoidance, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.shuns.list {
		e := &t.shuns.list[i]
		if e.times > 0 && e.from == origin && !slices.ContainsFunc(list, func(o ModelAvoidance) bool { return o.Model == e.model }) {
			t.shuns.end(e)
		}
	}
	for _, o := range list[:min(len(list), maxShuns)] {
		t.shuns.adopt(origin, o, now)
	}
}

// adopt takes what another replica found of a model, unless this one knows better.
func (s *shuns) adopt(origin string, o ModelAvoidance, now time.Time) {
	if o.Model == 0 || o.Times <= 0 {
		return
	}
	times, until := min(o.Times, mostTimes), now.Add(min(o.For, shunFor<<shunMost))
	e := s.find(o.Model)
	switch {
	case e == nil && o.For <= 0: // it may have been answered here since
		return
	case e == nil:
		i := slices.IndexFunc(s.list[:], func(e shun) bool { return e.model == o.Model })
		if i < 0 {
			i = slices.IndexFunc(s.list[:], func(e shun) bool { return e.times == 0 })
		}
		if i < 0 {
			return
		}
		e = &s.list[i]
		s.open.Add(1)
	case o.For > 0 && times > e.times: // it failed there again
	case e.from != origin, e.times == times && until.Sub(e.until) < time.Second: // nothing new: one that is let through may be on its way
		return
	}
	*e = shun{model: o.Model, score: maxScore, at: now, others: shunOthers, times: times, until: until, from: origin}
}

// ClearModels forgets what speaks against single models, as when the endpoint is out for all of
// them, or its engine has started again.
func (t *Tracker) ClearModels() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.shuns.list[:])
	t.shuns.open.Store(0)
	t.shuns.news++
}

// AvoidedCount returns how many models are passed over.
func (t *Tracker) AvoidedCount() int { return int(t.shuns.open.Load()) }
