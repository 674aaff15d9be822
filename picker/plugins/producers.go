package plugins

import "github.com/grapevine-epp/grapevine/picker/plugin"

// IndexParams are the parameters of all versions of the approximate prefix index.
type IndexParams struct {
	AutoTune               *bool `json:"autoTune,omitempty"`
	BlockSizeTokens        int   `json:"blockSizeTokens,omitempty"`
	BlockSize              int   `json:"blockSize,omitempty"`     // in characters, older
	HashBlockSize          int   `json:"hashBlockSize,omitempty"` // in characters, oldest
	MaxPrefixBlocksToMatch int   `json:"maxPrefixBlocksToMatch,omitempty"`
	MaxPrefixTokensToMatch int   `json:"maxPrefixTokensToMatch,omitempty"`
	LRUCapacityPerServer   int   `json:"lruCapacityPerServer,omitempty"`
}

func (p IndexParams) check() error {
	return plugin.Faults(
		plugin.Require(p.BlockSizeTokens >= 0, "blockSizeTokens", "must not be negative"),
		plugin.Require(p.BlockSize >= 0, "blockSize", "must not be negative"),
		plugin.Require(p.HashBlockSize >= 0, "hashBlockSize", "must not be negative"),
		plugin.Require(p.MaxPrefixBlocksToMatch >= 0, "maxPrefixBlocksToMatch", "must not be negative"),
		plugin.Require(p.LRUCapacityPerServer >= 0, "lruCapacityPerServer", "must not be negative"))
}

// charactersPerToken converts the older block sizes.
const charactersPerToken = 4

func (p IndexParams) producer(precise bool) *plugin.Producer {
	tokens := p.BlockSizeTokens
	if chars := max(p.BlockSize, p.HashBlockSize); tokens == 0 && chars > 0 {
		tokens = max(chars/charactersPerToken, 1)
	}
	return &plugin.Producer{
		Precise: precise, BlockTokens: tokens, MatchBlocks: p.MaxPrefixBlocksToMatch,
		BlocksPerEP: p.LRUCapacityPerServer, FixedCapacity: p.AutoTune != nil && !*p.AutoTune,
	}
}

// approxParams are the parameters of approx-prefix-cache-producer.
type approxParams struct {
	IndexParams
	PrefixHashSource string `json:"prefixHashSource,omitempty"`
}

func newApproxProducer(p approxParams) (plugin.Plugin, error) {
	out := plugin.Plugin{Producer: p.producer(false)}
	if p.AutoTune != nil && !*p.AutoTune { // otherwise it is sized by the engines' gauges, like the built-in index
		out.Holdings = newApproxIndex(p.IndexParams)
	}
	return out, plugin.Faults(p.check(), plugin.Foreign(p.PrefixHashSource != "", "prefixHashSource", plugin.Replacement{
		Use: "leave it out: replicas read prompts from request bodies", Lost: "block hashes in metadata of the proxy, so each body is parsed again",
	}))
}

func newPreciseProducer(p preciseParams) (plugin.Plugin, error) {
	plugin, err := newPreciseScorer(p)
	plugin.Scorer = nil
	return plugin, err
}
