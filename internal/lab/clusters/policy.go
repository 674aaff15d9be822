package clusters

import (
	"math"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
)

// Policy chooses the cluster of a request.
type Policy string

// Policies.
const (
	Alone   Policy = "no import"    // every request stays at home
	Weights Policy = "weights only" // a fixed share of requests stays at home; the rest is spread evenly, as routes with weights do
	Least   Policy = "load only"    // to the cluster that reports the least load
	Price   Policy = "price"        // the product's rule
)

// Policies lists all policies, with the product's last.
var Policies = []Policy{Alone, Weights, Least, Price}

// choose returns the cluster to which a request is forwarded. ok is false if it stays.
func (w *world) choose(at *site, r *request) (to *site, terms cycle.RemoteTerms, ok bool) {
	if r.retried && r.engine >= 0 {
		return nil, terms, false
	}
	hopped := false
	if r.token != "" {
		_, err := at.hops.Verify(r.token, clock(w.now))
		if hopped = true; err != nil {
			w.out.BadHops++
		}
	}
	switch w.o.Policy {
	case Price:
		return w.byPrice(at, r, hopped)
	case Weights:
		if !hopped && w.rng.Float64() > w.o.Home {
			return w.reported(at, func(*site, float64) float64 { return w.rng.Float64() })
		}
	case Least:
		if !hopped {
			return w.leastLoaded(at)
		}
	}
	return nil, terms, false
}

// byPrice applies the product's rule.
func (w *world) byPrice(at *site, r *request, hopped bool) (*site, cycle.RemoteTerms, bool) {
	a := remotecluster.Ask{
		Model: "m", Input: r.s.context, Answer: answers, Bytes: int(float64(r.s.context) / w.o.Grain * filter.ChunkBytes), Keys: r.s.keys, Named: true, Hopped: hopped,
	}
	var here *cycle.RemoteTerms
	if r.engine >= 0 {
		e := at.engines[r.engine]
		l := e.load()
		here = &cycle.RemoteTerms{Prediction: params.Predict(&cost, &l, r.work, e.wait(w.now), answers), Here: true}
	}
	terms, ok := at.fleet.Decide(&a, here, w.rng.Uint64(), clock(w.now))
	if !ok {
		return nil, terms, false
	}
	return w.named(terms.Cluster), terms, true
}

// named returns the cluster of that name, or nil.
func (w *world) named(name string) *site { return w.names[name] }

// reported returns the usable cluster with the best reported value. The terms are for the end of the
// request.
func (w *world) reported(at *site, value func(s *site, load float64) float64) (*site, cycle.RemoteTerms, bool) {
	var best *site
	least := math.Inf(1)
	for _, c := range w.control.cores[at.index].View(clock(w.now)).Clusters {
		for _, p := range c.Pools {
			if s := w.named(c.Name); p.Usable(clock(w.now)) {
				if v := value(s, float64(p.Load.Requests)); v < least {
					best, least = s, v
				}
			}
		}
	}
	if best == nil {
		return nil, cycle.RemoteTerms{}, false
	}
	return best, cycle.RemoteTerms{Cluster: best.name}, true
}

// leastLoaded returns the cluster with the fewest requests in flight, or nil if that is at itself.
func (w *world) leastLoaded(at *site) (*site, cycle.RemoteTerms, bool) {
	own := 0.0
	for _, e := range at.engines {
		own += float64(e.requests)
	}
	low := own
	to, terms, ok := w.reported(at, func(_ *site, load float64) float64 {
		low = min(low, load)
		return load
	})
	return to, terms, ok && low < own
}
