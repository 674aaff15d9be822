package health

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// shuns holds the models whose requests fail at an endpoint that serves other models well. An
// adapter that hangs or was loaded incorrectly gets too few requests to affect the endpoint's own
// score. All fields except open are guarded by Tracker.mu.
type shuns struct {
	list [maxShuns]shun
	news uint64       // version of this replica's own findings
	open atomic.Int32 // number of models that are avoided now
}

// shun is the failure record of one model.
type shun struct {
	model  uint64 // 0: unused
	score  float64
	at     time.Time // time of the last score update
	others int       // requests of other models answered in the same time
	worse  int       // requests of other models that failed in the same time
	times  int       // times the model was avoided; 0: not avoided
	until  time.Time
	from   string    // the replica that found the failure; "": this one
	trial  time.Time // when a trial request was sent after until; zero: not yet
}

const (
	maxShuns   = 8
	shunAt     = 10. // about three failures in a row
	shunHalf   = time.Minute
	shunOthers = 3
	shunPrior  = 5 // prior: good answers assumed of other models
	shunFor    = 10 * time.Second
	shunTrial  = 5 * time.Second // how long to wait for the result of a trial
	shunMost   = 4               // maximum doublings of shunFor
	mostTimes  = shunMost + 1    // highest count that is kept
)

// note records the result of one request of a model.
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

// weigh updates the score. Failures count less when requests of other models fail as well, for
// example on an overloaded engine.
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

// pass starts avoiding the model. Each repetition doubles the duration, up to shunMost doublings.
func (s *shuns) pass(e *shun, now time.Time) {
	e.until, e.trial, e.from = now.Add(shunFor<<min(e.times, shunMost)), time.Time{}, ""
	e.times++
	s.news++
}

// end removes one entry.
func (s *shuns) end(e *shun) {
	if e.times > 0 {
		s.open.Add(-1)
		s.news++
	}
	*e = shun{}
}

// find returns the entry of a model that is avoided, or nil.
func (s *shuns) find(model uint64) *shun {
	for i := range s.list {
		if e := &s.list[i]; e.model == model && e.times > 0 {
			return e
		}
	}
	return nil
}

// begin records that a request of a model was sent to the endpoint.
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

// Avoids reports whether requests of a model should avoid this endpoint, because they fail here
// while requests of other models succeed. After ten seconds one trial request is allowed. Each
// failed trial doubles the wait, up to 160 s.
func (t *Tracker) Avoids(model uint64, now time.Time) bool {
	if t.shuns.open.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shuns.has(model, now)
}

// AvoidsFor returns how long from now requests of a model avoid this endpoint, or 0 if they do not.
// A failed trial request extends the time.
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

// ModelAvoidance reports to other replicas that a model is avoided at an endpoint.
type ModelAvoidance struct {
	Model uint64
	For   time.Duration // remaining time; 0: the next request is a trial
	Times int           // times the model was avoided
}

// Found appends the avoided models that this replica itself found, and returns a version number
// that changes whenever they change.
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

// ReceiveAvoidances replaces the findings of another replica for the endpoint. Its models are
// avoided here too until that replica removes them or a trial request succeeds here.
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

// adopt merges another replica's finding. Newer findings of this replica take precedence.
func (s *shuns) adopt(origin string, o ModelAvoidance, now time.Time) {
	if o.Model == 0 || o.Times <= 0 {
		return
	}
	times, until := min(o.Times, mostTimes), now.Add(min(o.For, shunFor<<shunMost))
	e := s.find(o.Model)
	switch {
	case e == nil && o.For <= 0: // expired; this replica may have had an answer since
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
	case o.For > 0 && times > e.times: // a trial failed at the other replica
	case e.from != origin, e.times == times && until.Sub(e.until) < time.Second: // no new information; a trial request may be in flight
		return
	}
	*e = shun{model: o.Model, score: maxScore, at: now, others: shunOthers, times: times, until: until, from: origin}
}

// ClearModels removes all model failures, for example when the whole endpoint is out or its engine
// has restarted.
func (t *Tracker) ClearModels() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.shuns.list[:])
	t.shuns.open.Store(0)
	t.shuns.news++
}

// AvoidedCount returns the number of avoided models.
func (t *Tracker) AvoidedCount() int { return int(t.shuns.open.Load()) }
