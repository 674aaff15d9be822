package cycle

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// RemoteReason is why a cluster was not chosen, or RemoteChosen.
type RemoteReason uint8

// Reasons, in the order of evaluation.
const (
	RemoteChosen        RemoteReason = iota
	RemoteCostlier                   // a candidate with a higher cost
	RemoteGainTooSmall               // cheaper, but not by enough
	RemoteNotNamed                   // the route does not name the import
	RemoteForwarded                  // another cluster has already forwarded the request
	RemoteForbidden                  // residency rules forbid it
	RemoteLeaseExpired               // its lease has expired
	RemoteDraining                   // it is withdrawing its export
	RemoteFailing                    // requests failed there recently
	RemoteModelMissing               // it does not serve the model
	RemoteEmpty                      // it has no ready endpoint
	RemoteSaturated                  // it is saturated
	RemoteProbing                    // it answered late, and the one request that checks it has not ended
	RemoteOutsideSubset              // the proxy does not allow its gateway
	RemoteStoredHere                 // an engine in this cluster stores the conversation
	numRemoteReasons
)

var remoteReasons = [numRemoteReasons]string{
	"chosen", "dearer", "too little to gain", "not named by the route", "came from another cluster", "not allowed there",
	"silent", "draining", "failed of late", "model not served there", "nothing ready there", "saturated", "late, being checked", "not in the proxy's subset", "kept by an engine here",
}

// String returns the reason in words.
func (w RemoteReason) String() string {
	if w >= numRemoteReasons {
		return ""
	}
	return remoteReasons[w]
}

// RemoteTerms are the cost terms of one cluster, in seconds.
type RemoteTerms struct {
	Cluster   string
	Gateway   string // its address, "" for a local endpoint
	Reason    RemoteReason
	RoundTrip float64
	Prediction
	Egress float64       // cost of egress
	Late   float64       // recent excess over predicted times
	Held   int           // prompt tokens known to be cached there
	Age    time.Duration // of its last report
	Here   bool          // terms of this cluster
}

// Price returns the total cost of a request there, in seconds.
func (t *RemoteTerms) Price() float64 {
	return t.TTFT() + t.Others + t.RoundTrip + t.Egress + t.Late
}

// Add makes a remote endpoint a candidate and returns its position among all. held is the number of
// prompt tokens known to be cached there. Filters and scorers do not see it.
func (c *Cycle) Add(v View, held int, p Prediction) int32 {
	if !c.matched {
		c.match()
	}
	c.hasPred = true
	c.endpoints = append(c.endpoints, v.Endpoint)
	c.views = append(c.views, c.addView(v))
	c.predicted = append(c.predicted[:len(c.endpoints)-1], p)
	c.predictOf = append(c.predictOf[:len(c.endpoints)-1], c.decision)
	h := PrefixMatch{}
	h.Run.Tokens[block.TierGPU] = int32(held)
	c.held = append(c.held[:len(c.endpoints)-1], h)
	return int32(len(c.endpoints) - 1)
}

// addView stores a view that is not of this pool.
func (c *Cycle) addView(v View) *storedView {
	if c.remotes == len(c.remote) {
		c.remote = append(c.remote, new(storedView))
	}
	at := c.remote[c.remotes]
	c.remotes++
	at.View, at.turn = v, c.fleet.turn
	return at
}

// Prefer puts candidate i first in the plan and clears the other entries. If stay is true, the
// endpoints of this cluster remain as fallbacks.
func (c *Cycle) Prefer(i int32, stay bool, headers ...request.HeaderSet) {
	order := append(c.remoteState.order[:0], i)
	if stay {
		order = append(order, c.plan.Order...)
	}
	c.remoteState.order = order
	c.plan.reset()
	c.plan.Order = append(c.plan.Order, order...)
	c.plan.Headers = append(c.plan.Headers, headers...)
}

// SetQuestionHeaders sets the headers for a question to the picker of a remote cluster. They are not
// sent with the request.
func (c *Cycle) SetQuestionHeaders(headers ...request.HeaderSet) {
	c.remoteState.question = append(c.remoteState.question[:0], headers...)
}

// QuestionHeaders returns the headers for a question to the picker of a remote cluster.
func (c *Cycle) QuestionHeaders() []request.HeaderSet { return c.remoteState.question }

// SetHopHeaders adds the question's headers to the request, or removes them.
func (c *Cycle) SetHopHeaders(send bool) {
	c.plan.Headers = slices.DeleteFunc(c.plan.Headers, func(h request.HeaderSet) bool {
		return slices.ContainsFunc(c.remoteState.question, func(q request.HeaderSet) bool { return q.Name == h.Name })
	})
	if send {
		c.plan.Headers = append(c.plan.Headers, c.remoteState.question...)
	}
}

// AddFallback appends candidate i to the plan.
func (c *Cycle) AddFallback(i int32) { c.plan.Order = append(c.plan.Order, i) }

// Best returns the position of the plan's first choice among all candidates, or -1.
func (c *Cycle) Best() int32 {
	if len(c.plan.Order) == 0 {
		return -1
	}
	return c.plan.Order[0]
}

// Pinned reports whether the request continues a conversation stored by one engine of this cluster.
func (c *Cycle) Pinned() bool { return c.pinned }

// Consider records the terms of a cluster.
func (c *Cycle) Consider(t RemoteTerms) { c.remoteState.terms = append(c.remoteState.terms, t) }

// Considered returns the recorded terms, valid until the cycle's end.
func (c *Cycle) Considered() []RemoteTerms { return c.remoteState.terms }

// QueueWait returns the expected further wait for a permit in this cluster in seconds, 0 if the
// request has one. While it waits, no local endpoint has the request, but one may be a fallback.
func (c *Cycle) QueueWait() float64 { return c.queued }

// remoteScratch is a cycle's state for remote clusters.
type remoteScratch struct {
	terms    []RemoteTerms
	order    []int32
	question []request.HeaderSet

	storedIn block.EndpointID // sessions.Cluster of the cluster that stores the conversation, 0: none
}

// PinnedTo reports whether the given cluster stores the conversation, as far as this replica has
// observed.
func (c *Cycle) PinnedTo(cluster string) bool {
	return c.remoteState.storedIn != 0 && c.remoteState.storedIn == sessions.Cluster(cluster)
}

// PinnedRemote reports whether any remote cluster stores the conversation.
func (c *Cycle) PinnedRemote() bool { return c.remoteState.storedIn != 0 }
