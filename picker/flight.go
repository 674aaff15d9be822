package picker

import (
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
)

// flight is one placed request until its end. One allocation holds the
// decision, its addresses and its entries in the book.
type flight struct {
	Decision
	s       *Scheduler
	request *Request
	ep      *Endpoint

	serving *Ticket // own, unless the request moved
	own     Ticket
	parts   []Ticket // endpoints that help
	names   [4]string

	queued    Queued
	predicted Prediction
	run       indexer.Run
	record    recordRef

	firstAt time.Time
	lastAt  time.Time
	tokens  int
	learns  bool // the prediction was made for the endpoint that serves
}

// launch books the plan of c and builds the decision.
func (s *Scheduler) launch(c *Cycle) *flight {
	r, plan := c.Request, &c.plan
	best := plan.Order[0]
	ep := c.endpoints[best]
	f := &flight{s: s, request: r, ep: ep, learns: true}
	f.Endpoints = c.destinations(f.names[:0])
	if len(plan.Headers) > 0 {
		f.SetHeaders = append([]HeaderSet(nil), plan.Headers...)
	}
	if r.Target != "" && r.Target != r.Model && r.ModelSpan[1] > r.ModelSpan[0] {
		f.ModelTarget = r.Target
	}
	work := c.WorkAt(best)
	if plan.New >= 0 {
		work.New, f.learns = plan.New, false
	}
	view := &c.views[best]
	f.run, f.queued = c.runs[best], Queued{Ahead: view.Load, Own: work, At: c.Now}
	f.predicted = c.prediction(best, work)
	f.WantBody = s.wantBody(c, view.Cost)

	book := s.opts.Pool.Book()
	f.serving = &f.own
	book.Open(f.serving, ep, work, c.Now)
	f.bookParts(c, plan.Also)
	s.opts.Sessions.Bind(Binding{Session: c.Session, Endpoint: ep.ID, At: c.Now})
	if s.opts.Matcher != nil {
		s.opts.Matcher.Chosen(r, ep)
		for _, p := range plan.Also {
			s.opts.Matcher.Chosen(r, c.endpoints[p.Index])
		}
	}
	for _, ranking := range c.rankings[:c.ranked] {
		ranking.Profile.observed(c, ep)
	}
	s.blind.watch(f.serving, r.Stream, c.Now.Add(seconds(f.predicted.TTFT())))
	f.record = s.records.add(c, f.predicted)
	f.Observe, f.Release = f.observe, f.release
	return f
}

// destinations appends the addresses of the plan. Where the first one is
// reached at another port there are no fallbacks, since the headers of the plan
// speak of it alone.
func (c *Cycle) destinations(list []string) []string {
	if c.plan.Port != 0 {
		at := netip.AddrPortFrom(c.endpoints[c.plan.Order[0]].Addr.Addr(), c.plan.Port).String()
		if !c.Request.HasSubset || slices.Contains(c.Request.Subset, at) {
			return append(list, at)
		}
	}
	for _, i := range c.plan.Order {
		list = append(list, c.endpoints[i].Address)
	}
	return list
}

func (f *flight) bookParts(c *Cycle, parts []Part) {
	if len(parts) == 0 {
		return
	}
	f.parts = make([]Ticket, len(parts))
	for k, p := range parts {
		f.s.opts.Pool.Book().Open(&f.parts[k], c.endpoints[p.Index], p.Work, c.Now)
	}
}

// prediction returns what a scorer predicted for candidate i, or the plain
// model's word when none did.
func (c *Cycle) prediction(i int32, w Work) Prediction {
	if c.hasPred {
		return c.predicted[i]
	}
	v := &c.views[i]
	return Prediction{Wait: v.Cost.Wait(&v.Load, c.Now), Own: v.Cost.Prefill(w), Base: v.Cost.Base}
}

// wantBody asks for response bodies while an endpoint is little known, and for
// a sample afterwards.
func (s *Scheduler) wantBody(c *Cycle, cost *Cost) bool {
	if s.opts.SampleBodies < 0 || c.Request.Kind == KindOther {
		return false
	}
	return cost.PrefillSeen < enoughSamples || c.Float64() < s.opts.SampleBodies
}

// observe takes a moment of the response path. One goroutine calls it.
func (f *flight) observe(e Event) {
	switch e.Kind {
	case EventHeaders:
		f.moveTo(e.Served)
		if e.Status >= 400 {
			f.learns = false
		}
		if !f.request.Stream {
			f.firstToken(e.At)
		}
	case EventFirstToken:
		f.firstToken(e.At)
		f.lastAt = e.At
	case EventTokens:
		f.serving.Generated(e.Tokens)
		f.tokens += e.Tokens
		f.lastAt = e.At
	}
}

// moveTo follows a request that the proxy sent to another endpoint than the
// first choice.
func (f *flight) moveTo(served string) {
	if served == "" || served == f.ep.Address || served == f.Endpoints[0] && f.serving == &f.own {
		return
	}
	ep := f.s.opts.Pool.Snapshot().Lookup(served)
	if ep == nil || ep == f.ep {
		return
	}
	f.s.metrics.moved.Inc()
	f.serving.Release()
	f.ep, f.learns, f.serving = ep, false, new(Ticket)
	f.s.opts.Pool.Book().Open(f.serving, ep, f.queued.Own, f.queued.At)
	if f.s.opts.Matcher != nil {
		f.s.opts.Matcher.Chosen(f.request, ep)
	}
}

// firstToken moves the book on and teaches the cost model. A response that is
// not streamed shows no first token: its headers come with the end.
func (f *flight) firstToken(at time.Time) {
	if !f.firstAt.IsZero() {
		return
	}
	f.firstAt = at
	f.serving.FirstToken(at)
	f.endParts()
	if !f.learns || !f.request.Stream {
		return
	}
	f.s.blind.saw()
	ttft := at.Sub(f.queued.At)
	f.s.opts.Pool.learnPrefill(f.ep, &f.queued, ttft)
	f.s.metrics.predicted(f.predicted.TTFT(), ttft)
}

// endParts ends the work at endpoints that help: it is done when the first
// token is there.
func (f *flight) endParts() {
	for i := range f.parts {
		f.parts[i].Release()
	}
}

func (f *flight) release(o Outcome) {
	if o.Served != "" && f.firstAt.IsZero() {
		f.moveTo(o.Served)
	}
	f.serving.Release()
	f.endParts()
	f.learnStep()
	if f.request.Stream && o.Status < 400 && o.Complete {
		f.s.blind.ended(!f.firstAt.IsZero())
	}
	if f.s.opts.Matcher != nil {
		f.s.opts.Matcher.Finished(f.request, f.ep, f.run, o)
	}
	f.s.metrics.finished(f, o)
	f.s.records.finish(f.record, f, o)
	f.request = nil
}

// learnStep teaches the time between tokens, from answers long enough to tell.
func (f *flight) learnStep() {
	const enough = 8
	if f.tokens < enough || !f.lastAt.After(f.firstAt) || !f.learns {
		return
	}
	l := f.s.opts.Pool.Book().Load(f.ep, f.lastAt)
	step := f.lastAt.Sub(f.firstAt).Seconds() / float64(f.tokens)
	f.s.opts.Pool.learnStep(f.ep, float64(l.Requests-l.Waiting)+1, float64(l.Context+int64(f.queued.Own.Input)), step)
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 3600) * float64(time.Second))
}
