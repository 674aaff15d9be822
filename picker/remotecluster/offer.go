package remotecluster

import (
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Offer makes the offers of other clusters: picker.RemoteClusters.Offer.
func (f *Fleet) Offer(c *cycle.Cycle, refused error) error {
	t := f.table.Load()
	r := c.Request
	home := place{f.o.Self, f.o.Region}
	stays := f.o.Rules.allow(r.Objective, r.Clusters, home)
	hopped := f.hopped(r, c.Now)
	if len(t.sides) == 0 && stays || refused != nil && !lendable(refused) {
		return refused
	}
	sc := f.scratch.Get().(*scratch)
	defer f.scratch.Put(sc)
	ask := f.ask(t, r, sc, Ask{Answer: c.Answer(), Hopped: hopped}, c.Now)
	f.quotes(t, c, sc, &ask)
	var here *cycle.RemoteTerms
	if best := c.Best(); best >= 0 && refused == nil {
		terms := f.here(c, best, ask.Answer)
		if stays {
			here = &terms
		} else {
			terms.Reason = cycle.FarForbid
		}
		c.Consider(terms)
	}
	i := f.pick(t, c, sc, here)
	for k := range sc.quotes {
		c.Consider(sc.quotes[k])
	}
	switch {
	case i >= 0:
		f.prefer(c, t.sides[i], &sc.quotes[i], here != nil)
		if here == nil {
			f.standBy(c, t, sc)
		}
		return nil
	case !stays:
		return request.Errorf(request.ReasonNoEndpoints, "no cluster in which this request may be served can take it")
	}
	return refused
}

// lendable reports whether another cluster could serve what this one refuses: for want of
// room, engines or the model, not for what the request is.
func lendable(refused error) bool {
	switch request.ReasonOf(refused) {
	case request.ReasonNoEndpoints, request.ReasonModelNotFound, request.ReasonSaturated:
		return true
	}
	return false
}

// ServedLocally notes that a request is served here, for what this cluster exports:
// picker.RemoteClusters.Stayed.
func (f *Fleet) ServedLocally(r *request.Request) {
	t := f.table.Load()
	if f.o.Stays == nil || t.view.Secret == nil || r.CacheSalt != "" {
		return
	}
	sc := f.scratch.Get().(*scratch)
	defer f.scratch.Put(sc)
	for _, s := range [...]*filter.Secret{t.view.Secret, t.view.Also} {
		if s == nil {
			continue
		}
		if sc.keys = s.Chain(r.Target, r.Chunks.Bytes, sc.keys[:0]); len(sc.keys) > 0 {
			f.o.Stays(s, sc.keys)
		}
	}
}

// WouldTake says whether a request that waits here for a place, and is expected to go on for so
// many seconds, would be offered less in another cluster: picker.RemoteClusters.Would. What it
// would take here beyond the wait is not counted, so it may say no where Offer would not.
func (f *Fleet) WouldTake(r *request.Request, wait float64, now time.Time) bool {
	t := f.table.Load()
	if len(t.sides) == 0 || r.Headers != nil && r.Headers.Get(request.HeaderHop) != "" {
		return false
	}
	sc := f.scratch.Get().(*scratch)
	defer f.scratch.Put(sc)
	if !f.o.Rules.allow(r.Objective, r.Clusters, place{f.o.Self, f.o.Region}) {
		wait = math.MaxInt32 // it may not be served here
	}
	ask := f.ask(t, r, sc, Ask{Answer: min(float64(max(r.MaxTokens, 0)), nominalAnswer)}, now)
	sc.quotes, sc.open = sc.quotes[:0], sc.open[:0]
	for _, s := range t.sides {
		sc.quotes = append(sc.quotes, f.quote(s, &ask, now))
		sc.open = append(sc.open, s.state(now, s.ReceivedAt, f.o.Margin.Hold).open)
	}
	here := &cycle.RemoteTerms{Cluster: f.o.Self, Here: true, Prediction: cycle.Prediction{Wait: wait}}
	return f.cheapest(here, sc.quotes, sc.open, 0) >= 0
}

// ask fills what prices depend on, of which a has Answer and Hopped. Keys are computed once some cluster could be a
// candidate.
func (f *Fleet) ask(t *table, r *request.Request, sc *scratch, a Ask, now time.Time) Ask {
	a.Model, a.Input, a.Bytes = r.Target, r.InputTokens, len(r.Chunks.Bytes)
	a.Objective, a.Clusters, a.Named = r.Objective, r.Clusters, f.named(t, r)
	able := slices.ContainsFunc(t.sides, func(s *side) bool { return f.why(s, &a, now) == cycle.FarDearer })
	if able && t.view.Secret != nil && r.CacheSalt == "" && !r.SkipsCache() {
		sc.keys = t.view.Secret.Chain(r.Target, r.Chunks.Bytes, sc.keys[:0])
		a.Keys = sc.keys
		if t.view.Also != nil {
			sc.also = t.view.Also.Chain(r.Target, r.Chunks.Bytes, sc.also[:0])
			a.Also = sc.also
		}
	}
	return a
}

// named reports whether other clusters are asked about the request at all.
func (f *Fleet) named(t *table, r *request.Request) bool {
	switch f.o.Use {
	case UseAlways:
		return true
	case UseNever:
		return false
	}
	if r.Import != "" {
		return r.Import == f.o.Pool.String() || f.o.Pool.Namespace == "" && r.Import == f.o.Pool.Name
	}
	if !r.HasSubset {
		return false
	}
	for _, s := range t.sides { // the proxy names a gateway: it knows of the import
		if slices.ContainsFunc(s.gateways, func(ep *endpoint.Endpoint) bool { return slices.Contains(r.Subset, ep.Address) }) {
			return true
		}
	}
	return false
}

// hopped reports whether the request has come from another cluster. A token that cannot be
// read is one: nobody but the sender loses by it, and no circle is ever made.
func (f *Fleet) hopped(r *request.Request, now time.Time) bool {
	if r.Headers == nil {
		return false
	}
	token := r.Headers.Get(request.HeaderHop)
	if token == "" {
		return false
	}
	if f.o.Hops != nil {
		if _, err := f.o.Hops.Verify(token, now); err != nil {
			f.counts.badHops.Add(1)
			return true
		}
	}
	f.counts.hopped.Add(1)
	return true
}

// quotes prices every cluster.
func (f *Fleet) quotes(t *table, c *cycle.Cycle, sc *scratch, a *Ask) {
	sc.quotes, sc.open = sc.quotes[:0], sc.open[:0]
	for _, s := range t.sides {
		q := f.quote(s, a, c.Now)
		switch q.Reason {
		case cycle.FarDearer, cycle.FarOut, cycle.FarFull:
			if why := f.reaches(c, s, &q); why != cycle.FarDearer {
				q.Reason = why
			}
		}
		sc.quotes = append(sc.quotes, q)
		sc.open = append(sc.open, s.state(c.Now, s.ReceivedAt, f.o.Margin.Hold).open)
	}
}

// reaches looks for the address that the request would go to.
func (f *Fleet) reaches(c *cycle.Cycle, s *side, q *cycle.RemoteTerms) cycle.RemoteReason {
	if c.Pinned() || c.PinnedRemote() && !c.PinnedTo(s.Cluster) {
		return cycle.FarKept
	}
	ep := f.address(c, s)
	switch {
	case ep == nil && len(s.gateways)+len(s.direct) == 0:
		return cycle.FarEmpty
	case ep == nil:
		return cycle.FarSubset
	}
	q.Gateway = ep.Address
	return cycle.FarDearer
}

// address returns where a request to the cluster goes: the better of two endpoints drawn
// by lot, or one of its gateways; nil when the proxy allows none.
func (f *Fleet) address(c *cycle.Cycle, s *side) *endpoint.Endpoint {
	list := s.gateways
	if len(s.direct) > 0 {
		list = s.direct
	}
	if len(list) == 0 {
		return nil
	}
	now := c.Now.UnixNano()
	var best *endpoint.Endpoint
	var least int64
	for range 2 {
		from := c.IntN(len(list))
		for k := range list {
			ep := list[(from+k)%len(list)]
			if c.Request.HasSubset && !slices.Contains(c.Request.Subset, ep.Address) {
				continue
			}
			var l endpoint.Load
			ep.AddLoad(&l, now)
			if best == nil || l.Requests < least {
				best, least = ep, l.Requests
			}
			break
		}
	}
	return best
}

// here prices the best endpoint of this cluster as those elsewhere are.
func (f *Fleet) here(c *cycle.Cycle, best int32, answer float64) cycle.RemoteTerms {
	v, w := c.All(best).Rank(), c.WorkAt(best)
	l := v.Load
	l.Rate, l.Busy = 0, 0 // nobody tells them of other clusters
	p := f.o.Params.Predict(v.Cost, &l, w, v.Wait(c.Now, float64(w.New), answer), answer)
	p.Wait += c.QueueWait()
	return cycle.RemoteTerms{Cluster: f.o.Self, Here: true, Prediction: p, Held: w.Input - w.New}
}

// pick returns the cluster that has the request, -1 when it stays.
func (f *Fleet) pick(t *table, c *cycle.Cycle, sc *scratch, here *cycle.RemoteTerms) int {
	for k, s := range t.sides { // what goes on with something goes where that is
		if c.PinnedTo(s.Cluster) && sc.quotes[k].Reason == cycle.FarDearer {
			sc.quotes[k].Reason = cycle.FarChosen
			return k
		}
	}
	return f.cheapest(here, sc.quotes, sc.open, c.Uint64())
}

// standBy names the next cluster, where no endpoint of this one can stand by. The token is
// not for it, and it keeps the request as one that has come from elsewhere.
func (f *Fleet) standBy(c *cycle.Cycle, t *table, sc *scratch) {
	next := -1
	for i := range sc.quotes {
		if q := &sc.quotes[i]; q.Reason == cycle.FarDearer && (next < 0 || q.Price() < sc.quotes[next].Price()) {
			next = i
		}
	}
	if next < 0 {
		next = lastResort(sc.quotes)
	}
	if next >= 0 {
		c.AddFallback(f.add(c, t.sides[next], &sc.quotes[next]))
	}
}

// prefer sends the request to a cluster. This one's endpoints stand by where it may stay.
func (f *Fleet) prefer(c *cycle.Cycle, s *side, q *cycle.RemoteTerms, stay bool) {
	token := unsigned
	if f.o.Hops != nil {
		token = f.o.Hops.Sign(s.Cluster, 1, c.Now)
	}
	c.Prefer(f.add(c, s, q), stay, request.HeaderSet{Name: request.HeaderHop, Value: token})
}

// unsigned is the token of a federation without a secret: any token ends the way.
const unsigned = "unsigned"

// add makes the address of a quote a candidate.
func (f *Fleet) add(c *cycle.Cycle, s *side, q *cycle.RemoteTerms) int32 {
	var ep *endpoint.Endpoint
	for _, list := range [][]*endpoint.Endpoint{s.direct, s.gateways} {
		for _, e := range list {
			if e.Address == q.Gateway {
				ep = e
			}
		}
	}
	v := cycle.View{Endpoint: ep, Cost: &s.cost}
	p := q.Prediction
	p.Base += q.RoundTrip + q.Late
	return c.Add(v, q.Held, p)
}
