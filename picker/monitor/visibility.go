package monitor

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// sight is this replica's view of one endpoint, without its requests.
type sight struct {
	ep        *endpoint.Endpoint
	base      string    // its model, if known
	answered  time.Time // time of the last answered page or probe; in the future while the page is not due
	refused   bool
	passed    uint64
	missed    uint64
	denied    uint64
	probing   bool
	refreshed time.Time
	avoided   int // models that avoid the endpoint
	pace      pace
	counts    health.Counts // at the last step

	sharedAt time.Time
	shared   health.Evidence
	found    uint64            // version of the last shared model failures; see health.Tracker.Found
	alarm    time.Time         // when another replica last reported a problem
	words    map[string]counts // of other replicas
}

// evidence returns this replica's current evidence.
func (s *sight) evidence(now time.Time) health.Evidence {
	e := s.ep.Tracker().Evidence(now)
	e.Passed, e.Missed, e.Denied, e.Refused, e.Slow = s.passed, s.missed, s.denied, s.refused, s.pace.slow
	if !s.answered.IsZero() {
		e.Answered = max(now.Sub(s.answered), 0)
	}
	return e
}

// read records a page reading. busy means that prefills in flight explain a slow pace.
func (s *sight) read(r scrape.Reading, busy bool) {
	s.refused = r.Refused
	if r.Answered {
		s.answered = r.At.Add(r.Rest)
	}
	if r.Page == nil {
		return
	}
	if s.pace.see(r.Page, r.At, busy) {
		s.ep.Tracker().Progress(r.At)
	}
}

// pace tracks the token rate of an engine by its page's counter.
type pace struct {
	at      time.Time // time of the reading to compare with
	tokens  float64
	running float64
	usual   float64 // tokens per second and sequence
	samples int
	low     int // consecutive readings far below usual
	slow    bool
}

const (
	paceWindow  = 700 * time.Millisecond
	paceKnown   = 10   // minimum samples for a usual pace
	paceLow     = .25  // fraction of the usual pace that counts as low
	paceFade    = .1   // weight of the newest sample
	paceRunning = 2.   // minimum running sequences for a meaningful pace
	paceFew     = 2    // consecutive low readings that make an engine slow
	explained   = .3   // seconds of queued prefill that explain a slow pace
	paceStale   = 15.0 // maximum seconds between compared readings
)

// see processes a page and reports whether the engine has generated tokens since the last one.
func (p *pace) see(page *scrape.Page, at time.Time, busy bool) (moved bool) {
	moved = page.Generated > p.tokens && !p.at.IsZero()
	span := at.Sub(p.at)
	if p.at.IsZero() || page.Generated < p.tokens || span.Seconds() > paceStale {
		p.restart(page, at)
		return moved
	}
	if span < paceWindow {
		return moved
	}
	running := (p.running + float64(page.Running)) / 2
	rate := (page.Generated - p.tokens) / span.Seconds() / max(running, 1)
	p.restart(page, at)
	if page.Generated == 0 || running < paceRunning || busy {
		return moved
	}
	p.judge(rate)
	return moved
}

func (p *pace) restart(page *scrape.Page, at time.Time) {
	p.at, p.tokens, p.running = at, page.Generated, float64(page.Running)
}

func (p *pace) judge(rate float64) {
	if p.samples >= paceKnown && rate < paceLow*p.usual {
		p.low++
		p.slow = p.slow || p.low >= paceFew
		return
	}
	p.low, p.slow = 0, false
	p.samples++
	p.usual += max(paceFade, 1/float64(p.samples)) * (rate - p.usual)
}

// counts holds totals of another replica's counters.
type counts struct{ bad, passed uint64 }

// receive records another replica's report, so that this replica answers with its own evidence. A
// probe that passed there ends a slow pace here, like a local one.
func (s *sight) receive(origin string, e *health.Evidence, now time.Time) {
	is := counts{passed: e.Passed}
	for _, n := range e.Bad {
		is.bad += n
	}
	if s.words == nil {
		s.words = map[string]counts{}
	}
	was, known := s.words[origin]
	if known && is.bad != was.bad || e.Refused || e.Overdue > 0 || e.Slow {
		s.alarm = now
	}
	if known && is.passed > was.passed {
		s.pace.slow, s.pace.low = false, 0
	}
	s.words[origin] = is
}

const (
	shareEvery = 200 * time.Millisecond
	alarmFor   = 3 * time.Second
)

// mayShare sends evidence to the other replicas while this or another replica has a problem with
// the endpoint, and one last time when it is over.
func (s *sight) mayShare(m *Monitor, e *health.Evidence, sick bool, now time.Time) {
	if m.opts.Publish == nil || now.Sub(s.sharedAt) < shareEvery {
		return
	}
	probed := e.Passed != s.shared.Passed || e.Missed != s.shared.Missed || e.Denied != s.shared.Denied
	_, news := s.ep.Tracker().Found(nil, now)
	wrong := sick || news != s.found || probed || e.Refused || e.Overdue > 0 || e.Slow || e.Bad != s.shared.Bad || now.Sub(s.alarm) < alarmFor
	was := s.shared.Refused || s.shared.Overdue > 0 || s.shared.Slow
	if wrong || was {
		s.share(m, *e, now)
	}
}

func (s *sight) share(m *Monitor, e health.Evidence, now time.Time) {
	found, news := s.ep.Tracker().Found(nil, now)
	s.sharedAt, s.shared, s.found = now, e, news
	m.queue(s.ep.Address, appendEvidence(nil, &e, found, s.ep.Tracker().Suspicions(nil, now)))
}

// queue queues a message to the other replicas. The caller holds m.mu.
func (m *Monitor) queue(address string, value []byte) {
	if m.opts.Publish != nil {
		m.out = append(m.out, word{address, value})
	}
}
