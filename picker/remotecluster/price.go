package remotecluster

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Ask is the input of a request's price.
type Ask struct {
	Model     string
	Input     int         // prompt tokens
	Answer    float64     // expected tokens
	Bytes     int         // of the prompt
	Keys      []block.Key // of its blocks, with the federation secret in use
	Also      []block.Key // with the second accepted secret, if any
	Objective string
	Clusters  string // clusters that the request allows; "": all
	Named     bool   // its route names the import
	Hopped    bool   // another cluster forwarded it
}

// answerBytes is the size of a streamed token on the wire.
const answerBytes = 200

// assumedRoundTrip replaces an unmeasured round trip.
const assumedRoundTrip = 50 * time.Millisecond

// side is one cluster's data for decisions: its announcement and its account. It is immutable,
// except for the account.
type side struct {
	*federation.Remote
	*account
	at       place
	gateways []*endpoint.Endpoint
	direct   []*endpoint.Endpoint
	cost     endpoint.Cost
	egress   float64 // seconds per byte
	also     bool    // its filter uses keys of the view's other secret
}

// costOf returns the cost constants of a typical engine there.
func costOf(p *federation.Price) endpoint.Cost {
	c := endpoint.PriorCost
	for _, f := range [...]struct {
		to   *float64
		from float64
	}{
		{&c.Base, p.Base}, {&c.PerToken, p.PerToken}, {&c.PerPair, p.PerPair}, {&c.Step, p.Step}, {&c.PerSeq, p.PerSeq}, {&c.PerContext, p.PerContext},
	} {
		if f.from > 0 && f.from < mostCost {
			*f.to = f.from
		}
	}
	return c
}

// mostCost limits announced constants, in seconds.
const mostCost = 60

// roundTrip returns the measured round trip in seconds.
func (s *side) roundTrip() float64 {
	if s.RTT <= 0 {
		return assumedRoundTrip.Seconds()
	}
	return s.RTT.Seconds()
}

// engines returns how many engines there can serve the request.
func (s *side) engines(model string) int { return s.Endpoints(model) }

// why returns why the cluster is excluded, or RemoteCostlier if it is a candidate without a price.
func (f *Fleet) why(s *side, a *Ask, now time.Time) cycle.RemoteReason {
	switch {
	case !a.Named:
		return cycle.RemoteNotNamed
	case a.Hopped:
		return cycle.RemoteForwarded
	case !f.o.Rules.allow(a.Objective, a.Clusters, s.at):
		return cycle.RemoteForbidden
	case s.State == federation.Draining || s.Draining:
		return cycle.RemoteDraining
	case !s.Usable(now):
		return cycle.RemoteLeaseExpired
	case s.Endpoints("") == 0:
		return cycle.RemoteEmpty
	case s.engines(a.Model) == 0:
		return cycle.RemoteModelMissing
	case s.Load.Saturation >= 1:
		return cycle.RemoteSaturated
	}
	return cycle.RemoteCostlier
}

// quote prices the request there. The terms contain the reason if it is not a candidate.
func (f *Fleet) quote(s *side, a *Ask, now time.Time) cycle.RemoteTerms {
	t := cycle.RemoteTerms{Cluster: s.Cluster, Reason: f.why(s, a, now), RoundTrip: s.roundTrip(), Age: now.Sub(s.ReceivedAt)}
	if t.Reason != cycle.RemoteCostlier {
		return t
	}
	if f.asks(s) {
		t.RoundTrip *= 2 // the question to its picker is another round trip
	}
	st := s.state(now, s.ReceivedAt, f.o.Margin.Hold)
	switch {
	case st.out:
		t.Reason = cycle.RemoteFailing
		return t
	case st.full:
		t.Reason = cycle.RemoteSaturated
		return t
	case st.probed:
		t.Reason = cycle.RemoteProbing
		return t
	}
	n := float64(s.engines(a.Model))
	t.Held = int(float64(s.holds(a, now)) * (1 - st.missing))
	work := endpoint.Work{Input: max(a.Input, 1), New: max(a.Input-t.Held, 1)}
	wait := s.Load.Wait
	if t.Held > 0 { // the endpoint with the prefix is not the one with the shortest wait
		wait = max(wait, s.Load.MeanWait)
	}
	l := s.typical(n)
	queued := max(wait.Seconds(), 0) + st.backlog*float64(max(f.o.Crowd(), 1))/n
	t.Prediction = f.o.Params.Predict(&s.cost, &l, work, queued, a.Answer)
	t.Egress = s.egress * (float64(a.Bytes) + a.Answer*answerBytes)
	t.Late = st.late
	return t
}

// typical is the load of an average engine there.
func (s *side) typical(engines float64) endpoint.Load {
	each := func(n float64) int64 { return int64(max(n, 0) / engines) }
	return endpoint.Load{
		Requests: each(float64(s.Load.Requests)), Waiting: each(float64(s.Load.Waiting)), Prefill: each(float64(s.Load.Queued)),
		Context: each(float64(s.Capacity.KVTokens) * min(max(s.Load.KVUsage, 0), 1)),
	}
}

// holds returns how many prompt tokens are known to be cached there, from the cluster's filter and
// from requests sent there.
func (s *side) holds(a *Ask, now time.Time) int {
	if len(a.Keys) == 0 || a.Bytes <= 0 {
		return 0
	}
	s.mu.Lock()
	run := max(s.held.run(a.Keys, now), s.held.run(a.Also, now))
	s.mu.Unlock()
	keys := a.Keys
	if s.also {
		keys = a.Also
	}
	run = max(run, s.Filter.Run(keys))
	return min(int(float64(run*filter.ChunkBytes)/float64(a.Bytes)*float64(a.Input)), a.Input)
}

// cheapest returns the quote to use, or -1 if the request stays. Among similar prices lot selects
// one, because replicas with the same view would all choose the first. Quotes not used get a
// reason.
func (f *Fleet) cheapest(here *cycle.RemoteTerms, quotes []cycle.RemoteTerms, open []bool, lot uint64) int {
	best := -1
	for i := range quotes {
		if quotes[i].Reason == cycle.RemoteCostlier && (best < 0 || quotes[i].Price() < quotes[best].Price()) {
			best = i
		}
	}
	if best < 0 && here == nil {
		best = lastResort(quotes)
	}
	if best < 0 {
		return -1
	}
	if quotes[best].Reason != cycle.RemoteCostlier {
		quotes[best].Reason = cycle.RemoteChosen
		return best
	}
	least, alike := quotes[best].Price(), 0
	for i := range quotes {
		if q := &quotes[i]; q.Reason == cycle.RemoteCostlier && q.Price() <= least*nearly+nearlyFloor {
			if alike++; lot%uint64(alike) == 0 {
				best = i
			}
			lot = lot>>7 | lot<<57
		}
	}
	if here != nil && !f.leaves(here, &quotes[best], open[best]) {
		for i := range quotes {
			if q := &quotes[i]; q.Reason == cycle.RemoteCostlier && q.Price() < here.Price() {
				q.Reason = cycle.RemoteGainTooSmall
			}
		}
		return -1
	}
	quotes[best].Reason = cycle.RemoteChosen
	return best
}

// lastResort returns the nearest cluster excluded only because of failures, if there is no other
// destination; -1 if there is none.
func lastResort(quotes []cycle.RemoteTerms) int {
	best := -1
	for i := range quotes {
		if q := &quotes[i]; (q.Reason == cycle.RemoteFailing || q.Reason == cycle.RemoteSaturated || q.Reason == cycle.RemoteProbing) && (best < 0 || q.RoundTrip < quotes[best].RoundTrip) {
			best = i
		}
	}
	return best
}

// Prices with smaller differences count as equal.
const (
	nearly      = 1.05
	nearlyFloor = .005
)

// leaves reports whether a remote price is low enough. It never is if the request itself would wait
// longer for its first token than here: a request does not move for the benefit of others.
func (f *Fleet) leaves(at, to *cycle.RemoteTerms, open bool) bool {
	m := &f.o.Margin
	here, there := at.Price(), to.Price()
	if to.TTFT()+to.RoundTrip+to.Late > at.TTFT() {
		return false
	}
	share, floor := m.Enter, m.EnterFloor
	if open {
		share, floor = m.Leave, m.LeaveFloor
	}
	return there < here-max(share*here, floor)
}
