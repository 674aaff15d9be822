package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// flight is one dispatched request until its end. One allocation holds the decision, its addresses
// and its load tracker entries.
type flight struct {
	request.Decision
	s       *Scheduler
	request *request.Request
	ep      *endpoint.Endpoint
	kept    *endpoint.Endpoint // the endpoint that stores its response, if known

	serving *endpoint.Ticket // own, unless the request moved
	own     endpoint.Ticket
	helpers []helper // endpoints that do part of the work
	names   [4]string

	queued    endpoint.Queued
	predicted cycle.Prediction
	held      cycle.PrefixMatch // at ep
	record    recordRef
	trace     string // id of its trace, "" if that is not sampled

	place      Permit
	firstAt    time.Time
	lastAt     time.Time
	tokens     int
	learns     lessons
	ready      cycle.Readiness // of ep at the dispatch
	report     kvtransfer.Report
	whole      float64 // predicted seconds to the first token if the request had not been split
	spared     float64 // predicted delay of other requests then, weighted, in seconds
	comparable bool    // whole rests on samples, and the first token will be seen
	vitals     vitals
	warms      chan bool        // starts the request's warm-up; nil: none
	fetched    int32            // tokens of blocks fetched from another endpoint
	ended      func(status int) // reports the end to the remote cluster's picker; nil: not involved
}

// helper is an endpoint that does part of a request's work.
type helper struct {
	endpoint.Ticket
	queued endpoint.Queued
	held   cycle.PrefixMatch
	cycle.Part
}

// lessons selects the values learned from a request's times.
type lessons struct {
	prefill bool // prefill time of the serving endpoint
	step    bool // time between tokens of the serving endpoint
	// helper is the endpoint whose prefill time the first token shows; nil: none.
	helper *helper
}

// launch enters the plan of c into the load tracker and builds the decision. ended is the callback
// returned by askFar.
func (s *Scheduler) launch(c *cycle.Cycle, ended func(status int)) *flight {
	r, plan, view := c.Request, c.Plan(), c.First()
	best := plan.Order[0]
	ep := view.Endpoint
	f := &flight{s: s, request: r, ep: ep, learns: lessons{prefill: true, step: true}, trace: r.Trace.TraceID()}
	f.Endpoints = c.Destinations(f.names[:0])
	if len(plan.Headers) > 0 {
		f.SetHeaders = append([]request.HeaderSet(nil), plan.Headers...)
	}
	if r.Target != "" && r.Target != r.Model && r.ModelSpan[1] > r.ModelSpan[0] {
		f.ModelTarget = r.Target
	}
	work := c.WorkAt(best)
	if plan.Leader() != nil {
		f.expectWhole(c)
	}
	if plan.New >= 0 {
		work.New, f.learns.prefill = plan.New, false
	}
	f.fetched = plan.Fetched
	rank := view.Rank()
	if rank.WaitsForSlot() { // the time to first token is mostly the wait for a slot
		f.learns.prefill = false
	}
	f.held, f.queued = c.MatchAt(best), endpoint.Queued{Ahead: rank.Load, Own: work, At: c.Now}
	f.predicted = c.Expected()
	f.ready = c.Ready(rank, c.Answer())
	c.UseNeeds(rank)
	f.WantBody = s.wantBody(c)

	f.serving = &f.own
	f.serving.RemotePrefill = plan.Leader() != nil
	if ep.IsRemote() {
		f.ended = ended
		s.farBook.Open(f.serving, ep, work, c.Now)
		f.sentFar(c.Now)
	} else {
		s.opts.Pool.LoadTracker().Open(f.serving, ep, work, c.Now)
		f.settle(c)
	}
	first := c.Now.Add(seconds(f.predicted.TTFT()))
	s.unseen.Watch(f.serving, r.Stream, f.WantBody, first)
	for i := range f.helpers {
		s.unseen.Watch(&f.helpers[i].Ticket, r.Stream, f.WantBody, first)
	}
	f.beginVitals(rank)
	f.Tries = s.tries(c, f)
	f.RetryRefusal = ep.IsRemote() && len(plan.Order) > 1 && !c.All(plan.Order[1]).IsRemote()
	if s.prompts.Suspected(f.vitals.prompt, c.Now) {
		f.Endpoints = f.Endpoints[:1]
	}
	f.nameContinuations(c)
	f.record = s.records.add(c, f.predicted)
	f.Number = f.record.number
	f.Observe, f.Release = f.observe, f.release
	return f
}

// settle records everywhere that the request is served in this cluster.
func (f *flight) settle(c *cycle.Cycle) {
	f.enlist(c)
	if f.s.opts.RemoteClusters != nil {
		f.s.opts.RemoteClusters.ServedLocally(f.request)
	}
	f.s.opts.Sessions.Bind(sessions.Binding{Session: c.Session, Endpoint: f.ep.ID, At: c.Now})
	f.tellChosen()
	c.NotifyChosen()
}

// enlist enters the plan's parts at helper endpoints into the load tracker.
func (f *flight) enlist(c *cycle.Cycle) {
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
			f.learns.helper = h
		}
	}
}

// tellChosen reports to the matcher which endpoints will hold the prompt. The serving endpoint
// comes last, because the last one is audited.
func (f *flight) tellChosen() {
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

// tellFinished reports the request's end to the matcher for every endpoint that got its prompt.
func (f *flight) tellFinished(o request.Outcome) {
	m := f.s.opts.Matcher
	if m == nil || f.ep.IsRemote() {
		return
	}
	bare := o
	bare.Usage = request.Usage{}
	for i := range f.helpers {
		if h := &f.helpers[i]; h.Holds {
			m.Finished(f.request, h.Endpoint(), h.held, bare)
		}
	}
	if f.split() || f.fetched > 0 {
		o.Usage.CachedSeen, o.Usage.Transferred = false, true // the engine counts transferred blocks as cached
	}
	m.Finished(f.request, f.ep, f.held, o)
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

// observe handles an event of the response. It must be called by one goroutine.
func (f *flight) observe(e request.Event) {
	switch e.Kind {
	case request.EventHeaders:
		f.moveTo(e.Served, e.Attempts, e.At)
		f.answered(&e)
		f.reported(&e)
		if e.Status >= 400 {
			f.learns = lessons{}
		}
		if e.Status == 404 && f.s.opts.Lists != nil && !f.ep.IsRemote() && f.request.Kind != request.KindOther {
			f.s.opts.Lists.Recheck(f.ep.ID)
		}
		if !f.request.Stream {
			f.startWarmUp(e.Status/100 == 2)
			f.firstToken(e.At)
		}
	case request.EventFirstToken:
		f.moves(e.At)
		f.firstToken(e.At)
		f.lastAt = e.At
	case request.EventStored:
		f.keeps(e.ResponseID, e.At)
	case request.EventTokens:
		f.serving.Generated(e.Tokens)
		f.tokens += e.Tokens
		f.moves(e.At)
		f.lastAt = e.At
	}
}

// moveTo handles a request that the proxy sent to an endpoint other than the first choice.
func (f *flight) moveTo(served string, attempts int, now time.Time) {
	if served == "" || served == f.ep.Address || served == f.Endpoints[0] && f.serving == &f.own {
		return
	}
	ep := f.s.opts.Pool.Snapshot().Lookup(served)
	if ep == nil || ep == f.ep {
		return
	}
	f.s.metrics.moved.Inc()
	f.failedOver(ep, attempts, now)
	f.endAsked(0)
	f.AnswerHeaders = ofRequest(f.AnswerHeaders)
	f.serving.Release()
	f.ep, f.held, f.learns, f.serving = ep, cycle.PrefixMatch{}, lessons{}, &endpoint.Ticket{RemotePrefill: f.split()}
	f.s.opts.Pool.LoadTracker().Open(f.serving, ep, f.queued.Own, f.queued.At)
	f.s.opts.Sessions.Bind(sessions.Binding{Session: sessions.KeyIn(f.request.Tenant, f.request.Session), Endpoint: ep.ID, At: now})
	f.s.unseen.Watch(f.serving, f.request.Stream, f.WantBody, f.queued.At.Add(seconds(f.predicted.TTFT())))
	if f.s.opts.Matcher != nil {
		f.s.opts.Matcher.Chosen(f.request, ep)
	}
}

// firstToken updates the load tracker and the cost model. It is not called for responses that are
// not streamed, because their headers arrive with the end.
func (f *flight) firstToken(at time.Time) {
	if !f.firstAt.IsZero() {
		return
	}
	f.firstAt = at
	f.startWarmUp(true)
	f.serving.FirstToken(at)
	for i := range f.helpers {
		f.helpers[i].FirstToken(at)
	}
	if f.split() {
		f.learnSplit(at)
	}
	f.learnFetch(at)
	if !f.request.Stream || !f.learns.prefill && f.learns.helper == nil {
		return
	}
	f.s.unseen.ObserveFirstToken(f.WantBody)
	ttft := at.Sub(f.queued.At)
	f.patience().first.Observe(f.vitals.first, ttft)
	f.s.metrics.predicted(f.predicted.TTFT(), ttft, f.trace)
	f.ep.ObserveForecast(f.predicted.TTFT(), ttft.Seconds())
	if f.learns.prefill && !f.learnNeeds(ttft.Seconds()-f.predicted.TTFT()) {
		f.learnLoads(ttft)
		f.s.opts.Pool.LearnPrefill(f.ep, &f.queued, ttft)
	}
}

// learnNeeds learns the time of loads from the excess over the prediction. It reports whether the
// engine had to load something, which its prefill time does not show.
func (f *flight) learnNeeds(excess float64) bool {
	if f.ready.Used != 0 {
		f.s.opts.Pool.NeedTimes().Observe(f.ready.Missing, excess+f.predicted.Load)
	}
	return f.ready.Missing != 0
}

func (f *flight) release(o request.Outcome) {
	if o.Served != "" && f.firstAt.IsZero() {
		f.moveTo(o.Served, o.Attempts, o.At)
	}
	f.concludeVitals(&o)
	f.startWarmUp(o.Complete && o.Status/100 == 2)
	if o.Complete {
		f.endAsked(o.Status)
	}
	f.endAsked(0)
	f.serving.Release()
	for i := range f.helpers {
		f.helpers[i].Release()
	}
	f.learnStep()
	f.learnAnswer(&o)
	if f.request.Stream && o.Status < 400 && o.Complete {
		f.s.unseen.Ended(f.WantBody, !f.firstAt.IsZero())
	}
	f.keeps(o.ResponseID, o.At)
	f.s.opts.Gate.Leave(f.place, f.service(o.At))
	f.tellFinished(o)
	f.s.metrics.finished(f, o)
	f.s.records.finish(f.record, f, o)
	f.request = nil
}

// startWarmUp sends the request's warm-up, or cancels it. Only the first call has an effect.
func (f *flight) startWarmUp(answered bool) {
	if f.warms != nil {
		f.warms <- answered
		f.warms = nil
	}
}

// end summarizes the request for the outcome counters.
func (f *flight) end(o *request.Outcome) *outcomes.End {
	e := &outcomes.End{
		Endpoint: f.ep, Model: f.request.Target, Status: o.Status, Complete: o.Complete, Broken: o.Broken,
		Cause: f.vitals.cause, Whole: o.At.Sub(f.queued.At),
	}
	if o.Usage.Seen && o.Usage.CachedSeen {
		e.PromptTokens, e.CachedTokens = o.Usage.PromptTokens, o.Usage.CachedTokens
	}
	if o.Unseen && f.request.Stream {
		e.Whole = 0
	}
	if f.request.Stream && !f.firstAt.IsZero() {
		e.First = f.firstAt.Sub(f.queued.At)
	}
	return e
}

// service returns the seconds of engine time for the request: its prefill and a share of its decode
// steps.
func (f *flight) service(end time.Time) float64 {
	const shared = .1
	s := f.predicted.Own
	if !f.firstAt.IsZero() && end.After(f.firstAt) {
		s += shared * end.Sub(f.firstAt).Seconds()
	}
	return s
}

// learnAnswer learns the length of a complete answer.
func (f *flight) learnAnswer(o *request.Outcome) {
	if o.Status >= 400 || !o.Complete || o.Broken || o.Unclosed || f.request.Kind == request.KindOther {
		return
	}
	tokens := f.tokens + 1
	if o.Usage.Seen {
		tokens = o.Usage.OutputTokens
	} else if f.tokens == 0 {
		return // no token count is available
	}
	f.s.opts.Pool.Answers().Observe(f.request.Target, f.request.MaxTokens, tokens)
}

// learnStep learns the time between tokens from sufficiently long answers.
func (f *flight) learnStep() {
	const enough = 8
	if f.tokens < enough || !f.lastAt.After(f.firstAt) || !f.learns.step {
		return
	}
	l := f.s.opts.Pool.LoadTracker().RankLoad(f.ep, f.lastAt)
	step := f.lastAt.Sub(f.firstAt).Seconds() / float64(f.tokens)
	f.s.opts.Pool.LearnStep(f.ep, float64(l.Requests-l.Waiting)+1, float64(l.Context+int64(f.queued.Own.Input)), step, f.lastAt)
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 3600) * float64(time.Second))
}

// ofRequest returns the answer headers that still hold when another endpoint serves the request.
func ofRequest(headers []request.HeaderSet) (kept []request.HeaderSet) {
	for _, h := range headers {
		if h.Name == request.HeaderDecision {
			kept = append(kept, h)
		}
	}
	return kept
}
