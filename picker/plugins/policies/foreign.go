package policies

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// DynamoParams are the weight of missing blocks, the temperature of the draw, and the tokens per
// block.
type DynamoParams struct {
	OverlapScoreWeight float64 `json:"overlapScoreWeight"`
	RouterTemperature  float64 `json:"routerTemperature"`
	BlockSize          int     `json:"blockSize"`
}

// Dynamo is the cost function of NVIDIA Dynamo's KV router: weight × blocks to prefill at the
// endpoint + active blocks there. Temperature 0 selects the lowest cost. Above 0, it samples from a
// softmax of the costs, normalized by their range.
type Dynamo struct{ DynamoParams }

// Score implements cycle.Scorer.
func (d Dynamo) Score(c *cycle.Cycle, scores []float64) {
	block := float64(d.BlockSize)
	for k := range scores {
		l := &c.At(k).Load
		prefill := (float64(l.Prefill) + NewPrefill(c, k)) / block
		active := math.Ceil((float64(l.Tokens) + float64(c.Request.InputTokens)) / block)
		scores[k] = -(d.OverlapScoreWeight*prefill + active)
	}
}

// Pick implements cycle.Picker.
func (d Dynamo) Pick(c *cycle.Cycle, totals []float64, order []int32) []int32 {
	if d.RouterTemperature == 0 {
		return MaxScore(Fallbacks).Pick(c, totals, order)
	}
	low, high := totals[0], totals[0]
	for _, v := range totals {
		low, high = min(low, v), max(high, v)
	}
	// Gumbel-max trick: the argmax of logit + noise is a sample of the softmax.
	keys := c.Scratch(len(totals))
	for k, v := range totals {
		logit := 0.0
		if high > low {
			logit = (v - low) / (high - low) / d.RouterTemperature
		}
		keys[k] = logit - math.Log(-math.Log(1-c.Float64()))
	}
	return MaxScore(Fallbacks).Pick(c, keys, order)
}

// CacheAwareParams are the minimum matching share of the prompt, and the load differences, absolute
// and relative, that count as imbalance.
type CacheAwareParams struct {
	CacheThreshold      float64 `json:"cacheThreshold"`
	BalanceAbsThreshold int64   `json:"balanceAbsThreshold"`
	BalanceRelThreshold float64 `json:"balanceRelThreshold"`
}

// CacheAware is the policy of SGLang's router. While loads are imbalanced by both thresholds, it
// chooses the fewest requests. Otherwise it chooses the longest match, if long enough, or else the
// endpoint with the most free cache.
type CacheAware struct{ CacheAwareParams }

// Score implements cycle.Scorer.
func (s CacheAware) Score(c *cycle.Cycle, scores []float64) {
	low, high, longest := int64(math.MaxInt64), int64(0), 0.0
	for k := range scores {
		n := c.At(k).Load.Requests
		low, high = min(low, n), max(high, n)
		longest = max(longest, c.Held(k))
	}
	in := float64(max(c.Request.InputTokens, 1))
	for k := range scores {
		v := c.At(k)
		switch {
		case high-low > s.BalanceAbsThreshold && float64(high) > s.BalanceRelThreshold*float64(low):
			scores[k] = -float64(v.Load.Requests)
		case longest/in > s.CacheThreshold:
			scores[k] = c.Held(k) / in
		default:
			scores[k] = 1 - v.KVUse
		}
	}
}
