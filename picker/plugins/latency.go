package plugins

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type latencyParams struct {
	TTFTWeight                float64 `json:"ttftWeight"`
	TPOTWeight                float64 `json:"tpotWeight"`
	HeadroomSelectionStrategy string  `json:"headroomSelectionStrategy"`
	CompositeKVWeight         float64 `json:"compositeKVWeight"` // used until latencies are learned
	CompositeQueueWeight      float64 `json:"compositeQueueWeight"`
	CompositePrefixWeight     float64 `json:"compositePrefixWeight"`
	PrefixProducer            string  `json:"prefixMatchInfoProducerName,omitempty"`
	LatencyProducer           string  `json:"latencyPredictionInfoProducerName,omitempty"`
}

// latencyScorer scores the headroom between latency targets and predictions. If some candidates
// meet the targets, only these get scores: the strategy prefers the least or the most headroom. If
// only one of the two targets is set, the other one counts as met.
//
// If no candidate meets the targets, only idle endpoints score, if there are any. Otherwise
// endpoints that miss only the less important target score, smaller misses first. Until latencies
// are learned, free cache, short queues and cached prefixes determine the score.
type latencyScorer struct {
	latencyParams
	most  bool
	holds *plugin.Holdings
}

func newLatency(p latencyParams) (plugin.Plugin, error) {
	if p.TTFTWeight+p.TPOTWeight <= 0 {
		p.TTFTWeight, p.TPOTWeight = 1, 0
	}
	if p.CompositeKVWeight+p.CompositeQueueWeight+p.CompositePrefixWeight <= 0 {
		p.CompositeKVWeight, p.CompositeQueueWeight, p.CompositePrefixWeight = 1, 0, 0
	}
	bind := func(h *plugin.Holdings) plugin.Plugin {
		return plugin.Plugin{Scorer: latencyScorer{p, p.HeadroomSelectionStrategy == "most", h}}
	}
	out := bind(nil)
	out.Bind, out.Differs = bind, []string{oneTarget}
	return out, plugin.Faults(
		plugin.Require(p.TTFTWeight >= 0, "ttftWeight", "must not be negative"),
		plugin.Require(p.TPOTWeight >= 0, "tpotWeight", "must not be negative"),
		plugin.Require(min(p.CompositeKVWeight, p.CompositeQueueWeight, p.CompositePrefixWeight) >= 0, "compositeKVWeight", "and its like must not be negative"))
}

// Groups of candidates, best first.
const (
	groupMet = iota
	groupIdle
	groupSlowTokens // misses only the time per token
	groupLate       // misses only the first-token time
	groupBoth
	numGroups
)

func latencyGroup(c *cycle.Cycle, k int) int {
	ttft, tpot := headroom(c, k)
	anyTTFT, anyTPOT := unbound(c.Request)
	early, quick := ttft >= 0 || anyTTFT, tpot >= 0 || anyTPOT
	switch {
	case early && quick:
		return groupMet
	case c.At(k).Load.Requests == 0:
		return groupIdle
	case early:
		return groupSlowTokens
	case quick:
		return groupLate
	default:
		return groupBoth
	}
}

// unbound reports which of the two targets is unset while the other one is set. That time counts as
// met and has no weight.
func unbound(r *request.Request) (ttft, tpot bool) {
	return r.SLOTTFT == 0 && r.SLOTPOT > 0, r.SLOTPOT == 0 && r.SLOTTFT > 0
}

// spread is the range of one value over the candidates of a group.
type spread struct{ low, high float64 }

func (s *spread) add(v float64) { s.low, s.high = min(s.low, v), max(s.high, v) }

// place returns the position of v between low (0) and high (1).
func (s *spread) place(v float64) float64 {
	if s.high <= s.low {
		return 0
	}
	return (v - s.low) / (s.high - s.low)
}

// Score implements cycle.Scorer.
func (s latencyScorer) Score(c *cycle.Cycle, scores []float64) {
	if !learned(c) {
		s.composite(c, scores)
		return
	}
	best := numGroups
	for k := range scores {
		best = min(best, latencyGroup(c, k))
	}
	ttfts := spread{math.Inf(1), math.Inf(-1)}
	tpots := ttfts
	for k := range scores {
		if latencyGroup(c, k) != best {
			continue
		}
		ttft, tpot := headroom(c, k)
		ttfts.add(math.Abs(ttft))
		tpots.add(math.Abs(tpot))
	}
	wt, wp := s.TTFTWeight, s.TPOTWeight
	anyTTFT, anyTPOT := unbound(c.Request)
	if ttfts.high <= ttfts.low || anyTTFT {
		wt = 0
	}
	if tpots.high <= tpots.low || anyTPOT {
		wp = 0
	}
	for k := range scores {
		if latencyGroup(c, k) == best {
			scores[k] = s.score(c, k, [2]spread{ttfts, tpots}, [2]float64{wt, wp}, best == groupMet)
		}
	}
}

func (s latencyScorer) score(c *cycle.Cycle, k int, spreads [2]spread, weights [2]float64, met bool) float64 {
	v := .5
	if sum := weights[0] + weights[1]; sum > 0 {
		ttft, tpot := headroom(c, k)
		v = (weights[0]*spreads[0].place(math.Abs(ttft)) + weights[1]*spreads[1].place(math.Abs(tpot))) / sum
	}
	if !met || !s.most {
		v = 1 - v
	}
	// Rounded to hundredths and never 0, which is the score of other groups.
	return min((math.Floor(v*100+rounding)+1)/100, 1)
}

// rounding compensates for floating-point error before Floor.
const rounding = 1e-9

// composite scores free cache, short queues and cached prefixes, in hundredths.
func (s latencyScorer) composite(c *cycle.Cycle, scores []float64) {
	most := 0.0
	for k := range scores {
		most = max(most, waiting(c.At(k)))
	}
	in := float64(max(c.Request.InputTokens, 1))
	sum := s.CompositeKVWeight + s.CompositeQueueWeight + s.CompositePrefixWeight
	for k, held := range holdings(c, s.holds, scores) {
		v := c.At(k)
		queue := 1.0
		if most > 0 {
			queue = 1 - waiting(v)/most
		}
		total := s.CompositeKVWeight*(1-min(max(v.KVUse, 0), 1)) + s.CompositeQueueWeight*queue + s.CompositePrefixWeight*min(held/in, 1)
		scores[k] = math.Round(total/sum*100) / 100
	}
}

// Chosen implements cycle.Observer.
func (s latencyScorer) Chosen(c *cycle.Cycle, ep *endpoint.Endpoint) {
	if s.holds != nil {
		s.holds.Chosen(c, ep)
	}
}

// learned reports whether the first-token time of some candidate has been learned.
func learned(c *cycle.Cycle) bool {
	for k := range c.Len() {
		if c.At(k).Cost.PrefillSeen > 0 {
			return true
		}
	}
	return false
}
