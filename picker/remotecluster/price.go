package remotecluster

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Ask is what the price of a request depends on.
type Ask struct {
	Model     string
	Input     int         // prompt tokens
	Answer    float64     // expected tokens
	Bytes     int         // of the prompt
	Keys      []block.Key // of its blocks, under the federation's secret in use
	Also      []block.Key // and under the other one that is good, if there is one
	Objective string
	Clusters  string // clusters that the request itself allows, "" for all
	Named     bool   // its route names the import
	Hopped    bool   // it has come from another cluster
}

// answerBytes is what a token of a streamed answer takes on the wire.
const answerBytes = 200

// assumedRoundTrip stands for one that was not measured.
const assumedRoundTrip = 50 * time.Millisecond

// side is one cluster as decisions see it: what it told, and its account. It is immutable
// but for the account.
type side struct {
	*federation.Remote
	*account
	at       place
	gateways []*endpoint.Endpoint
	direct   []*endpoint.Endpoint
	cost     endpoint.Cost
	egress   float64 // seconds for a byte
	also     bool    // its filter has keys of the view's other secret
}

// costOf returns the constants of a typical engine there.
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

// mostCost bounds a constant that another cluster tells, in seconds.
const mostCost = 60

// roundTrip returns the measured time to the cluster and back, in seconds.
func (s *side) roundTrip() float64 {
	if s.RTT <= 0 {
		return assumedRoundTrip.Seconds()
	}
	return s.RTT.Seconds()
}

// engines returns how many there can serve the request.
func (s *side) engines(model string) int { return s.Endpoints(model) }

// why says whether the cluster is a candidate: FarDearer until its price is known.
func (f *Fleet) why(s *side, a *Ask, now time.Time) cycle.RemoteReason {
	switch {
	case !a.Named:
		return cycle.FarNotNamed
	case a.Hopped:
		return cycle.FarHopped
	case !f.o.Rules.allow(a.Objective, a.Clusters, s.at):
		return cycle.FarForbid
	case s.State == federation.Draining || s.Draining:
		return cycle.FarDraining
	case !s.Usable(now):
		return cycle.FarSilent
	case s.Endpoints("") == 0:
		return cycle.FarEmpty
	case s.engines(a.Model) == 0:
		return cycle.FarModel
	case s.Load.Saturation >= 1:
		return cycle.FarFull
	}
	return cycle.FarDearer
}

// quote prices the request there. Why it is no candidate stands in the terms.
func (f *Fleet) quote(s *side, a *Ask, now time.Time) cycle.RemoteTerms {
	t := cycle.RemoteTerms{Cluster: s.Cluster, Reason: f.why(s, a, now), RoundTrip: s.roundTrip(), Age: now.Sub(s.ReceivedAt)}
	if t.Reason != cycle.FarDearer {
		return t
	}
	if f.asks(s) {
		t.RoundTrip *= 2 // its picker is asked first
	}
	st := s.state(now, s.ReceivedAt, f.o.Margin.Hold)
	switch {
	case st.out:
		t.Reason = cycle.FarOut
		return t
	case st.full:
		t.Reason = cycle.FarFull
		return t
	}
	n := float64(s.engines(a.Model))
	t.Held = int(float64(s.holds(a, now)) * (1 - st.doubt))
	work := endpoint.Work{Input: max(a.Input, 1), New: max(a.Input-t.Held, 1)}
	wait := s.Load.Wait
	if t.Held > 0 { // whoever holds it is not the one that waits least
		wait = max(wait, s.Load.MeanWait)
	}
	l := s.typical(n)
	queued := max(wait.Seconds(), 0) + st.backlog*float64(max(f.o.Crowd(), 1))/n
	t.Prediction = f.o.Params.Predict(&s.cost, &l, work, queued, a.Answer)
	t.Egress = s.egress * (float64(a.Bytes) + a.Answer*answerBytes)
	t.Late = st.late
	return t
}

// typical is the load of one engine there.
func (s *side) typical(engines float64) endpoint.Load {
	each := func(n float64) int64 { return int64(max(n, 0) / engines) }
	return endpoint.Load{
		Requests: each(float64(s.Load.Requests)), Waiting: each(float64(s.Load.Waiting)), Prefill: each(float64(s.Load.Queued)),
		Context: each(float64(s.Capacity.KVTokens) * min(max(s.Load.KVUsage, 0), 1)),
	}
}

// holds returns how many tokens of the prompt are known to be there: by the cluster's
// filter, and by what was sent there.
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

// cheapest returns the quote to take, -1 when the request stays. Of those that cost about
// the same, lot takes one: neighbours that see the same would all go to the first. The
// quotes that are not taken say why.
func (f *Fleet) cheapest(here *cycle.RemoteTerms, quotes []cycle.RemoteTerms, open []bool, lot uint64) int {
	best := -1
	for i := range quotes {
		if quotes[i].Reason == cycle.FarDearer && (best < 0 || quotes[i].Price() < quotes[best].Price()) {
			best = i
		}
	}
	if best < 0 && here == nil {
		best = lastResort(quotes)
	}
	if best < 0 {
		return -1
	}
	if quotes[best].Reason != cycle.FarDearer {
		quotes[best].Reason = cycle.FarChosen
		return best
	}
	least, alike := quotes[best].Price(), 0
	for i := range quotes {
		if q := &quotes[i]; q.Reason == cycle.FarDearer && q.Price() <= least*nearly+nearlyFloor {
			if alike++; lot%uint64(alike) == 0 {
				best = i
			}
			lot = lot>>7 | lot<<57
		}
	}
	if here != nil && !f.leaves(here, &quotes[best], open[best]) {
		for i := range quotes {
			if q := &quotes[i]; q.Reason == cycle.FarDearer && q.Price() < here.Price() {
				q.Reason = cycle.FarNearly
			}
		}
		return -1
	}
	quotes[best].Reason = cycle.FarChosen
	return best
}

// lastResort returns the nearest cluster of those that only our own caution keeps out, where
// nobody else is left; -1 when there is none.
func lastResort(quotes []cycle.RemoteTerms) int {
	best := -1
	for i := range quotes {
		if q := &quotes[i]; (q.Reason == cycle.FarOut || q.Reason == cycle.FarFull) && (best < 0 || q.RoundTrip < quotes[best].RoundTrip) {
			best = i
		}
	}
	return best
}

// Prices that differ by less are alike.
const (
	nearly      = 1.05
	nearlyFloor = .005
)

// leaves reports whether a price elsewhere is low enough to leave. It never is where the
// request itself would wait longer for its first token than it does here: nobody travels
// for the sake of others.
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
