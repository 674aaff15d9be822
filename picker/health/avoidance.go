package health

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Trait is a property of requests by which an endpoint may fail some of them and serve the rest.
type Trait uint8

// Traits.
const (
	TraitModel     Trait = iota // the model or adapter
	TraitClient                 // the client, of one model
	TraitClass                  // kind, streaming, size and features together, of one model
	TraitTenant                 // the client
	TraitKind                   // the API
	TraitStreaming              // whether the answer is streamed
	TraitSize                   // the order of magnitude of the prompt
	TraitFeatures               // optional features such as tools
	NumTraits
)

// Traits are the hashes of a request's traits, 0 for an unknown one. A hash identifies the trait
// and its value.
type Traits [NumTraits]uint64

// avoidances holds the values of traits whose requests fail at an endpoint that serves others well. An
// adapter that hangs or was loaded incorrectly, or a client whose key an engine does not have, gets
// too few requests to affect the endpoint's own score. All fields except open are guarded by
// Tracker.mu.
type avoidances struct {
	list  [maxAvoidances]avoidance
	used  int             // entries in list
	peers []peerSuspicion // of other replicas
	news  uint64          // version of this replica's own findings and suspicions
	open  atomic.Int32    // number of values that are avoided now

	restricted *atomic.Bool // see Tracker.OnRestrict; may be nil
}

// opened counts a value that is avoided from now on.
func (s *avoidances) opened() {
	s.open.Add(1)
	s.restrict()
}

func (s *avoidances) restrict() {
	if s.restricted != nil {
		s.restricted.Store(true)
	}
}

// avoidance is the failure record of one value of a trait.
type avoidance struct {
	trait   Trait  // NumTraits: unknown, since another replica found it
	key     uint64 // 0: unused
	model   uint64 // of a client or class, whose requests are compared with others of this model; 0: with all
	client  uint64 // of the last failure
	content bool   // the last failure was found in the content of an answer
	score   float64
	at      time.Time // time of the last score update
	others  int       // requests of other values answered in the same time
	worse   int       // requests of other values that failed in the same time
	times   int       // times the value was avoided; 0: not avoided
	until   time.Time
	from    string    // the replica that found the failure; "": this one
	trial   time.Time // when a trial request was sent after until; zero: not yet
}

const (
	maxAvoidances = 32
	avoidAt       = 9.  // three failures in a row
	avoidUsual    = .01 // failure share that is considered normal
	// avoidDiffers replaces avoidUsual for the client of a response that the protocol allows, since
	// these do not happen by chance: two in a row are enough.
	avoidDiffers = .001
	avoidHalf    = 5 * time.Minute
	avoidOthers  = 3
	avoidPrior   = 5 // prior: good answers assumed of other models
	avoidFor     = 20 * time.Second
	avoidTrial   = 5 * time.Second // how long to wait for the result of a trial
	avoidMost    = 3               // maximum doublings of avoidFor
	mostTimes    = avoidMost + 1   // highest count that is kept
)

// note records the result of one request. read means that its answer's content is known: an unread answer
// is no better than one with odd content.
func (s *avoidances) note(t *Traits, c Cause, read bool, now time.Time) {
	if c == None && s.used == 0 {
		return
	}
	var mine [NumTraits]*avoidance
	for i := range s.list {
		e := &s.list[i]
		switch trait := e.traitIn(t); {
		case e.key == 0, c == None && !read && e.content:
		case trait < NumTraits:
			mine[trait] = e
		case e.trait < NumTraits && e.model == t.modelOf(e.trait) && c == None:
			e.others++
			s.decide(e, now)
		case e.trait < NumTraits && e.model == t.modelOf(e.trait):
			e.worse++
		}
	}
	for trait, e := range mine {
		if trait := Trait(trait); e != nil || c != None && t[trait] != 0 {
			s.noteOne(e, trait, t, c, now)
		}
	}
}

// traitIn returns the trait by which a request has the entry's value, or NumTraits.
func (e *avoidance) traitIn(t *Traits) Trait {
	if e.trait < NumTraits {
		if t[e.trait] == e.key {
			return e.trait
		}
		return NumTraits
	}
	for trait, key := range t {
		if key == e.key {
			return Trait(trait)
		}
	}
	return NumTraits
}

// modelOf returns the model whose requests are compared for a trait, 0 for all.
func (t *Traits) modelOf(trait Trait) uint64 {
	if trait == TraitClient || trait == TraitClass {
		return t[TraitModel]
	}
	return 0
}

// noteOne records the result of a request with a value of a trait; mine is nil if it has no entry.
func (s *avoidances) noteOne(mine *avoidance, trait Trait, t *Traits, c Cause, now time.Time) {
	if mine == nil {
		mine = s.room()
		if mine.times > 0 {
			return
		}
		if mine.key == 0 {
			s.used++
		}
		*mine = avoidance{key: t[trait], at: now}
	}
	bad, client := c != None, t[TraitClient]
	mine.trait, mine.model = trait, t.modelOf(trait) // unknown if another replica found it
	usual := avoidUsual
	if bad && c.relative() {
		switch {
		case trait == TraitClient, trait == TraitTenant:
			usual = avoidDiffers
		case client != 0 && client == mine.client: // it may be the client's fault
			return
		}
	}
	mine.weigh(bad, usual, now)
	if bad {
		mine.client, mine.content = client, c == Invalid || c == Short
	}
	s.news++
	switch {
	case mine.times > 0 && !mine.trial.IsZero() && bad:
		s.pass(mine, now)
	case mine.times > 0 && !mine.trial.IsZero(), mine.score < clearBelow && mine.times == 0:
		s.end(mine)
	case bad:
		s.decide(mine, now)
	}
}

// decide starts to avoid a value if the evidence of all replicas suffices.
func (s *avoidances) decide(e *avoidance, now time.Time) {
	if e.key == 0 || e.times > 0 || e.score < clearBelow {
		return
	}
	score, others := s.pooled(e, now)
	if score >= avoidAt && others >= avoidOthers {
		s.pass(e, now)
		s.opened()
	}
}

// room returns a free entry, or the one with the least evidence.
func (s *avoidances) room() *avoidance {
	free := &s.list[0]
	for i := range s.list {
		e := &s.list[i]
		if e.key == 0 {
			return e
		}
		if free.times > e.times || free.times == e.times && free.score > e.score {
			free = e
		}
	}
	return free
}

// weigh updates the score. Failures count less when requests of other values fail as well, for
// example on an overloaded engine.
func (e *avoidance) weigh(bad bool, usual float64, now time.Time) {
	e.score, e.at = e.scoreAt(now), now
	usual = min(max(2*float64(e.worse)/float64(e.others+e.worse+avoidPrior), usual), unhealthyShare)
	gain := math.Log((1 - unhealthyShare) / (1 - usual))
	if bad {
		gain = math.Log(unhealthyShare / usual)
	}
	e.score = min(max(e.score+gain, 0), maxScore)
}

// pass starts avoiding the value. Each repetition doubles the duration, up to avoidMost doublings.
func (s *avoidances) pass(e *avoidance, now time.Time) {
	e.until, e.trial, e.from = now.Add(avoidFor<<min(e.times, avoidMost)), time.Time{}, ""
	e.times++
	s.news++
}

// end removes one entry.
func (s *avoidances) end(e *avoidance) {
	if e.times > 0 {
		s.open.Add(-1)
		s.news++
	}
	s.used--
	s.forgetPeers(e.key)
	*e = avoidance{}
}

// find returns the entry of a value that is avoided, or nil.
func (s *avoidances) find(key uint64) *avoidance {
	for i := range s.list {
		if e := &s.list[i]; e.key == key && e.times > 0 {
			return e
		}
	}
	return nil
}

// begin records that a request was sent to the endpoint.
func (s *avoidances) begin(t *Traits, now time.Time) {
	if s.open.Load() == 0 {
		return
	}
	for _, key := range t {
		if e := s.find(key); e != nil && !now.Before(e.until) {
			e.trial = now
		}
	}
}

// explains reports whether the endpoint is known to fail requests with some value of these traits. Their
// failures are no evidence against it.
func (s *avoidances) explains(t *Traits) bool {
	if s.open.Load() == 0 {
		return false
	}
	for _, key := range t {
		if key != 0 && s.find(key) != nil {
			return true
		}
	}
	return false
}

func (s *avoidances) has(key uint64, now time.Time) bool {
	e := s.find(key)
	return e != nil && (now.Before(e.until) || now.Sub(e.trial) < avoidTrial)
}

// Avoids reports whether requests with a value of a trait should avoid this endpoint, because they
// fail here while others succeed. After twenty seconds one trial request is allowed. Each failed trial
// doubles the wait, up to 160 s.
func (t *Tracker) Avoids(key uint64, now time.Time) bool {
	if t.avoided.open.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.avoided.has(key, now)
}

// AvoidsFor returns how long from now such requests avoid this endpoint, or 0 if they do not. A
// failed trial request extends the time.
func (t *Tracker) AvoidsFor(key uint64, now time.Time) time.Duration {
	if t.avoided.open.Load() == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.avoided.find(key); e != nil {
		return max(e.until.Sub(now), 0)
	}
	return 0
}

// ModelAvoidance reports to other replicas that a model, or a value of another trait, is avoided at
// an endpoint.
type ModelAvoidance struct {
	Model uint64        // hash of the value
	For   time.Duration // remaining time; 0: the next request is a trial
	Times int           // times the value was avoided
}

// Found appends the avoided values that this replica itself found, and returns a version number
// that changes whenever they change.
func (t *Tracker) Found(list []ModelAvoidance, now time.Time) ([]ModelAvoidance, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.avoided.list {
		if e := &t.avoided.list[i]; e.times > 0 && e.from == "" {
			list = append(list, ModelAvoidance{e.key, max(e.until.Sub(now), 0), min(e.times, mostTimes)})
		}
	}
	return list, t.avoided.news
}

// ReceiveAvoidances replaces the findings of another replica for the endpoint. Its values are
// avoided here too until that replica removes them or a trial request succeeds here.
func (t *Tracker) ReceiveAvoidances(origin string, list []ModelAvoidance, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.avoided.list {
		e := &t.avoided.list[i]
		if e.times > 0 && e.from == origin && !slices.ContainsFunc(list, func(o ModelAvoidance) bool { return o.Model == e.key }) {
			t.avoided.end(e)
		}
	}
	for _, o := range list[:min(len(list), maxAvoidances)] {
		t.avoided.adopt(origin, o, now)
	}
}

// adopt merges another replica's finding. Newer findings of this replica take precedence.
func (s *avoidances) adopt(origin string, o ModelAvoidance, now time.Time) {
	if o.Model == 0 || o.Times <= 0 {
		return
	}
	times, until := min(o.Times, mostTimes), now.Add(min(o.For, avoidFor<<avoidMost))
	e := s.find(o.Model)
	switch {
	case e == nil && o.For <= 0: // expired; this replica may have had an answer since
		return
	case e == nil:
		i := slices.IndexFunc(s.list[:], func(e avoidance) bool { return e.key == o.Model })
		if i < 0 {
			i = slices.IndexFunc(s.list[:], func(e avoidance) bool { return e.times == 0 })
		}
		if i < 0 {
			return
		}
		if e = &s.list[i]; e.key == 0 {
			s.used++
		}
		s.opened()
	case o.For > 0 && times > e.times: // a trial failed at the other replica
	case e.from != origin, e.times == times && until.Sub(e.until) < time.Second: // no new information; a trial request may be in flight
		return
	}
	*e = avoidance{trait: NumTraits, key: o.Model, score: maxScore, at: now, others: avoidOthers, times: times, until: until, from: origin}
}

// ClearModels removes all records of failing models, clients and classes, for example when the whole endpoint is out or its engine
// has restarted.
func (t *Tracker) ClearModels() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.avoided.list[:])
	t.avoided.used, t.avoided.peers = 0, nil
	t.avoided.open.Store(0)
	t.avoided.news++
}

// AvoidedCount returns the number of avoided models, clients and classes.
func (t *Tracker) AvoidedCount() int { return int(t.avoided.open.Load()) }
