package health

import (
	"math"
	"time"
)

// Options tune a Set. Zero values take the defaults named.
type Options struct {
	// Threshold is the share of a group beyond which soft evidence is ignored: 0.5.
	Threshold float64
	// SlowStart is how long a returning endpoint takes to its full share: 3 s. From
	// the third on, each return that did not last doubles it, up to 16 times.
	SlowStart time.Duration
	// Probes is how many probes in a row must pass before an endpoint returns: 3.
	// Each return that did not last doubles it, up to 16 times.
	Probes int
	// Idle is after how long without a sign of work a healthy endpoint is probed too; 0:
	// never.
	Idle time.Duration
}

func (o *Options) complete() {
	if o.Threshold <= 0 {
		o.Threshold = .5
	}
	if o.SlowStart <= 0 {
		o.SlowStart = 3 * time.Second
	}
	if o.Probes <= 0 {
		o.Probes = 3
	}
}

// Limits of the score, a cumulative sum of log-likelihood ratios: two failures
// in a row among good endpoints make a suspect, four put an endpoint out.
const (
	sickShare  = .3 // of requests that a sick endpoint fails, at least
	suspectAt  = 4.
	outAt      = 12.
	maxScore   = 16.
	clearBelow = 1.
	scoreHalf  = 4 * time.Second // half-life of the score without news
	probePass  = 2.              // that a probe that passes takes off the score, unless some of the requests fail: then it is one more that did not
)

// Limits of conditions.
const (
	refusedAfter  = time.Second             // without a sign of life, as seen by any replica
	refusedFor    = 300 * time.Millisecond  // in which other replicas can say that they hear of it
	silentAfter   = 2500 * time.Millisecond // suspect
	silentOut     = 4 * time.Second
	stallAfter    = time.Second // without anything that moves: suspect
	stallOut      = 1500 * time.Millisecond
	acquittedFor  = 2 * time.Second        // for which outcomes that only differ do not count after a probe that passed
	unprobedDoubt = time.Second            // after which they decide without a probe
	doubtAfter    = 500 * time.Millisecond // the same: it is probed, before it is a suspect
	mostAlarms    = 3                      // false ones, each of which doubles these three
	alarmsFor     = time.Minute            // without a request past its time, after which they are forgotten
	deafAfter     = 1500 * time.Millisecond
	deafFor       = 30 * time.Second // for which a page must answer, to be a witness again
	silentProbes  = 3                // in a row, of a suspect: out
	restless      = time.Second      // a state lasts at least so long
	blindReturn   = 10 * time.Second // out of one whose probes nobody can judge
	heardReturn   = 3 * time.Second  // the same of one that was out for not being there, and is
	steady        = 2 * time.Minute  // of trust, after which a return has lasted, and one that had not is forgotten
	maxFlaps      = 6
	doublings     = 4   // at most, of what a return takes
	eagerFlaps    = 2   // that do not slow down the growth of the share
	luck          = .01 // of an endpoint that fails as before, to pass its probes
	mostProbes    = 9   // more than usual that this asks for
)

// machine is the state of one endpoint.
type machine struct {
	state   State
	reached bool // there was a sign of life
	cause   Cause
	since   time.Time
	score   float64
	at      time.Time // of score
	tally   Evidence  // counts since the trouble began, conditions as of now

	failed  float64   // share of requests that failed before it was put out; 0: none was counted
	flaps   int       // returns that did not last
	back    time.Time // when it last returned; zero: it was never out
	trusted time.Time // since when it is fully trusted, or one of flaps was last forgotten
	reborn  bool      // out since a former life of its engine
	passed  int       // probes in a row
	probed  time.Time // when a probe last had a result
	unheard int       // probes of a suspect without an answer, since anything moved

	refusedAt time.Time // when connections began to be refused; zero: they are not
	acquitted time.Time // when a probe last passed while requests ended in ways that only differ
	doubtedAt time.Time // since when requests speak against it, which is healthy yet; zero: none do

	alarms int       // times of late that it was suspected to hang, and moved on
	calm   time.Time // since when no request is past its time; zero: one is

	// deaf says that the page is no witness: requests moved while it was silent.
	deaf bool
	page time.Time // since when the page has answered again; zero: it does not
}

// away reports whether the endpoint is left out, unless its group pardons it.
func (m *machine) away() bool { return m.state == Out || m.state == Probing }

// verdict is what conditions and score say.
type verdict struct {
	state State // Healthy, Suspect or Out
	cause Cause
}

// step moves the machine on by evidence that is new since the last step. It
// reports whether the state changed.
func (m *machine) step(now time.Time, e *Evidence, base *baseline, o *Options) bool {
	m.weigh(now, e, base)
	m.listen(now, e)
	switch {
	case !e.Refused:
		m.refusedAt = time.Time{}
	case m.refusedAt.IsZero():
		m.refusedAt = now
	}
	if m.flaps > 0 && m.state == Healthy && now.Sub(m.trusted) >= steady {
		m.flaps, m.trusted = m.flaps-1, now
	}
	v := m.judge(now, e)
	was, flaps := m.state, m.flaps
	switch m.state {
	case Healthy, Suspect:
		m.stepTrusted(now, v)
	case Out, Probing:
		if base.overruled {
			m.countRequests(e)
		}
		m.stepOut(now, e, v, o)
	case Returning:
		m.stepReturning(now, v, o)
	}
	if base.overruled { // trouble that it shares with the others is not its own
		m.flaps = min(m.flaps, flaps)
	}
	if m.state != was {
		m.since = now
	}
	m.doubt(now, e)
	return m.state != was
}

// doubt notes since when requests speak against it, which is healthy yet: some that have
// ended, or one that is past its time while nothing moves.
func (m *machine) doubt(now time.Time, e *Evidence) {
	ended := m.score >= clearBelow && m.cause.Counted()
	waits := e.Overdue > 0 && e.Moved >= doubtAfter<<m.alarms
	switch {
	case m.state != Healthy || !ended && !waits:
		m.doubtedAt = time.Time{}
	case m.doubtedAt.IsZero():
		m.doubtedAt = now
	}
}

// listen decides whether the page's silence means anything, and forgets false alarms. A page
// that is read now and then, such as one that takes longer than a reading may, is no witness
// in between.
func (m *machine) listen(now time.Time, e *Evidence) {
	switch {
	case e.Answered >= deafAfter:
		m.page = time.Time{}
		m.deaf = m.deaf || e.Moved < e.Answered-deafAfter
	case m.page.IsZero():
		m.page = now
	case now.Sub(m.page) >= deafFor:
		m.deaf = false
	}
	switch {
	case e.Overdue > 0:
		m.calm = time.Time{}
	case m.calm.IsZero():
		m.calm = now
	case now.Sub(m.calm) >= alarmsFor:
		m.alarms = 0
	}
}

// weigh moves the score: it fades with time, and each judged request or probe
// adds how much likelier it is from a sick endpoint than from one like the rest.
func (m *machine) weigh(now time.Time, e *Evidence, base *baseline) {
	if !m.at.IsZero() && now.After(m.at) {
		m.score *= math.Exp2(-float64(now.Sub(m.at)) / float64(scoreHalf))
	}
	m.at = now
	if m.state == Healthy && m.score < clearBelow {
		m.tally = Evidence{}
	}
	counts := m.tally.with(*e)
	m.tally = *e
	m.tally.Good, m.tally.Bad = counts.Good, counts.Bad
	m.tally.Passed, m.tally.Missed, m.tally.Denied = counts.Passed, counts.Missed, counts.Denied

	add, worst := 0., 0.
	for _, k := range counted {
		if n := float64(e.Bad[k.cause]); n > 0 && !(k.cause.relative() && now.Sub(m.acquitted) < acquittedFor) {
			gain := n * base.against(k.cause, k.usual)
			if k.cause == Cut { // it had begun to answer, which was taken for a good sign
				gain -= n * base.inFavour()
			}
			add += gain
			if gain > worst {
				worst = gain
				m.blame(k.cause)
			}
		}
	}
	if e.Passed > 0 && m.cause.relative() && !m.away() {
		m.score, add, m.acquitted = 0, 0, now
		m.tally.Bad[m.cause] = 0
	}
	against := e.Denied
	if m.state == Returning { // a suspect may be slow to answer for being busy
		against += e.Missed
	}
	if against > 0 && (m.state == Returning || m.state == Suspect || m.state == Healthy) {
		add += float64(against) * math.Log(sickShare/.01)
		if m.state == Returning && !m.probesTell() || m.cause == None {
			m.blame(Probe)
		}
	}
	pass := -probePass
	if m.failsSome() {
		pass = base.inFavour()
	}
	add += float64(e.Good)*base.inFavour() + float64(e.Passed)*pass
	m.score = min(max(m.score+add, 0), maxScore)
	if m.awaitsProbe(now) {
		m.score = min(m.score, suspectAt-.1)
	}
	m.countProbes(now, e)
}

// awaitsProbe reports whether requests end in ways that only differ from those of the peers,
// and no probe has said yet whether the endpoint or its clients are at fault. Where probes
// have no result, as with engines that want a key, requests alone decide after a while.
func (m *machine) awaitsProbe(now time.Time) bool {
	since := m.doubtedAt
	switch m.state {
	case Healthy:
	case Returning:
		since = m.since
	default:
		return false
	}
	return m.cause.relative() && m.tally.Denied == 0 && (since.IsZero() || now.Sub(since) < unprobedDoubt)
}

// failsSome reports whether the endpoint is still used and seems to fail some of its
// requests: a probe that passes says no more then than a request that was served.
func (m *machine) failsSome() bool {
	return (m.state == Suspect || m.state == Healthy) && (m.probesTell() || m.cause == Late || m.cause == Halted)
}

// probesTell reports whether probes fail of the cause as requests do.
func (m *machine) probesTell() bool { return m.cause == Failed || m.cause == Broken || m.cause == Cut }

// blame names the cause of a score unless a stronger one stands.
func (m *machine) blame(c Cause) {
	if m.state == Healthy || m.state == Suspect || m.state == Returning {
		m.cause = c
	}
}

func (m *machine) countProbes(now time.Time, e *Evidence) {
	if e.Passed+e.Missed+e.Denied > 0 {
		m.probed = now
	}
	switch {
	case m.state != Suspect || e.Moved < stallAfter:
		m.unheard = 0
	case e.Missed > 0:
		m.unheard++
	}
	if e.Missed+e.Denied > 0 {
		m.passed = 0
		return
	}
	m.passed += int(min(e.Passed, 1<<20))
}

// countRequests lets requests stand in for probes where an endpoint that is out
// is used nevertheless: one for each step without a bad one.
func (m *machine) countRequests(e *Evidence) {
	if bad := e.requests() - float64(e.Good); bad > 0 {
		m.passed = 0
	} else if e.Good > 0 {
		m.passed++
	}
}

// judge says what the evidence of this moment amounts to. The score speaks
// last: what can be seen directly needs no statistics.
func (m *machine) judge(now time.Time, e *Evidence) verdict {
	life := min(e.Answered, e.Moved)
	heard := !m.deaf
	suspect, out := stallAfter<<m.alarms, stallOut<<m.alarms
	switch {
	case e.Refused && life >= refusedAfter && now.Sub(m.refusedAt) >= refusedFor && (heard || m.score >= suspectAt):
		return verdict{Out, Refused}
	case e.Overdue > 0 && e.Moved >= stallAfter && e.Answered >= stallOut && heard:
		return verdict{Out, Stalled} // two witnesses: requests and page
	case e.Overdue > 0 && e.Moved >= out && (e.Overdue > 1 || e.Twice):
		return verdict{Out, Stalled}
	case m.unheard >= silentProbes && e.Moved >= out && e.InFlight == 0: // those that made it a suspect have left, so that no work explains it
		return verdict{Out, Stalled}
	case m.score >= outAt:
		return verdict{Out, m.scored()}
	case e.Overdue > 0 && e.Moved >= suspect:
		return verdict{Suspect, Stalled}
	case life >= silentOut && life < Never && heard:
		return verdict{Out, Silent}
	case life >= silentAfter && life < Never && heard:
		return verdict{Suspect, Silent}
	case m.score >= suspectAt:
		return verdict{Suspect, m.scored()}
	case e.Slow:
		return verdict{Suspect, Slow}
	}
	return verdict{}
}

// scored returns the cause behind the score.
func (m *machine) scored() Cause {
	if m.cause == None {
		return Probe
	}
	return m.cause
}

func (m *machine) stepTrusted(now time.Time, v verdict) {
	switch {
	case v.state == Out:
		m.relapse(now, v.cause)
		m.putOut(now, v.cause)
	case v.state == Suspect:
		m.state, m.cause = Suspect, v.cause
	case m.state == Suspect && m.score < clearBelow && m.unheard == 0 && now.Sub(m.since) >= restless:
		if m.cause == Stalled { // a request was slow, or the prediction wrong
			m.alarms = min(m.alarms+1, mostAlarms)
		}
		m.state, m.cause, m.trusted = Healthy, None, now
	}
	if m.state == Healthy && m.score < clearBelow {
		m.cause = None
	}
}

// relapse notes that a return did not last: requests were lost again before it had
// been steady. An engine that is stopped and loses none may be one that is rolled.
func (m *machine) relapse(now time.Time, c Cause) {
	if m.lost(c) && !m.back.IsZero() && now.Sub(m.back) < steady {
		m.flap()
	}
}

// lost reports whether trouble of a cause has cost requests.
func (m *machine) lost(c Cause) bool {
	return m.tally.requests() > float64(m.tally.Good) || c != None && c != Refused && c != Silent
}

// Past is what is remembered of an endpoint that has left.
type Past struct {
	flaps int
	cause Cause
	lost  bool // requests, in the trouble in which it left
}

// Empty reports whether there is nothing to remember.
func (p Past) Empty() bool { return p.flaps == 0 && !p.lost }

func (m *machine) leave(now time.Time) Past {
	if !m.away() {
		m.relapse(now, m.cause)
	}
	return Past{m.flaps, m.cause, m.lost(m.cause)}
}

func (m *machine) resume(now time.Time, p Past) {
	m.flaps, m.trusted = p.flaps, now
	if p.lost {
		m.putOut(now, p.cause)
		m.reborn, m.since = true, now
	}
}

func (m *machine) flap() { m.flaps = min(m.flaps+1, maxFlaps) }

func (m *machine) putOut(now time.Time, c Cause) {
	m.state, m.cause, m.passed, m.probed, m.failed, m.reborn = Out, c, 0, now, 0, false
	if c.Counted() {
		n, good := m.tally.requests(), float64(m.tally.Good)
		if m.probesTell() {
			n, good = n+float64(m.tally.Passed+m.tally.Denied), good+float64(m.tally.Passed)
		}
		m.failed = (n - good) / (n + 2) // few say little
	}
}

// stepOut waits for probes. Requests that were placed before say nothing of an
// endpoint that has come back, so that only refused connections and silence hold
// against probes that pass.
func (m *machine) stepOut(now time.Time, e *Evidence, v verdict, o *Options) {
	if v.state == Out && v.cause != m.cause && v.cause.Certain() {
		m.cause = v.cause
	}
	refused := e.Refused && !m.deaf && min(e.Answered, e.Moved) >= refusedAfter
	switch {
	case refused:
		m.passed = 0
		m.state = Out
	case m.passed >= m.need(o), m.unprobed(now, e):
		m.state, m.score, m.back = Returning, 0, now
	case m.passed > 0:
		m.state = Probing
	default:
		m.state = Out
	}
}

// unprobed reports whether probes have had no result for so long that requests
// must find out: engines that want a key answer none.
func (m *machine) unprobed(now time.Time, e *Evidence) bool {
	after := blindReturn
	if m.cause == Refused || m.cause == Silent {
		after = heardReturn
	}
	return now.Sub(m.probed) >= after<<min(m.flaps, doublings) && now.Sub(m.since) >= after && min(e.Answered, e.Moved) < silentAfter
}

// need returns how many probes in a row must pass: the fewer of its requests an
// endpoint failed, the more, so that luck does not bring it back.
func (m *machine) need(o *Options) int {
	need := o.Probes << min(m.flaps, doublings)
	if m.failed > 0 && m.failed < 1 {
		unlikely := int(math.Ceil(math.Log(luck) / math.Log(1-m.failed)))
		need = max(need, min(unlikely, o.Probes+mostProbes))
	}
	return need
}

// start returns how long its share takes to grow back.
func (m *machine) start(o *Options) time.Duration {
	return o.SlowStart << max(m.flaps-eagerFlaps, 0)
}

func (m *machine) stepReturning(now time.Time, v verdict, o *Options) {
	switch {
	case v.state == Out, m.score >= suspectAt:
		m.flap()
		cause := v.cause
		if cause == None || m.score >= suspectAt && !cause.Certain() {
			cause = m.scored()
		}
		m.putOut(now, cause)
	case now.Sub(m.since) >= m.start(o):
		m.state, m.cause, m.trusted = Healthy, None, now
	}
}

// share returns in how many of 1,000 decisions the endpoint may be a candidate,
// in a group of n.
func (m *machine) share(now time.Time, n int, o *Options) uint32 {
	trickle := uint32(max(Full/(16*max(n, 1)), 1))
	switch m.state {
	case Suspect:
		return trickle
	case Out, Probing:
		return 0
	case Returning:
		grown := float64(now.Sub(m.since)) / float64(m.start(o))
		return min(max(uint32(Full*grown), trickle), Full)
	default:
		return Full
	}
}

// view returns the state as people see it.
func (m *machine) view(o *Options) View {
	v := View{
		State: m.state, Reached: m.reached, Since: m.since, Score: m.score, Need: m.need(o), Passed: m.passed, Seen: m.tally,
		Flaps: m.flaps, Start: m.start(o), Restarted: m.reborn && m.away(),
	}
	if m.state != Healthy {
		v.Cause = m.cause
	}
	return v
}
