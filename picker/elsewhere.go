package picker

import (
	"context"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explained"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Elsewhere knows the other clusters that requests can be sent to. An endpoint of
// another cluster is one with Spec.Cluster set: its gateway, or an engine there. It is in
// no Pool of this cluster. The functions but Ask are all set, and safe for concurrent use.
type Elsewhere struct {
	// Offer is asked once this cluster's endpoints are ranked: it may add candidates
	// (Cycle.Add) and put one of them first in the plan (Cycle.Prefer). refused says why
	// this cluster cannot serve the request, nil when it can; what Offer returns stands
	// in its place.
	Offer func(c *Cycle, refused error) error
	// Would says whether a request that waits here for a place, and is expected to go on
	// for so many seconds, would be offered less elsewhere: then it is worth an Offer.
	Would func(r *request.Request, wait float64, now time.Time) bool
	// Ask may ask the cluster of ep, to which r is about to go with these headers, for a
	// better endpoint there; nil: ep stays. ended, where it is not nil, is called once when
	// the request has ended, with the status of its answer or 0. nil: nobody is asked.
	Ask func(ctx context.Context, r *request.Request, ep *endpoint.Endpoint, headers []HeaderSet, now time.Time) (better *endpoint.Endpoint, ended func(status int))
	// Stayed tells that r is served here.
	Stayed func(r *request.Request)
	// Sent tells that r goes to ep of another cluster.
	Sent func(r *request.Request, ep *endpoint.Endpoint, w endpoint.Work, now time.Time)
	// Ended tells how it ended there.
	Ended func(ep *endpoint.Endpoint, e FarEnd)
}

// FarEnd is how a request ended that was sent to another cluster.
type FarEnd struct {
	Sent, At  time.Time
	Cause     health.Cause  // what speaks against the endpoint; None, Void: nothing
	Full      bool          // it refused the request for want of room
	Complete  bool          // the answer ended normally
	First     time.Duration // to the first token, 0 when that was not seen
	Predicted Prediction    // when it was sent
	Held      int           // tokens of the prompt that were taken to be there
	Cached    int           // that were, as the answer tells; below 0: it tells nothing
}

// FarWhy says why a cluster was not chosen; FarChosen that it was.
type FarWhy uint8

// Reasons, in the order in which they are looked at.
const (
	FarChosen   FarWhy = iota
	FarDearer          // it is a candidate, and costs more
	FarNearly          // it costs less, but by too little to leave
	FarNotNamed        // the route does not name the import
	FarHopped          // the request has come from another cluster already
	FarForbid          // rules of residency do not allow it there
	FarSilent          // its lease is over
	FarDraining        // it withdraws what it exported
	FarOut             // requests failed there a short time ago
	FarModel           // it does not serve the model
	FarEmpty           // nothing is ready there
	FarFull            // it is saturated
	FarSubset          // the proxy does not allow its gateway
	FarKept            // an engine here keeps what the request goes on with
	numFarWhys
)

var farWhys = [numFarWhys]string{
	"chosen", "dearer", "too little to gain", "not named by the route", "came from another cluster", "not allowed there",
	"silent", "draining", "failed of late", "model not served there", "nothing ready there", "saturated", "not in the proxy's subset", "kept by an engine here",
}

// String returns the reason in words.
func (w FarWhy) String() string {
	if w >= numFarWhys {
		return ""
	}
	return farWhys[w]
}

// FarTerms are the terms of one cluster's price, in seconds.
type FarTerms struct {
	Cluster   string
	Gateway   string // where it is reached, "" for an endpoint of its own
	Why       FarWhy
	RoundTrip float64
	Prediction
	Egress float64       // what the way out costs
	Late   float64       // by how much it answered later than predicted of late
	Held   int           // tokens of the prompt that are known to be there
	Age    time.Duration // of what it told
	Here   bool          // these are the terms of this cluster
}

// Price is what a request costs there, in seconds.
func (t *FarTerms) Price() float64 {
	return t.TTFT() + t.Others + t.RoundTrip + t.Egress + t.Late
}

// Add makes an endpoint of another cluster a candidate of which held tokens of the
// prompt are known to be there, and returns its position among all. Filters and scorers
// do not see it.
func (c *Cycle) Add(v View, held int, p Prediction) int32 {
	if !c.matched {
		c.match()
	}
	if !c.hasPred {
		clear(c.predicted)
		c.hasPred = true
	}
	c.endpoints = append(c.endpoints, v.Endpoint)
	c.views = append(c.views, v)
	c.predicted = append(c.predicted[:len(c.endpoints)-1], p)
	h := Held{}
	h.Run.Tokens[block.TierGPU] = int32(held)
	c.held = append(c.held[:len(c.endpoints)-1], h)
	return int32(len(c.endpoints) - 1)
}

// Prefer puts candidate i first in the plan. What the plan says of this cluster's
// endpoints falls away; they stand by where stay is true.
func (c *Cycle) Prefer(i int32, stay bool, headers ...HeaderSet) {
	order := append(c.far.order[:0], i)
	if stay {
		order = append(order, c.plan.Order...)
	}
	c.far.order = order
	c.plan.reset()
	c.plan.Order = append(c.plan.Order, order...)
	c.plan.Headers = append(c.plan.Headers, headers...)
}

// StandBy adds candidate i to the end of the plan.
func (c *Cycle) StandBy(i int32) { c.plan.Order = append(c.plan.Order, i) }

// Best returns the position of the plan's first choice among all candidates, -1 when there is
// none.
func (c *Cycle) Best() int32 {
	if len(c.plan.Order) == 0 {
		return -1
	}
	return c.plan.Order[0]
}

// Kept reports whether the request goes on with what one engine here keeps.
func (c *Cycle) Kept() bool { return c.pinned }

// Consider notes the terms of a cluster, for the record.
func (c *Cycle) Consider(t FarTerms) { c.far.terms = append(c.far.terms, t) }

// Considered returns what Consider noted, until the cycle's end.
func (c *Cycle) Considered() []FarTerms { return c.far.terms }

// QueueWait returns for how many seconds the request is expected to go on waiting for a
// place here; 0 when it has one. No endpoint here has the request while it waits, but one
// may stand by.
func (c *Cycle) QueueWait() float64 { return c.queued }

// farScratch is what a cycle keeps of other clusters.
type farScratch struct {
	terms []FarTerms
	order []int32

	ended func(status int) // tells who was asked for the endpoint; nil: nobody was

	keeper block.EndpointID // farID of the cluster that keeps what the request goes on with, 0: none
}

// farIDs is the first of the numbers by which sessions name clusters.
const farIDs block.EndpointID = 1 << 31

// farID names a cluster among the endpoints of sessions.
func farID(cluster string) block.EndpointID {
	return farIDs | block.EndpointID(xxhash.Sum64String(cluster)&(1<<31-1))
}

// KeptIn reports whether a cluster keeps what the request goes on with, as far as this
// replica has seen.
func (c *Cycle) KeptIn(cluster string) bool {
	return c.far.keeper != 0 && c.far.keeper == farID(cluster)
}

// KeptFar reports whether any cluster does.
func (c *Cycle) KeptFar() bool { return c.far.keeper != 0 }

// far reports whether an endpoint is in another cluster.
func far(ep *endpoint.Endpoint) bool { return ep.Cluster != "" }

// offer lets other clusters make their offers. err says why this one cannot serve.
func (s *Scheduler) offer(c *Cycle, err error) error {
	if s.opts.Elsewhere == nil {
		return err
	}
	return s.opts.Elsewhere.Offer(c, err)
}

// askFar has the other cluster's picker choose the endpoint there, where it may be asked.
func (s *Scheduler) askFar(ctx context.Context, c *Cycle) {
	i := c.plan.Order[0]
	if ep := c.endpoints[i]; far(ep) && s.opts.Elsewhere.Ask != nil {
		var better *endpoint.Endpoint
		if better, c.far.ended = s.opts.Elsewhere.Ask(ctx, c.Request, ep, c.plan.Headers, c.Now); better != nil {
			c.endpoints[i], c.views[i].Endpoint = better, better
		}
	}
}

// endAsked tells the picker that was asked in another cluster, once, how its endpoint has
// answered; 0: it has not, or not to the end.
func (f *flight) endAsked(status int) {
	if f.ended != nil {
		f.ended(status)
		f.ended = nil
	}
}

// sentFar tells that the request goes to another cluster.
func (f *flight) sentFar(now time.Time) {
	f.learns = lessons{}
	f.s.opts.Elsewhere.Sent(f.request, f.ep, f.queued.Own, now)
}

// endFar tells how the request ended in another cluster.
func (f *flight) endFar(now time.Time, cause health.Cause, full, complete bool) {
	e := FarEnd{
		Sent: f.queued.At, At: now, Cause: cause, Full: full, Complete: complete, Predicted: f.predicted,
		Held: int(f.held.Run.Tokens[block.TierGPU]), Cached: -1,
	}
	if u := &f.vitals.usage; u.CachedSeen {
		e.Cached = u.CachedTokens
	}
	if f.request.Stream && !f.firstAt.IsZero() {
		e.First = f.firstAt.Sub(f.queued.At)
	}
	f.s.opts.Elsewhere.Ended(f.ep, e)
}

func explainClusters(terms []FarTerms) (out []explained.Cluster) {
	for i := range terms {
		t := &terms[i]
		out = append(out, explained.Cluster{
			Cluster: t.Cluster, Gateway: t.Gateway, Result: t.Why.String(), Price: millis(t.Price()), RoundTrip: millis(t.RoundTrip),
			Egress: millis(t.Egress), Late: millis(t.Late), Held: t.Held, Age: millis(t.Age.Seconds()), Predicted: explainTime(t.Prediction),
		})
		if t.Here {
			out[len(out)-1].Result = "here"
		}
	}
	return out
}
