package plugins

import (
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// prefixParams are those of prefix-cache-scorer in its generations. What
// concerns the building of an index is taken by the producer of this program.
type prefixParams struct {
	IndexParams
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName,omitempty"`

	// Of the generation in which this scorer had an index of its own.
	Mode           string       `json:"mode,omitempty"`
	IndexerConfig  plugin.Loose `json:"indexerConfig,omitempty"`
	KVEventsConfig plugin.Loose `json:"kvEventsConfig,omitempty"`
}

// prefixScorer scores the part of the prompt that an endpoint holds, tiers
// weighed: 1 means all of it.
type prefixScorer struct{}

func newPrefixScorer(p prefixParams) (plugin.Plugin, error) {
	return plugin.Plugin{Scorer: prefixScorer{}, Producer: p.producer(false)}, p.check()
}

// Score implements picker.Scorer.
func (prefixScorer) Score(c *picker.Cycle, scores []float64) {
	in := float64(max(c.Request.InputTokens, 1))
	for k := range scores {
		scores[k] = min(c.Held(k)/in, 1)
	}
}

// preciseParams are those of precise-prefix-cache-scorer. Its index, event and
// tokenizer settings are read for their block size and tier weights; the rest is
// built in.
type preciseParams struct {
	TierWeights          tierParams `json:"tierWeights"`
	TokenProcessorConfig struct {
		BlockSize       int    `json:"blockSize,omitempty"`
		BlockSizeTokens int    `json:"blockSizeTokens,omitempty"`
		HashSeed        string `json:"hashSeed,omitempty"`
		ModelName       string `json:"modelName,omitempty"`
	} `json:"tokenProcessorConfig,omitempty"`
	IndexerConfig       plugin.Loose `json:"indexerConfig,omitempty"`
	KVEventsConfig      plugin.Loose `json:"kvEventsConfig,omitempty"`
	SpeculativeIndexing bool         `json:"speculativeIndexing,omitempty"`
	SpeculativeTTL      string       `json:"speculativeTTL,omitempty"`
}

// preciseScorer scores matched tokens relative to the other holders: the best
// gets 1, the least of those that hold anything 0, and so do those that hold
// nothing. Holders of equal amounts all get 1.
type preciseScorer struct{}

func newPreciseScorer(p preciseParams) (plugin.Plugin, error) {
	producer, err := p.producer()
	return plugin.Plugin{Scorer: preciseScorer{}, Producer: producer}, plugin.Faults(err,
		plugin.Require(p.TokenProcessorConfig.BlockSize >= 0, "tokenProcessorConfig.blockSize", "must not be negative"),
		plugin.Duration("speculativeTTL", p.SpeculativeTTL))
}

func (p preciseParams) producer() (*plugin.Producer, error) {
	tiers, err := p.tiers()
	return &plugin.Producer{
		Precise: true, BlockTokens: max(p.TokenProcessorConfig.BlockSize, p.TokenProcessorConfig.BlockSizeTokens), Tiers: tiers,
	}, err
}

// Score implements picker.Scorer.
func (preciseScorer) Score(c *picker.Cycle, scores []float64) {
	low, high := 0.0, 0.0
	for k := range scores {
		held := c.Held(k)
		scores[k] = held
		if held > 0 && (low == 0 || held < low) {
			low = held
		}
		high = max(high, held)
	}
	for k, held := range scores {
		switch {
		case held == 0:
		case high == low:
			scores[k] = 1
		default:
			scores[k] = (held - low) / (high - low)
		}
	}
}
