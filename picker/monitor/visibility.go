package monitor

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// sight is what this replica sees of one endpoint beside its requests.
type sight struct {
	ep        *endpoint.Endpoint
	base      string    // its model, as far as that was known
	answered  time.Time // when a page or a probe was last answered; ahead while a page rests
	refused   bool
	passed    uint64
	missed    uint64
	denied    uint64
	probing   bool
	refreshed time.Time
	shunned   int // models whose requests go elsewhere
	pace      pace

	sharedAt time.Time
	shared   health.Evidence
	found    uint64            // what was told of single models; see health.Tracker.Found
	alarm    time.Time         // when another replica last saw something wrong
	words    map[string]counts // of others
}

// evidence returns what this replica sees at a time.
func (s *sight) evidence(now time.Time) health.Evidence {
	e := s.ep.Tracker().Evidence(now)
	e.Passed, e.Missed, e.Denied, e.Refused, e.Slow = s.passed, s.missed, s.denied, s.refused, s.pace.slow
	if !s.answered.IsZero() {
		e.Answered = max(now.Sub(s.answered), 0)
	}
	return e
}

// read takes how a reading of the page ended. busy says that prefills in flight
// explain a slow pace.
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

// pace follows how fast an engine generates, by the counter on its page.
type pace struct {
	at      time.Time // of the reading that the next is compared with
	tokens  float64
	running float64
	usual   float64 // tokens per second and sequence
	samples int
	low     int // readings in a row far below that
	slow    bool
}

const (
	paceWindow  = 700 * time.Millisecond
	paceKnown   = 10   // samples, below which nothing is usual
	paceLow     = .25  // of the usual pace
	paceFade    = .1   // weight of the newest sample in what is usual
	paceRunning = 2.   // sequences, below which a pace says little
	paceFew     = 2    // readings in a row that make an engine slow
	explained   = .3   // seconds of prefill ahead that explain a slow pace
	paceStale   = 15.0 // seconds between readings that are not compared
)

// see takes a page and reports whether the engine has generated anything since
// the last one.
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

// counts are sums of what another replica has counted.
type counts struct{ bad, passed uint64 }

// heard notes what another replica says, to answer it with what is seen here. A
// probe that passed there ends a slow pace here, as one of this replica does.
func (s *sight) heard(origin string, e *health.Evidence, now time.Time) {
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

// mayShare tells the other replicas what is seen while something is wrong, here
// or there, and once more when that is over.
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
	m.tell(s.ep.Address, appendEvidence(nil, &e, found))
}

// tell notes what the other replicas are to hear. m.mu is held.
func (m *Monitor) tell(address string, value []byte) {
	if m.opts.Publish != nil {
		m.out = append(m.out, word{address, value})
	}
}
