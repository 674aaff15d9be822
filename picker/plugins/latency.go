package plugins

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type latencyParams struct {
	TTFTWeight                float64 `json:"ttftWeight"`
	TPOTWeight                float64 `json:"tpotWeight"`
	HeadroomSelectionStrategy string  `json:"headroomSelectionStrategy"`
	CompositeKVWeight         float64 `json:"compositeKVWeight"` // for pickers whose predictor can be absent
	CompositeQueueWeight      float64 `json:"compositeQueueWeight"`
	CompositePrefixWeight     float64 `json:"compositePrefixWeight"`
	PrefixProducer            string  `json:"prefixMatchInfoProducerName,omitempty"`
	LatencyProducer           string  `json:"latencyPredictionInfoProducerName,omitempty"`
}

// latencyScorer scores the headroom between latency targets and expectation.
// While somebody meets the targets, only those score, by strategy the fullest
// (least) or the emptiest (most) best; a time without a target beside one with
// a target counts as met. When nobody does, idle endpoints score
// alone if there are any, else those that miss the least important target, the
// smaller miss better.
type latencyScorer struct {
	latencyParams
	most bool
}

func newLatency(p latencyParams) (plugin.Plugin, error) {
	if p.TTFTWeight+p.TPOTWeight <= 0 {
		p.TTFTWeight, p.TPOTWeight = 1, 0
	}
	return plugin.Plugin{Scorer: latencyScorer{p, p.HeadroomSelectionStrategy == "most"}}, plugin.Faults(
		plugin.Require(p.TTFTWeight >= 0, "ttftWeight", "must not be negative"),
		plugin.Require(p.TPOTWeight >= 0, "tpotWeight", "must not be negative"))
}

// Groups of candidates, best first.
const (
	groupMet = iota
	groupIdle
	groupSlowTokens // misses time per token alone
	groupLate       // misses first token alone
	groupBoth
	numGroups
)

func latencyGroup(c *picker.Cycle, k int) int {
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

// unbound reports which of the two times a request sets no target for while it
// sets one for the other: that time counts as met, and does not weigh.
func unbound(r *request.Request) (ttft, tpot bool) {
	return r.SLOTTFT == 0 && r.SLOTPOT > 0, r.SLOTPOT == 0 && r.SLOTTFT > 0
}

// spread is the range of one figure over the candidates of a group.
type spread struct{ low, high float64 }

func (s *spread) add(v float64) { s.low, s.high = min(s.low, v), max(s.high, v) }

// place returns where v lies between low, 0, and high, 1.
func (s *spread) place(v float64) float64 {
	if s.high <= s.low {
		return 0
	}
	return (v - s.low) / (s.high - s.low)
}

// Score implements picker.Scorer.
func (s latencyScorer) Score(c *picker.Cycle, scores []float64) {
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

func (s latencyScorer) score(c *picker.Cycle, k int, spreads [2]spread, weights [2]float64, met bool) float64 {
	sum := weights[0] + weights[1]
	if sum == 0 {
		return 1
	}
	ttft, tpot := headroom(c, k)
	v := (weights[0]*spreads[0].place(math.Abs(ttft)) + weights[1]*spreads[1].place(math.Abs(tpot))) / sum
	if met && s.most {
		return v
	}
	return 1 - v
}
