package health

import (
	"cmp"
	"math"
	"slices"
	"time"
	"unsafe"
)

// Set holds the health of a pool's endpoints, by small dense ids. It must be used by one goroutine.
type Set struct {
	opts    Options
	members []*member // by id; nil: unused
	groups  map[string]*group
	last    time.Time
	rest    time.Duration // announced time until the next step
	late    time.Duration // decayed delay of recent steps
	paused  time.Time     // until when ages are ignored after this process was paused
}

type member struct {
	id      int
	group   *group
	at      int // index in group.members
	m       machine
	counts  decayed
	recent  decayed // recent requests only
	reports []replicaReport
	fresh   Evidence // counts since the last step
	view    View
	asked   time.Time // time of this replica's last probe
	others  time.Time // when another replica last reported a probe
}

// heard is the latest evidence of one replica on one endpoint.
type replicaReport struct {
	origin string
	at     time.Time
	e      Evidence
}

// Parameters of Step.
const (
	reportFor = 3 * time.Second        // how long a replica's report of a condition counts
	pauseAt   = 600 * time.Millisecond // gap between steps from which the process counts as paused
	stepFree  = 200 * time.Millisecond // normal gap between steps
	lateHalf  = time.Second            // half-life of the steps' delay
)

// NewSet returns a Set without endpoints.
func NewSet(o Options) *Set {
	o.complete()
	return &Set{opts: o, groups: map[string]*group{}}
}

// Join adds an endpoint or moves it to another group. name identifies endpoints that can replace
// each other: same models, same role.
func (s *Set) Join(id int, name string, now time.Time) {
	for id >= len(s.members) {
		s.members = append(s.members, nil)
	}
	k := s.members[id]
	if k != nil && k.group.name == name {
		return
	}
	if k == nil {
		k = &member{id: id}
		k.m.since = now
		s.members[id] = k
	} else {
		s.ungroup(k)
	}
	g := s.groups[name]
	if g == nil {
		g = &group{name: name}
		s.groups[name] = g
	}
	k.group, k.at = g, len(g.members)
	g.members = append(g.members, k)
}

// ungroup removes a member in constant time: thousands may leave a group together.
func (s *Set) ungroup(k *member) {
	g := k.group
	last := g.members[len(g.members)-1]
	g.members[k.at], last.at = last, k.at
	g.members[len(g.members)-1] = nil
	g.members = g.members[:len(g.members)-1]
	if len(g.members) == 0 {
		delete(s.groups, g.name)
	}
}

// Leave removes an endpoint. Pass the result to Resume if the endpoint joins again.
func (s *Set) Leave(id int, now time.Time) Past {
	k := s.member(id)
	if k == nil {
		return Past{}
	}
	s.ungroup(k)
	s.members[id] = nil
	return k.m.leave(now)
}

// Resume restores the history of an endpoint that has joined again. If it had lost requests, it
// must pass probes under the same requirements as before it left.
func (s *Set) Resume(id int, p Past, now time.Time) {
	if k := s.member(id); k != nil {
		k.m.resume(now, p)
		s.show(k, now)
	}
}

// Renew records that an endpoint's engine has restarted. An endpoint that was out must pass probes,
// and earlier evidence no longer counts. Evidence against an endpoint in use still counts, because
// an engine that keeps restarting fails a few requests in each incarnation. The in-flight tracker
// removes requests that hang in an earlier incarnation.
func (s *Set) Renew(id int, now time.Time) {
	k := s.member(id)
	if k == nil || !k.m.away() {
		return
	}
	was := k.m
	*k = member{id: id, group: k.group, at: k.at, asked: k.asked, others: k.others}
	k.m.flaps, k.m.back, k.m.since, k.m.reached = was.flaps, was.back, now, was.reached
	k.m.putOut(now, was.cause)
	k.m.reborn = true
	s.show(k, now)
}

func (s *Set) member(id int) *member {
	if id < 0 || id >= len(s.members) {
		return nil
	}
	return s.members[id]
}

// Receive stores a replica's evidence on an endpoint; origin "" is this replica. The first report
// of another replica sets the starting point of its counts.
func (s *Set) Receive(origin string, id int, e Evidence, now time.Time) {
	k := s.member(id)
	if k == nil {
		return
	}
	for i := range k.reports {
		h := &k.reports[i]
		if h.origin == origin {
			news := e.since(&h.e)
			k.fresh = k.fresh.with(news)
			if origin != "" && news.Passed+news.Missed+news.Denied > 0 {
				k.others = now
			}
			h.at, h.e = now, e
			return
		}
	}
	if origin == "" {
		k.fresh = k.fresh.with(e)
	}
	k.reports = append(k.reports, replicaReport{origin, now, e})
}

// Drop removes a replica's evidence, for example after it has left.
func (s *Set) Drop(origin string) {
	for _, k := range s.members {
		if k != nil {
			k.reports = slices.DeleteFunc(k.reports, func(h replicaReport) bool { return h.origin == origin })
		}
	}
}

// Step advances all endpoints and returns the changes by id. Call it several times a second.
func (s *Set) Step(now time.Time) []Change {
	if s.late = s.lateBy(now); s.late > pauseAt-stepFree {
		s.paused = now.Add(time.Second)
	}
	s.last, s.rest = now, 0
	var changes []Change
	for _, g := range s.sorted() {
		changes = s.stepGroup(g, now, changes)
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.ID, b.ID) })
	return changes
}

// Stalled reports whether this replica was paused within the last second, or runs its steps late.
// Evidence missing from that time does not count.
func (s *Set) Stalled(now time.Time) bool {
	return now.Before(s.paused) || s.lateBy(now) > pauseAt-stepFree
}

// Rest announces that the next Step follows after d, so that a pause of that length does not count
// as delay. It applies until the next Step.
func (s *Set) Rest(d time.Duration) { s.rest = d }

// lateBy returns the decayed delay of recent steps and of a step at now.
func (s *Set) lateBy(now time.Time) time.Duration {
	if s.last.IsZero() {
		return 0
	}
	gap := max(now.Sub(s.last)-s.rest, 0)
	faded := time.Duration(float64(s.late) * math.Exp2(-float64(gap)/float64(lateHalf)))
	return min(faded+max(gap-stepFree, 0), pauseAt)
}

// sorted returns the groups in a deterministic order.
func (s *Set) sorted() []*group {
	list := make([]*group, 0, len(s.groups))
	for _, g := range s.groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int { return cmp.Compare(a.name, b.name) })
	return list
}

func (s *Set) stepGroup(g *group, now time.Time, changes []Change) []Change {
	var all baseline
	seen := make([]Evidence, len(g.members))
	for i, k := range g.members {
		seen[i] = s.seen(k, now)
		k.counts.add(now, &seen[i], baselineHalf)
		last := seen[i]
		if c := k.m.cause; k.m.away() && (c == Failed || c == Broken || c.relative()) { // for these causes a probe meets the same fault as a request
			last.Good, last.Bad[k.m.cause] = last.Good+last.Passed, last.Bad[k.m.cause]+last.Denied
		}
		k.recent.addRecent(now, &last)
		if k.m.away() { // its results are no baseline for the others
			k.counts = decayed{}
		}
		all.add(&k.counts)
	}
	moved := make([]bool, len(g.members))
	from := make([]State, len(g.members))
	for i, k := range g.members {
		base := all.without(&k.counts)
		base.overruled = g.pardons(k)
		from[i] = k.m.state
		moved[i] = k.m.step(now, &seen[i], &base, &s.opts)
		if moved[i] && k.m.state == Returning { // probes have passed since
			k.recent = decayed{}
		}
	}
	g.compare(now, s.opts.Threshold)
	for i, k := range g.members {
		s.show(k, now)
		if moved[i] {
			changes = append(changes, Change{k.id, from[i], k.view})
		}
	}
	return changes
}

// seen returns the combined evidence of all replicas on an endpoint, with the counts since the last
// step.
func (s *Set) seen(k *member, now time.Time) Evidence {
	sum := unknown()
	for i := range k.reports {
		h := &k.reports[i]
		e := h.e.uncounted().later(now.Sub(h.at))
		if now.Sub(h.at) > reportFor { // conditions are stale; signs of life only age
			e.Refused, e.InFlight, e.Overdue, e.Starved, e.Twice, e.Slow = false, 0, 0, false, false, false
		}
		sum = sum.with(e)
	}
	k.m.reached = k.m.reached || min(sum.Answered, sum.Moved) < Never
	if now.Before(s.paused) { // this process was paused and could not observe
		sum.Answered, sum.Moved = 0, 0
		k.fresh.Bad[Late] = 0
	}
	counts := k.fresh
	k.fresh = Evidence{}
	return sum.with(Evidence{
		Good: counts.Good, Bad: counts.Bad, Passed: counts.Passed, Missed: counts.Missed, Denied: counts.Denied, Answered: Never, Moved: Never,
	})
}

func (s *Set) show(k *member, now time.Time) {
	v := k.m.view(&s.opts)
	v.Share = k.m.share(now, len(k.group.members), &s.opts)
	if v.Share < Full && k.group.pardons(k) {
		v.Share, v.Overruled = Full, true
	}
	k.view = v
}

// View returns the state of an endpoint as of the last Step.
func (s *Set) View(id int) View {
	if k := s.member(id); k != nil {
		return k.view
	}
	return View{Share: Full}
}

// State returns the state of an endpoint as of the last Step.
func (s *Set) State(id int) State {
	if k := s.member(id); k != nil {
		return k.view.State
	}
	return Healthy
}

// Parameters of probes.
const (
	probeEvery = 500 * time.Millisecond
	probeAgain = 250 * time.Millisecond // while probes pass, and for suspected endpoints
	probeTurn  = time.Second            // delay before the next replica in line probes too
)

// Suspected reports whether there is evidence against an endpoint that is still healthy.
func (s *Set) Suspected(id int) bool {
	k := s.member(id)
	return k != nil && !k.m.failingSince.IsZero()
}

// Probe reports whether this replica should probe an endpoint now. If so, the caller must do it.
//
// Every endpoint that is not healthy is probed twice a second, over all replicas. The rate is four
// per second while probes pass, while an endpoint fails only some requests, and for a healthy
// endpoint with evidence against it. A single failure may be chance, and an endpoint with few
// requests would take long to confirm it.
//
// Turn 0 is the replica elected for the endpoint. Each further replica probes once no other
// replica's result has arrived for one more second.
func (s *Set) Probe(id, turn int, now time.Time) bool {
	k := s.member(id)
	if k == nil || k.m.state == Healthy && k.m.failingSince.IsZero() {
		return false
	}
	every, begun := probeEvery, k.m.since
	switch {
	case k.m.state == Healthy:
		every, begun = probeAgain, k.m.failingSince
	case k.m.state == Probing, k.m.failsSome():
		every = probeAgain
	}
	if now.Sub(k.asked) < every {
		return false
	}
	quiet := now.Sub(begun)
	if !k.others.IsZero() {
		quiet = min(quiet, now.Sub(k.others))
	}
	if turn > 0 && quiet < time.Duration(turn)*probeTurn {
		return false
	}
	k.asked = now
	return true
}

// idleTurn is the additional wait of each further replica in line before it probes an idle, healthy
// endpoint.
const idleTurn = 5 * time.Second

// Check reports whether this replica should probe a healthy endpoint that has been idle for quiet.
// If so, the caller must do it. Without requests, a hang would go unnoticed. If this probe fails,
// the next follows at a suspect's rate.
func (s *Set) Check(id, turn int, quiet time.Duration, now time.Time) bool {
	k := s.member(id)
	if k == nil || k.m.state != Healthy || s.opts.Idle <= 0 || quiet < s.opts.Idle {
		return false
	}
	wait := s.opts.Idle + time.Duration(turn)*idleTurn
	if k.m.cause == Probe && k.m.score >= clearBelow {
		wait = probeEvery + time.Duration(turn)*probeTurn
	}
	for _, t := range [...]time.Time{k.asked, k.others, k.m.since} {
		if now.Sub(t) < wait {
			return false
		}
	}
	k.asked = now
	return true
}

// Snapshot is the health of a pool at one moment, by id. It is immutable. Decisions keep their
// snapshots, so healthy endpoints are stored compactly.
type Snapshot struct {
	At            time.Time
	GroupProblems []GroupProblem // by group
	known         []known        // by id
	views         []View         // of endpoints that are not healthy
}

// Bytes returns the memory of a snapshot, 0 for nil.
func (s *Snapshot) Bytes() int {
	if s == nil {
		return 0
	}
	return cap(s.known)*int(unsafe.Sizeof(known{})) + cap(s.views)*int(unsafe.Sizeof(View{}))
}

// known is one endpoint of a Snapshot.
type known struct {
	id    int
	view  int       // index in views; -1: healthy
	since time.Time // of a healthy endpoint
}

// GroupProblems returns the groups that are unhealthy as a whole, by name.
func (s *Set) GroupProblems() (list []GroupProblem) {
	for _, g := range s.sorted() {
		if t := g.problem(s.opts.Threshold); t != (GroupProblem{}) {
			list = append(list, t)
		}
	}
	return list
}

// Snapshot returns the state of all endpoints as of the last Step.
func (s *Set) Snapshot() *Snapshot {
	snap := &Snapshot{At: s.last, GroupProblems: s.GroupProblems()}
	for _, g := range s.groups {
		for _, k := range g.members {
			if k.view.State == Healthy && k.view.Reached {
				snap.known = append(snap.known, known{k.id, -1, k.view.Since})
				continue
			}
			snap.known = append(snap.known, known{id: k.id, view: len(snap.views)})
			snap.views = append(snap.views, k.view)
		}
	}
	slices.SortFunc(snap.known, func(a, b known) int { return cmp.Compare(a.id, b.id) })
	return snap
}

// View returns the health of an endpoint. For a healthy endpoint only Since is set. Unknown
// endpoints, and all endpoints of a nil Snapshot, are healthy.
func (s *Snapshot) View(id int) View {
	if s == nil {
		return View{Share: Full}
	}
	i, ok := slices.BinarySearchFunc(s.known, id, func(k known, id int) int { return cmp.Compare(k.id, id) })
	switch {
	case !ok:
		return View{Share: Full}
	case s.known[i].view < 0:
		return View{Share: Full, Reached: true, Since: s.known[i].since}
	}
	return s.views[s.known[i].view]
}
