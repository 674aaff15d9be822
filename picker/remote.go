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

// RemoteClusters connects the scheduler to remote clusters. A remote endpoint has Spec.Cluster set:
// it is the cluster's gateway or an engine there, and is in no Pool of this cluster. It is safe for
// concurrent use.
type RemoteClusters interface {
	// Offer is called after this cluster's endpoints are ranked. It may add candidates (Cycle.Add)
	// and put one first in the plan (Cycle.Prefer). refused is the reason why this cluster cannot
	// serve the request, nil if it can. The returned error replaces it.
	Offer(c *cycle.Cycle, refused error) error
	// WouldTake reports whether a remote cluster may be cheaper for a request that waits here for a
	// permit and is expected to wait that many more seconds. Only then Offer is called.
	WouldTake(r *request.Request, wait float64, now time.Time) bool
	// ResolveEndpoint may ask the cluster of ep, to which r is about to be sent, for a better endpoint
	// there; nil keeps ep. headers are for the question only. If ended is not nil, better is an
	// engine, and ended is called once at the end of the request with the response status or 0.
	ResolveEndpoint(ctx context.Context, r *request.Request, ep *endpoint.Endpoint, headers []request.HeaderSet, now time.Time) (better *endpoint.Endpoint, ended func(status int))
	// ServedLocally reports that r is served in this cluster.
	ServedLocally(r *request.Request)
	// Sent reports that r is sent to ep of a remote cluster.
	Sent(r *request.Request, ep *endpoint.Endpoint, w endpoint.Work, now time.Time)
	// Ended reports the end of a request at a remote endpoint.
	Ended(ep *endpoint.Endpoint, e RemoteOutcome)
}

// RemoteOutcome is the result of a request sent to a remote cluster.
type RemoteOutcome struct {
	Sent, At  time.Time
	Cause     health.Cause     // evidence against the endpoint; None, Void: no evidence
	Full      bool             // the endpoint rejected the request for lack of capacity
	Complete  bool             // the answer ended normally
	First     time.Duration    // time to first token, 0 if not observed
	Predicted cycle.Prediction // at the time of sending
	Decode    float64          // predicted seconds from the first token to the end
	Held      int              // prompt tokens expected to be cached there
	Cached    int              // prompt tokens reported as cached; below 0: not reported
}

// remoteMayTake reports whether a remote cluster may be cheaper for a request that is expected to
// wait that many more seconds here.
func (s *Scheduler) remoteMayTake(r *request.Request, wait float64) bool {
	return s.opts.RemoteClusters != nil && s.opts.RemoteClusters.WouldTake(r, wait, s.opts.Now())
}

// offerRemote lets remote clusters compete for the request. err is the reason why this cluster
// cannot serve it.
func (s *Scheduler) offerRemote(p prepared, err error) error {
	if s.opts.RemoteClusters == nil {
		return err
	}
	return s.opts.RemoteClusters.Offer(p.cycle, err)
}

// resolveRemote lets the remote cluster's picker choose the endpoint there, if the plan is remote and
// the cluster allows it. ended is the result of RemoteClusters.ResolveEndpoint.
func (s *Scheduler) resolveRemote(ctx context.Context, p prepared) (ended func(status int)) {
	c, ep := p.cycle, p.cycle.First().Endpoint
	if !ep.IsRemote() {
		return nil
	}
	better, ended := s.opts.RemoteClusters.ResolveEndpoint(ctx, p.request, ep, c.QuestionHeaders(), c.Now)
	if better != nil {
		c.Replace(c.Best(), better)
		c.SetHopHeaders(ended == nil) // an engine has no picker in front that would remove them
	}
	return ended
}

// reportRemoteEnd reports the response status to the remote cluster's picker, once. 0 means no response or
// an incomplete one.
func (f *flight) reportRemoteEnd(status int) {
	if f.remoteEnded != nil {
		f.remoteEnded(status)
		f.remoteEnded = nil
	}
}

// sentRemote reports that the request is sent to a remote cluster.
func (f *flight) sentRemote(now time.Time) {
	f.learn = learnable{}
	f.s.opts.RemoteClusters.Sent(f.request, f.ep, f.queued.Own, now)
}

// endedRemote reports the request's end in a remote cluster.
func (f *flight) endedRemote(now time.Time, cause health.Cause, full, complete bool) {
	e := RemoteOutcome{
		Sent: f.queued.At, At: now, Cause: cause, Full: full, Complete: complete, Predicted: f.predicted,
		Held: int(f.held.Run.Tokens[block.TierGPU]), Cached: -1, Decode: f.predictedDecode(),
	}
	if u := &f.evidence.usage; u.CachedSeen {
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
