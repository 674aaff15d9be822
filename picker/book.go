package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// flight is one dispatched request until its end. One allocation holds the decision, its addresses
// and its load tracker entries.
type flight struct {
	request.Decision
	s        *Scheduler
	request  *request.Request
	ep       *endpoint.Endpoint
	storedAt *endpoint.Endpoint // the endpoint that stores its response, if known

	serving *endpoint.Ticket // own, unless the request moved
	own     endpoint.Ticket
	helpers []helper // endpoints that do part of the work
	names   [4]string

	queued    endpoint.Queued
	predicted cycle.Prediction
	held      cycle.PrefixMatch // at ep
	record    recordRef
	trace     string // id of its trace, "" if that is not sampled

	permit       Permit
	firstAt      time.Time
	lastAt       time.Time
	tokens       int
	learn        learnable
	ready        cycle.Readiness // of ep at the dispatch
	report       kvtransfer.Report
	unsplitTTFT  float64 // predicted seconds to the first token if the request had not been split
	unsplitDelay float64 // predicted delay of other requests then, weighted, in seconds
	comparable   bool    // unsplitTTFT rests on samples, and the first token will be seen
	evidence     evidence
	warmUpStart  chan bool        // starts the request's warm-up; nil: none
	fetched      int32            // tokens of blocks fetched from another endpoint
	remoteEnded  func(status int) // reports the end to the remote cluster's picker; nil: not involved
}

// helper is an endpoint that does part of a request's work.
type helper struct {
	endpoint.Ticket
	queued endpoint.Queued
	held   cycle.PrefixMatch
	cycle.Part
}

// learnable selects the values learned from a request's times.
type learnable struct {
	prefill bool // prefill time of the serving endpoint
	step    bool // time between tokens of the serving endpoint
	// helper is the endpoint whose prefill time the first token shows; nil: none.
	helper *helper
}

// book enters the plan into the load tracker, so that all later decisions count the request, and
// starts watching its endpoint.
func (s *Scheduler) book(ch chosen) *flight {
	c, plan, view := ch.cycle, ch.cycle.Plan(), ch.cycle.First()
	best, ep, rank := plan.Order[0], view.Endpoint, view.Rank()
	work := c.WorkAt(best)
	f := &flight{
		s: s, request: ch.request, permit: ch.permit, ep: ep, learn: learnable{prefill: true, step: true}, trace: ch.request.Trace.TraceID(),
		fetched: plan.Fetched, held: c.MatchAt(best),
	}
	if plan.Leader() != nil {
		f.predictUnsplit(c)
	}
	if plan.New >= 0 {
		work.New, f.learn.prefill = plan.New, false
	}
	if ch.permit.Program != 0 && s.programs != nil {
		s.programs.Place(ch.permit, work.Input, work.New)
	}
	if rank.WaitsForSlot() { // the time to first token is mostly the wait for a slot
		f.learn.prefill = false
	}
	f.queued = endpoint.Queued{Ahead: rank.Load, Own: work, At: c.Now}
	f.predicted = c.Expected()
	f.ready = c.Ready(rank, c.Answer())
	c.UseNeeds(rank)
	f.WantBody = s.wantBody(c)

	f.serving = &f.own
	f.serving.RemotePrefill = plan.Leader() != nil
	if ep.IsRemote() {
		f.remoteEnded = ch.remoteEnded
		s.remoteLoad.Open(f.serving, ep, work, c.Now)
		f.sentRemote(c.Now)
	} else {
		s.opts.Pool.LoadTracker().Open(f.serving, ep, work, c.Now)
		f.recordLocal(c)
	}
	first := c.Now.Add(seconds(f.predicted.TTFT()))
	s.unseen.Watch(f.serving, f.request.Stream, f.WantBody, first)
	for i := range f.helpers {
		s.unseen.Watch(&f.helpers[i].Ticket, f.request.Stream, f.WantBody, first)
	}
	f.watchHealth(rank)
	return f
}

// recordLocal records everywhere that the request is served in this cluster.
func (f *flight) recordLocal(c *cycle.Cycle) {
	f.trackHelpers(c)
	if f.s.opts.RemoteClusters != nil {
		f.s.opts.RemoteClusters.ServedLocally(f.request)
	}
	f.s.opts.Sessions.Bind(sessions.Binding{Session: c.Session, Endpoint: f.ep.ID, At: c.Now})
	f.reportChosen()
	c.NotifyChosen()
}

// trackHelpers enters the plan's parts at helper endpoints into the load tracker.
func (f *flight) trackHelpers(c *cycle.Cycle) {
	parts := c.Plan().Also
	if len(parts) == 0 {
		return
	}
	f.helpers = make([]helper, len(parts))
	for k, p := range parts {
		h, v := &f.helpers[k], c.All(p.Index)
		h.Part, h.queued, h.Helps = p, endpoint.Queued{Ahead: v.Rank().Load, Own: p.Work, At: c.Now}, true
		h.held, h.Ticket.Sends, h.OnlySends = c.MatchAt(p.Index), p.Moves, p.SendsOnly
		f.s.opts.Pool.LoadTracker().Open(&h.Ticket, v.Endpoint, p.Work, c.Now)
		// An endpoint that also serves whole requests learns its prefill time from those; here the
		// time includes a KV transfer.
		if p.Leads && v.Role&endpoint.RoleDecode == 0 {
			f.learn.helper = h
		}
	}
}

// reportChosen reports to the matcher which endpoints will hold the prompt. The serving endpoint
// comes last, because the last one is audited.
func (f *flight) reportChosen() {
	m := f.s.opts.Matcher
	if m == nil {
		return
	}
	for i := range f.helpers {
		if h := &f.helpers[i]; h.Holds {
			m.Chosen(f.request, h.Endpoint())
		}
	}
	m.Chosen(f.request, f.ep)
}

// wantBody requests response bodies while an endpoint has few samples, and for a random sample
// afterwards.
func (s *Scheduler) wantBody(c *cycle.Cycle) bool {
	if s.opts.SampleBodies < 0 || c.Request.Kind == request.KindOther {
		return false
	}
	first := c.First()
	seen := first.Cost.PrefillSeen
	if p := c.Plan().Leader(); p != nil {
		seen = first.Cost.DecodeSeen
		if v := c.All(p.Index); v.Role&endpoint.RoleDecode == 0 {
			seen = min(seen, v.Cost.PrefillSeen)
		}
	}
	little := seen < enoughSamples && first.Tracker().AnswersSampled() < mostSamples
	if c.Request.Kind == request.KindResponses || little || c.MatchAt(c.Best()).WantUsage || c.Float64() < s.opts.SampleBodies {
		first.Tracker().AnswerSampled(c.Now)
		return true
	}
	return first.Tracker().SampleAnswer(c.Now)
}
