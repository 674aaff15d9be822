package health

import (
	"math"
	"time"
)

// Options configures a Set. Zero fields take the defaults given below.
type Options struct {
	// Threshold is the share of a group above which soft evidence is ignored. Default 0.5.
	Threshold float64
	// SlowStart is the time in which a returning endpoint regains its full share. Default 3 s. From
	// the third failed return on, each one doubles it, up to 16 times.
	SlowStart time.Duration
	// Probes is the number of consecutive probes that must pass before an endpoint returns. Default
	// 3. Each failed return doubles it, up to 16 times.
	Probes int
	// Idle is how long a healthy endpoint may be inactive before it is probed as well. 0 disables
	// these probes.
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

// Limits of the score, a cumulative sum of log-likelihood ratios. Two consecutive failures among
// good endpoints make an endpoint suspect; four put it out.
const (
	unhealthyShare = .3 // minimum failure share of an unhealthy endpoint
	suspectAt      = 4.
	outAt          = 12.
	maxScore       = 16.
	clearBelow     = 1.
	scoreHalf      = 4 * time.Second // half-life of the score without news
	probePass      = 2.              // subtracted from the score per passed probe; if only some requests fail, a probe counts as one good request instead
)

// Limits of observed conditions.
const (
	refusedAfter    = time.Second             // without a sign of life at any replica
	refusedFor      = 300 * time.Millisecond  // for other replicas to report a sign of life
	silentAfter     = 2500 * time.Millisecond // suspect
	silentOut       = 4 * time.Second
	stallAfter      = time.Second // without progress: suspect
	stallOut        = 1500 * time.Millisecond
	acquittedFor    = 2 * time.Second        // after a passed probe, relative causes do not count
	unprobedSuspect = time.Second            // after this time relative causes decide without a probe
	probeAfter      = 500 * time.Millisecond // like stallAfter, but only triggers a probe
	mostAlarms      = 3                      // maximum false alarms; each doubles stallAfter, stallOut and probeAfter
	alarmsFor       = time.Minute            // without an overdue request, after which false alarms are reset
	deafAfter       = 1500 * time.Millisecond
	deafFor         = 30 * time.Second // how long a page must answer before its silence counts again
	silentProbes    = 3                // consecutive failures that put a suspect out
	restless        = time.Second      // minimum duration of a state
	blindReturn     = 10 * time.Second // when an endpoint whose probes have no result returns
	reachedReturn   = 3 * time.Second  // the same after Refused or Silent, once there is a sign of life
	stableAfter     = 2 * time.Minute  // healthy time after which one failed return is removed
	maxFlaps        = 6
	doublings       = 4   // maximum doublings of the successes required for a return
	eagerFlaps      = 2   // failed returns that do not slow down the growth of the share
	luck            = .01 // probability that an endpoint that fails as before passes its probes
	mostProbes      = 9   // maximum additional probes for this
)

// machine is the state machine of one endpoint.
type machine struct {
	state    State
	reached  bool // there was a sign of life
	cause    Cause
	since    time.Time
	score    float64
	at       time.Time // time of score
	evidence Evidence  // counts since the problem began, current conditions

	failed     float64   // failure share before it was put out; 0: no requests counted
	flaps      int       // failed returns
	back       time.Time // time of the last return; zero: never out
	trusted    time.Time // when it became fully healthy, or when a failed return was last removed
	blind      bool      // it returned because its probes had no result
	barren     uint64    // requests that failed for relative causes since the last good one
	reborn     bool      // out since an earlier incarnation of its engine
	passed     int       // consecutive passed probes
	probed     time.Time // time of the last probe result
	unanswered int       // unanswered probes of a suspect since the last progress

	refusedAt    time.Time // since when connections are refused; zero: they are not
	acquitted    time.Time // time of the last passed probe while a relative cause counted
	failingSince time.Time // since when requests of the still healthy endpoint fail; zero: none do

	alarms int       // recent false alarms of a stall
	calm   time.Time // since when no request is overdue; zero: one is

	// deaf means that the page's silence is ignored, because requests progressed during it.
	deaf bool
	page time.Time // since when the page answers again; zero: it does not
}

// away reports whether the endpoint is out, regardless of its group.
func (m *machine) away() bool { return m.state == Out || m.state == Probing }

// verdict is the result of judging conditions and score.
type verdict struct {
	state State // Healthy, Suspect or Out
	cause Cause
}

// step advances the machine with the evidence since the last step. It reports whether the state
// changed.
func (m *machine) step(now time.Time, e *Evidence, base *baseline, o *Options) bool {
	m.weigh(now, e, base)
	m.listen(now, e)
	switch {
	case !e.Refused:
		m.refusedAt = time.Time{}
	case m.refusedAt.IsZero():
		m.refusedAt = now
	}
	if m.flaps > 0 && m.state == Healthy && now.Sub(m.trusted) >= stableAfter {
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
	if base.overruled { // a fault shared with the group is not a failed return
		m.flaps = min(m.flaps, flaps)
	}
	if m.state != was {
		m.since = now
	}
	m.noteFailing(now, e)
	return m.state != was
}

// noteFailing records since when requests of the still healthy endpoint fail: some have failed, or one is
// overdue without any progress.
func (m *machine) noteFailing(now time.Time, e *Evidence) {
	ended := m.score >= clearBelow && m.cause.Counted()
	waits := e.Overdue > 0 && e.Moved >= probeAfter<<m.alarms
	switch {
	case m.state != Healthy || !ended && !waits:
		m.failingSince = time.Time{}
	case m.failingSince.IsZero():
		m.failingSince = now
	}
}

// listen decides whether the page's silence is evidence, and expires false alarms. Silence is
// ignored for a page that is read only occasionally, for example because a read exceeds its time
// limit.
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

// weigh updates the score. The score decays over time. Each judged request or probe adds the
// log-likelihood ratio of an unhealthy endpoint to a normal one.
func (m *machine) weigh(now time.Time, e *Evidence, base *baseline) {
	if !m.at.IsZero() && now.After(m.at) {
		half := scoreHalf
		if m.unlike() { // few requests reach it
			half = barrenHalf
		}
		m.score *= math.Exp2(-float64(now.Sub(m.at)) / float64(half))
	}
	m.at = now
	if m.state == Healthy && m.score < clearBelow {
		m.evidence = Evidence{}
	}
	counts := m.evidence.with(*e)
	m.evidence = *e
	m.evidence.Good, m.evidence.Bad = counts.Good, counts.Bad
	m.evidence.Passed, m.evidence.Missed, m.evidence.Denied = counts.Passed, counts.Missed, counts.Denied

	m.countBarren(e)
	add, worst := 0., 0.
	for _, k := range counted {
		if n := float64(e.Bad[k.cause]); n > 0 && !(k.cause.relative() && now.Sub(m.acquitted) < acquittedFor && !m.unlike()) {
			gain := n * base.against(k.cause, k.usual)
			if k.cause == Cut { // its first tokens had counted as a success
				gain -= n * base.inFavour()
			}
			add += gain
			if gain > worst {
				worst = gain
				m.blame(k.cause)
			}
		}
	}
	if e.Passed > 0 && m.cause.relative() && !m.away() && !m.unlike() {
		m.score, add, m.acquitted = 0, 0, now
		m.evidence.Bad[m.cause] = 0
	}
	against := e.Denied
	if m.state == Returning { // a suspect may answer slowly because it is busy
		against += e.Missed
	}
	if against > 0 && (m.state == Returning || m.state == Suspect || m.state == Healthy) {
		add += float64(against) * math.Log(unhealthyShare/.01)
		if m.state == Returning && !m.probesConclusive() || m.cause == None {
			m.blame(Probe)
		}
	}
	pass := -probePass
	switch {
	case m.unlike():
		pass = 0
	case m.failsSome():
		pass = base.inFavour()
	}
	add += float64(e.Good)*base.inFavour() + float64(e.Passed)*pass
	if m.state == Returning && m.blind && m.cause.relative() && e.Bad[m.cause] > 0 { // the fault is the one before
		add = max(add, suspectAt)
	}
	m.score = min(max(m.score+add, 0), maxScore)
	if m.awaitsProbe(now) {
		m.score = min(m.score, suspectAt-.1)
	}
	if m.cause.relative() && m.evidence.Passed > 0 && m.evidence.Denied == 0 { // clients cannot put an endpoint out
		m.score = min(m.score, outAt-.1)
	}
	m.countProbes(now, e)
}

// barrenAt is how many requests in a row must fail, none of them answered, before a passed probe no longer
// clears the endpoint.
const barrenAt = 6

// barrenHalf replaces scoreHalf then.
const barrenHalf = 30 * time.Second

// countBarren counts requests that failed since the last good one.
func (m *machine) countBarren(e *Evidence) {
	if e.Good > 0 || m.away() {
		m.barren = 0
	}
	for c := range NumCauses {
		if c.relative() && !m.away() {
			m.barren = min(m.barren+e.Bad[c], barrenAt)
		}
	}
}

// unlike reports whether all requests of clients fail, so that passed probes prove nothing about them. For
// example, a gateway before the engine declines clients. The endpoint becomes a suspect, and few of its
// requests fail.
func (m *machine) unlike() bool { return m.barren >= barrenAt && m.evidence.Passed > 0 }

// awaitsProbe reports whether a relative cause counts and no probe has decided yet whether the
// endpoint or its clients are at fault. If probes have no result, for example because the engine
// requires an API key, requests alone decide after unprobedSuspect.
func (m *machine) awaitsProbe(now time.Time) bool {
	since := m.failingSince
	switch m.state {
	case Healthy:
	case Returning:
		since = m.since
	default:
		return false
	}
	if m.blind || m.unlike() { // its probes had no result, or another one than requests
		return false
	}
	return m.cause.relative() && m.evidence.Denied == 0 && (since.IsZero() || now.Sub(since) < unprobedSuspect)
}

// failsSome reports whether the endpoint is still used and fails only some of its requests. A
// passed probe then counts as at most one served request.
func (m *machine) failsSome() bool {
	return (m.state == Suspect || m.state == Healthy) && (m.probesConclusive() || m.cause == Late || m.cause == Halted)
}

// probesConclusive reports whether probes fail for the same cause as requests.
func (m *machine) probesConclusive() bool {
	return m.cause == Failed || m.cause == Broken || m.cause == Cut
}

// blame sets the cause of the score unless the state already has a stronger one.
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
		m.unanswered = 0
	case e.Missed > 0:
		m.unanswered++
	}
	if e.Missed+e.Denied > 0 {
		m.passed = 0
		return
	}
	m.passed += int(min(e.Passed, 1<<20))
}

// countRequests counts requests as probes for an endpoint that is out but still used: one passed
// probe per step without a failure.
func (m *machine) countRequests(e *Evidence) {
	if bad := e.requests() - float64(e.Good); bad > 0 {
		m.passed = 0
	} else if e.Good > 0 {
		m.passed++
	}
}

// judge returns the verdict on the current evidence. Direct observations take precedence over the
// score.
func (m *machine) judge(now time.Time, e *Evidence) verdict {
	life := min(e.Answered, e.Moved)
	heard := !m.deaf
	suspect, out := stallAfter<<m.alarms, stallOut<<m.alarms
	switch {
	case e.Refused && life >= refusedAfter && now.Sub(m.refusedAt) >= refusedFor && (heard || m.score >= suspectAt):
		return verdict{Out, Refused}
	case e.Overdue > 0 && e.Moved >= stallAfter && e.Answered >= stallOut && heard:
		return verdict{Out, Stalled} // both requests and the page confirm it
	case e.Overdue > 0 && e.Moved >= out && (e.Overdue > 1 || e.Twice):
		return verdict{Out, Stalled}
	case m.unanswered >= silentProbes && e.Moved >= out && e.InFlight == 0: // the overdue requests have ended, so load does not explain the silence
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

// scored returns the cause of the score.
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
	case m.state == Suspect && m.score < clearBelow && m.unanswered == 0 && now.Sub(m.since) >= restless:
		if m.cause == Stalled { // a slow request or a wrong prediction
			m.alarms = min(m.alarms+1, mostAlarms)
		}
		m.state, m.cause, m.trusted, m.blind = Healthy, None, now, false
	}
	if m.state == Healthy && m.score < clearBelow {
		m.cause = None
	}
}

// relapse counts a failed return: requests failed within the steady time. An engine that stops
// without losing requests may be part of a rolling update and does not count.
func (m *machine) relapse(now time.Time, c Cause) {
	if m.lost(c) && !m.back.IsZero() && now.Sub(m.back) < stableAfter {
		m.flap()
	}
}

// lost reports whether the problem has cost requests.
func (m *machine) lost(c Cause) bool {
	return m.evidence.requests() > float64(m.evidence.Good) || c != None && c != Refused && c != Silent
}

// Past is the remembered state of an endpoint that has left.
type Past struct {
	flaps int
	cause Cause
	lost  bool // requests failed in the problem during which it left
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
		n, good := m.evidence.requests(), float64(m.evidence.Good)
		if m.probesConclusive() {
			n, good = n+float64(m.evidence.Passed+m.evidence.Denied), good+float64(m.evidence.Passed)
		}
		m.failed = (n - good) / (n + 2) // small samples count less
	}
}

// stepOut waits for probes. Results of earlier requests do not count against a recovered endpoint;
// only refused connections and silence override passed probes.
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
		m.blind = m.passed < m.need(o)
		m.state, m.score, m.back = Returning, 0, now
	case m.passed > 0:
		m.state = Probing
	default:
		m.state = Out
	}
}

// unprobed reports whether probes have had no result for so long that requests must decide. Engines
// that require an API key answer no probe.
func (m *machine) unprobed(now time.Time, e *Evidence) bool {
	after := blindReturn
	if m.cause == Refused || m.cause == Silent {
		after = reachedReturn
	}
	return now.Sub(m.probed) >= after<<min(m.flaps, doublings) && now.Sub(m.since) >= after && min(e.Answered, e.Moved) < silentAfter
}

// need returns how many consecutive probes must pass. An endpoint that failed only some requests
// needs more, so that it does not return by chance.
func (m *machine) need(o *Options) int {
	need := o.Probes << min(m.flaps, doublings)
	if m.failed > 0 && m.failed < 1 {
		unlikely := int(math.Ceil(math.Log(luck) / math.Log(1-m.failed)))
		need = max(need, min(unlikely, o.Probes+mostProbes))
	}
	return need
}

// start returns the time in which its share grows back.
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
		m.state, m.cause, m.trusted, m.blind = Healthy, None, now, false
	}
}

// share returns in how many of 1,000 decisions the endpoint may be a candidate, in a group of n.
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

// view returns the state for display.
func (m *machine) view(o *Options) View {
	v := View{
		State: m.state, Reached: m.reached, Since: m.since, Score: m.score, Need: m.need(o), Passed: m.passed, Seen: m.evidence,
		Flaps: m.flaps, Start: m.start(o), Restarted: m.reborn && m.away(),
	}
	if m.state != Healthy {
		v.Cause = m.cause
	}
	return v
}
