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

// Offer offers a request to remote clusters: picker.RemoteClusters.Offer.
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
			terms.Reason = cycle.RemoteForbidden
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

// lendable reports whether a remote cluster could serve a request refused here: for lack of
// capacity, engines or the model, but not because of the request's content.
func lendable(refused error) bool {
	switch request.ReasonOf(refused) {
	case request.ReasonNoEndpoints, request.ReasonModelNotFound, request.ReasonSaturated:
		return true
	}
	return false
}

// ServedLocally records that a request is served here, for this cluster's exports:
// picker.RemoteClusters.ServedLocally.
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

// WouldTake reports whether a waiting request with that predicted wait in seconds would be cheaper
// in a remote cluster: picker.RemoteClusters.WouldTake. The local cost beyond the wait is ignored,
// so it may return false when Offer would move the request.
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

// ask fills in the inputs of prices; a already has Answer and Hopped. Keys are computed only if
// some cluster could be a candidate.
func (f *Fleet) ask(t *table, r *request.Request, sc *scratch, a Ask, now time.Time) Ask {
	a.Model, a.Input, a.Bytes = r.Target, r.InputTokens, len(r.Chunks.Bytes)
	a.Objective, a.Clusters, a.Named = r.Objective, r.Clusters, f.named(t, r)
	able := slices.ContainsFunc(t.sides, func(s *side) bool { return f.why(s, &a, now) == cycle.RemoteCostlier })
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

// named reports whether remote clusters are considered for the request at all.
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
	for _, s := range t.sides { // the proxy names a gateway, so it has the import
		if slices.ContainsFunc(s.gateways, func(ep *endpoint.Endpoint) bool { return slices.Contains(r.Subset, ep.Address) }) {
			return true
		}
	}
	return false
}

// hopped reports whether another cluster forwarded the request. An invalid token counts as
// forwarded: that only harms the sender and never creates a loop.
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
		case cycle.RemoteCostlier, cycle.RemoteFailing, cycle.RemoteSaturated, cycle.RemoteProbing:
			if why := f.reaches(c, s, &q); why != cycle.RemoteCostlier {
				q.Reason = why
			}
		}
		sc.quotes = append(sc.quotes, q)
		sc.open = append(sc.open, s.state(c.Now, s.ReceivedAt, f.o.Margin.Hold).open)
	}
}

// reaches finds the destination address for the request.
func (f *Fleet) reaches(c *cycle.Cycle, s *side, q *cycle.RemoteTerms) cycle.RemoteReason {
	if c.Pinned() || c.PinnedRemote() && !c.PinnedTo(s.Cluster) {
		return cycle.RemoteStoredHere
	}
	ep := f.address(c, s)
	switch {
	case ep == nil && len(s.gateways)+len(s.direct) == 0:
		return cycle.RemoteEmpty
	case ep == nil:
		return cycle.RemoteOutsideSubset
	}
	q.Gateway = ep.Address
	return cycle.RemoteCostlier
}

// address returns the destination in the cluster: the better of two random endpoints, or a gateway;
// nil if the proxy allows none.
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

// here prices this cluster's best endpoint like remote ones.
func (f *Fleet) here(c *cycle.Cycle, best int32, answer float64) cycle.RemoteTerms {
	v, w := c.All(best).Rank(), c.WorkAt(best)
	l := v.Load
	l.Rate, l.Busy = 0, 0 // remote clusters do not announce these
	p := f.o.Params.Predict(v.Cost, &l, w, v.Wait(c.Now, float64(w.New), answer), answer)
	p.Wait += c.QueueWait()
	return cycle.RemoteTerms{Cluster: f.o.Self, Here: true, Prediction: p, Held: w.Input - w.New}
}

// pick returns the cluster for the request, or -1 if it stays.
func (f *Fleet) pick(t *table, c *cycle.Cycle, sc *scratch, here *cycle.RemoteTerms) int {
	for k, s := range t.sides { // continuations go where their state is
		if c.PinnedTo(s.Cluster) && sc.quotes[k].Reason == cycle.RemoteCostlier {
			sc.quotes[k].Reason = cycle.RemoteChosen
			return k
		}
	}
	return f.cheapest(here, sc.quotes, sc.open, c.Uint64())
}

// standBy adds the next cluster as a fallback if no local endpoint can be one. The token is not for
// that cluster, which therefore treats the request as forwarded and keeps it.
func (f *Fleet) standBy(c *cycle.Cycle, t *table, sc *scratch) {
	next := -1
	for i := range sc.quotes {
		if q := &sc.quotes[i]; q.Reason == cycle.RemoteCostlier && (next < 0 || q.Price() < sc.quotes[next].Price()) {
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

// prefer sends the request to a cluster. Local endpoints are the fallback if it may be served here.
func (f *Fleet) prefer(c *cycle.Cycle, s *side, q *cycle.RemoteTerms, stay bool) {
	token := unsigned
	if f.o.Hops != nil {
		token = f.o.Hops.Sign(s.Cluster, 1, c.Now)
	}
	hop := request.HeaderSet{Name: request.HeaderHop, Value: token}
	c.SetQuestionHeaders(hop)
	if slices.ContainsFunc(s.direct, func(e *endpoint.Endpoint) bool { return e.Address == q.Gateway }) {
		c.Prefer(f.add(c, s, q), stay) // an engine has no picker in front that would remove the token
		return
	}
	c.Prefer(f.add(c, s, q), stay, hop)
}

// unsigned is the token in a federation without a secret: any token prevents forwarding.
const unsigned = "unsigned"

// add makes the quote's address a candidate.
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
