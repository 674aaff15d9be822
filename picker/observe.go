package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// observe handles an event of the response. It must be called by one goroutine.
func (f *flight) observe(e request.Event) {
	switch e.Kind {
	case request.EventHeaders:
		f.movedTo(e.Served, e.Attempts, e.At)
		f.judgeStatus(&e)
		f.readTransferReport(&e)
		if e.Status >= 400 {
			f.learn = learnable{}
		}
		if e.Status == 404 && f.s.opts.Lists != nil && !f.ep.IsRemote() && f.request.Kind != request.KindOther {
			f.s.opts.Lists.Recheck(f.ep.ID)
		}
		if !f.request.Stream {
			f.startWarmUp(e.Status/100 == 2)
			f.firstToken(e.At)
		}
	case request.EventFirstToken:
		f.observeProgress(e.At)
		f.firstToken(e.At)
		f.lastAt = e.At
	case request.EventStored:
		f.bindResponse(e.ResponseID, e.At)
	case request.EventTokens:
		f.serving.Generated(e.Tokens)
		f.tokens += e.Tokens
		f.observeProgress(e.At)
		f.lastAt = e.At
	}
}

// movedTo handles a request that the proxy sent to an endpoint other than the first choice.
func (f *flight) movedTo(served string, attempts int, now time.Time) {
	if served == "" || served == f.ep.Address || served == f.Endpoints[0] && f.serving == &f.own {
		return
	}
	ep := f.s.opts.Pool.Snapshot().Lookup(served)
	if ep == nil || ep == f.ep {
		return
	}
	f.s.metrics.moved.Inc()
	f.failedOver(ep, attempts, now)
	f.reportRemoteEnd(0)
	f.AnswerHeaders = withoutEndpoint(f.AnswerHeaders)
	f.serving.Release()
	f.ep, f.held, f.learn, f.serving = ep, cycle.PrefixMatch{}, learnable{}, &endpoint.Ticket{RemotePrefill: f.split()}
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
	if !f.request.Stream || !f.learn.prefill && f.learn.helper == nil {
		return
	}
	f.s.unseen.ObserveFirstToken(f.WantBody)
	ttft := at.Sub(f.queued.At)
	f.overruns().first.Observe(f.evidence.first, ttft)
	f.s.metrics.predicted(f.predicted.TTFT(), ttft, f.trace)
	f.ep.ObserveForecast(f.predicted.TTFT(), ttft.Seconds())
	if f.learn.prefill && !f.learnNeeds(ttft.Seconds()-f.predicted.TTFT()) {
		f.learnLoads(ttft)
		f.s.opts.Pool.LearnPrefill(f.ep, &f.queued, ttft)
	}
}

// release ends the request: it returns the permit and the load, and learns from the times.
func (f *flight) release(o request.Outcome) {
	if o.Served != "" && f.firstAt.IsZero() {
		f.movedTo(o.Served, o.Attempts, o.At)
	}
	f.judgeOutcome(&o)
	f.startWarmUp(o.Complete && o.Status/100 == 2)
	if o.Complete {
		f.reportRemoteEnd(o.Status)
	}
	f.reportRemoteEnd(0)
	f.serving.Release()
	for i := range f.helpers {
		f.helpers[i].Release()
	}
	f.learnStep()
	f.learnAnswer(&o)
	f.measureDemand(&o)
	if f.request.Stream && o.Status < 400 && o.Complete {
		f.s.unseen.Ended(f.WantBody, !f.firstAt.IsZero())
	}
	f.bindResponse(o.ResponseID, o.At)
	f.s.opts.Gate.Leave(f.permit, f.serviceTime(o.At))
	f.reportFinished(o)
	f.s.metrics.finished(f, o)
	f.s.records.finish(f.record, f, o)
	f.request = nil
}

// bindResponse binds a stored response to its engine as soon as the response id arrives, because clients
// read and cancel running responses. It binds again when another engine turns out to have answered.
func (f *flight) bindResponse(response string, at time.Time) {
	if response != "" && f.request.Kind == request.KindResponses && f.storedAt != f.ep {
		f.storedAt = f.ep
		id := f.ep.ID
		if f.ep.IsRemote() {
			id = sessions.Cluster(f.ep.Cluster)
		}
		f.s.opts.Sessions.Bind(sessions.Binding{Session: sessions.ResponseKey(response), Endpoint: id, At: at})
		if f.permit.Program != 0 && f.s.programs != nil {
			f.s.programs.Stored(f.permit, sessions.ResponseKey(response))
		}
	}
}

// reportFinished reports the request's end to the matcher for every endpoint that got its prompt.
func (f *flight) reportFinished(o request.Outcome) {
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

// startWarmUp sends the request's warm-up, or cancels it. Only the first call has an effect.
func (f *flight) startWarmUp(answered bool) {
	if f.warmUpStart != nil {
		f.warmUpStart <- answered
		f.warmUpStart = nil
	}
}

// outcome summarizes the request for the outcome counters.
func (f *flight) outcome(o *request.Outcome) *outcomes.End {
	e := &outcomes.End{
		Endpoint: f.ep, Model: f.request.Target, Status: o.Status, Complete: o.Complete, Broken: o.Broken,
		Cause: f.evidence.cause, Whole: o.At.Sub(f.queued.At),
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

// serviceTime returns the seconds of engine time for the request: its prefill and a share of its decode
// steps.
func (f *flight) serviceTime(end time.Time) float64 {
	const shared = .1
	s := f.predicted.Own
	if !f.firstAt.IsZero() && end.After(f.firstAt) {
		s += shared * end.Sub(f.firstAt).Seconds()
	}
	return s
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 3600) * float64(time.Second))
}

// withoutEndpoint returns the answer headers that still hold when another endpoint serves the request.
func withoutEndpoint(headers []request.HeaderSet) (kept []request.HeaderSet) {
	for _, h := range headers {
		if h.Name == request.HeaderDecision {
			kept = append(kept, h)
		}
	}
	return kept
}
