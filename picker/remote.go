package picker

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// RemoteClusters knows the other clusters that requests can be sent to. An endpoint of
// another cluster is one with Spec.Cluster set: its gateway, or an engine there. It is in
// no Pool of this cluster. The functions but ResolveEndpoint are all set, and safe for concurrent use.
type RemoteClusters struct {
	// Offer is asked once this cluster's endpoints are ranked: it may add candidates
	// (Cycle.Add) and put one of them first in the plan (Cycle.Prefer). refused says why
	// this cluster cannot serve the request, nil when it can; what Offer returns stands
	// in its place.
	Offer func(c *cycle.Cycle, refused error) error
	// WouldTake says whether a request that waits here for a place, and is expected to go on
	// for so many seconds, would be offered less elsewhere: then it is worth an Offer.
	WouldTake func(r *request.Request, wait float64, now time.Time) bool
	// ResolveEndpoint may ask the cluster of ep, to which r is about to go with these headers, for a
	// better endpoint there; nil: ep stays. ended, where it is not nil, is called once when
	// the request has ended, with the status of its answer or 0. nil: nobody is asked.
	ResolveEndpoint func(ctx context.Context, r *request.Request, ep *endpoint.Endpoint, headers []request.HeaderSet, now time.Time) (better *endpoint.Endpoint, ended func(status int))
	// ServedLocally tells that r is served here.
	ServedLocally func(r *request.Request)
	// Sent tells that r goes to ep of another cluster.
	Sent func(r *request.Request, ep *endpoint.Endpoint, w endpoint.Work, now time.Time)
	// Ended tells how it ended there.
	Ended func(ep *endpoint.Endpoint, e RemoteOutcome)
}

// RemoteOutcome is how a request ended that was sent to another cluster.
type RemoteOutcome struct {
	Sent, At  time.Time
	Cause     health.Cause     // what speaks against the endpoint; None, Void: nothing
	Full      bool             // it refused the request for want of room
	Complete  bool             // the answer ended normally
	First     time.Duration    // to the first token, 0 when that was not seen
	Predicted cycle.Prediction // when it was sent
	Held      int              // tokens of the prompt that were taken to be there
	Cached    int              // that were, as the answer tells; below 0: it tells nothing
}

// offer lets other clusters make their offers. err says why this one cannot serve.
func (s *Scheduler) offer(c *cycle.Cycle, err error) error {
	if s.opts.RemoteClusters == nil {
		return err
	}
	return s.opts.RemoteClusters.Offer(c, err)
}

// askFar has the other cluster's picker choose the endpoint there, where it may be asked.
// ended is as RemoteClusters.Ask returns it.
func (s *Scheduler) askFar(ctx context.Context, c *cycle.Cycle) (ended func(status int)) {
	if ep := c.First().Endpoint; ep.IsRemote() && s.opts.RemoteClusters.ResolveEndpoint != nil {
		var better *endpoint.Endpoint
		if better, ended = s.opts.RemoteClusters.ResolveEndpoint(ctx, c.Request, ep, c.Plan().Headers, c.Now); better != nil {
			c.Replace(c.Best(), better)
		}
	}
	return ended
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
	f.s.opts.RemoteClusters.Sent(f.request, f.ep, f.queued.Own, now)
}

// endFar tells how the request ended in another cluster.
func (f *flight) endFar(now time.Time, cause health.Cause, full, complete bool) {
	e := RemoteOutcome{
		Sent: f.queued.At, At: now, Cause: cause, Full: full, Complete: complete, Predicted: f.predicted,
		Held: int(f.held.Run.Tokens[block.TierGPU]), Cached: -1,
	}
	if u := &f.vitals.usage; u.CachedSeen {
		e.Cached = u.CachedTokens
	}
	if f.request.Stream && !f.firstAt.IsZero() {
		e.First = f.firstAt.Sub(f.queued.At)
	}
	f.s.opts.RemoteClusters.Ended(f.ep, e)
}

func explainClusters(terms []cycle.RemoteTerms) (out []explanation.Cluster) {
	for i := range terms {
		t := &terms[i]
		out = append(out, explanation.Cluster{
			Cluster: t.Cluster, Gateway: t.Gateway, Result: t.Reason.String(), Price: millis(t.Price()), RoundTrip: millis(t.RoundTrip),
			Egress: millis(t.Egress), Late: millis(t.Late), Held: t.Held, Age: millis(t.Age.Seconds()), Predicted: explainTime(t.Prediction),
		})
		if t.Here {
			out[len(out)-1].Result = "here"
		}
	}
	return out
}
