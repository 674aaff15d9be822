package cycle

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// RemoteReason says why a cluster was not chosen; FarChosen that it was.
type RemoteReason uint8

// Reasons, in the order in which they are looked at.
const (
	FarChosen   RemoteReason = iota
	FarDearer                // it is a candidate, and costs more
	FarNearly                // it costs less, but by too little to leave
	FarNotNamed              // the route does not name the import
	FarHopped                // the request has come from another cluster already
	FarForbid                // rules of residency do not allow it there
	FarSilent                // its lease is over
	FarDraining              // it withdraws what it exported
	FarOut                   // requests failed there a short time ago
	FarModel                 // it does not serve the model
	FarEmpty                 // nothing is ready there
	FarFull                  // it is saturated
	FarSubset                // the proxy does not allow its gateway
	FarKept                  // an engine here keeps what the request goes on with
	numFarWhys
)

var farWhys = [numFarWhys]string{
	"chosen", "dearer", "too little to gain", "not named by the route", "came from another cluster", "not allowed there",
	"silent", "draining", "failed of late", "model not served there", "nothing ready there", "saturated", "not in the proxy's subset", "kept by an engine here",
}

// String returns the reason in words.
func (w RemoteReason) String() string {
	if w >= numFarWhys {
		return ""
	}
	return farWhys[w]
}

// RemoteTerms are the terms of one cluster's price, in seconds.
type RemoteTerms struct {
	Cluster   string
	Gateway   string // where it is reached, "" for an endpoint of its own
	Reason    RemoteReason
	RoundTrip float64
	Prediction
	Egress float64       // what the way out costs
	Late   float64       // by how much it answered later than predicted of late
	Held   int           // tokens of the prompt that are known to be there
	Age    time.Duration // of what it told
	Here   bool          // these are the terms of this cluster
}

// Price is what a request costs there, in seconds.
func (t *RemoteTerms) Price() float64 {
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
	h := PrefixMatch{}
	h.Run.Tokens[block.TierGPU] = int32(held)
	c.held = append(c.held[:len(c.endpoints)-1], h)
	return int32(len(c.endpoints) - 1)
}

// Prefer puts candidate i first in the plan. What the plan says of this cluster's
// endpoints falls away; they stand by where stay is true.
func (c *Cycle) Prefer(i int32, stay bool, headers ...request.HeaderSet) {
	order := append(c.far.order[:0], i)
	if stay {
		order = append(order, c.plan.Order...)
	}
	c.far.order = order
	c.plan.reset()
	c.plan.Order = append(c.plan.Order, order...)
	c.plan.Headers = append(c.plan.Headers, headers...)
}

// AddFallback adds candidate i to the end of the plan.
func (c *Cycle) AddFallback(i int32) { c.plan.Order = append(c.plan.Order, i) }

// Best returns the position of the plan's first choice among all candidates, -1 when there is
// none.
func (c *Cycle) Best() int32 {
	if len(c.plan.Order) == 0 {
		return -1
	}
	return c.plan.Order[0]
}

// Pinned reports whether the request goes on with what one engine here keeps.
func (c *Cycle) Pinned() bool { return c.pinned }

// Consider notes the terms of a cluster, for the record.
func (c *Cycle) Consider(t RemoteTerms) { c.far.terms = append(c.far.terms, t) }

// Considered returns what Consider noted, until the cycle's end.
func (c *Cycle) Considered() []RemoteTerms { return c.far.terms }

// QueueWait returns for how many seconds the request is expected to go on waiting for a
// place here; 0 when it has one. No endpoint here has the request while it waits, but one
// may stand by.
func (c *Cycle) QueueWait() float64 { return c.queued }

// farScratch is what a cycle keeps of other clusters.
type farScratch struct {
	terms []RemoteTerms
	order []int32

	keeper block.EndpointID // sessions.Cluster of the cluster that keeps what the request goes on with, 0: none
}

// PinnedTo reports whether a cluster keeps what the request goes on with, as far as this
// replica has seen.
func (c *Cycle) PinnedTo(cluster string) bool {
	return c.far.keeper != 0 && c.far.keeper == sessions.Cluster(cluster)
}

// PinnedRemote reports whether any cluster does.
func (c *Cycle) PinnedRemote() bool { return c.far.keeper != 0 }
