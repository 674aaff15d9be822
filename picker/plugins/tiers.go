package plugins

import (
	"encoding/json"
	"strings"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// tierParams are token weights by tier.
type tierParams struct {
	GPU    float64 `json:"gpu"`
	CPU    float64 `json:"cpu"`
	Disk   float64 `json:"disk"`
	Remote float64 `json:"remote"`
}

var usualPrecise = preciseParams{TierWeights: tierParams{
	GPU: cycle.DefaultTiers[block.TierGPU], CPU: cycle.DefaultTiers[block.TierCPU],
	Disk: cycle.DefaultTiers[block.TierDisk], Remote: cycle.DefaultTiers[block.TierRemote],
}}

func (p *tierParams) weights() cycle.TierWeights {
	return cycle.TierWeights{block.TierGPU: p.GPU, block.TierCPU: p.CPU, block.TierDisk: p.Disk, block.TierRemote: p.Remote}
}

// backends are tier weights in the format of other pickers. The rest of indexerConfig is ignored.
type backends struct {
	List []struct {
		Name   string  `json:"name"`
		Weight float64 `json:"weight"`
	} `json:"kvCacheBackendConfigs"`
}

// enter sets the weights of the named tiers.
func (b *backends) enter(w *cycle.TierWeights) {
	for _, e := range b.List {
		for t := range block.NumTiers {
			if strings.EqualFold(e.Name, t.String()) {
				w[t] = e.Weight
			}
		}
	}
}

// tiers returns the configured weights, from tierWeights or the format of other pickers; nil if
// they are the defaults.
func (p *preciseParams) tiers() (*cycle.TierWeights, error) {
	field, w := "tierWeights", p.TierWeights.weights()
	if w == cycle.DefaultTiers {
		var b backends
		if json.Unmarshal(p.IndexerConfig, &b) == nil {
			field = "indexerConfig.kvCacheBackendConfigs"
			b.enter(&w)
		}
	}
	for _, v := range w {
		if err := plugin.Require(v >= 0 && v <= 1, field, "must be weights between 0 and 1"); err != nil {
			return nil, err
		}
	}
	if w == cycle.DefaultTiers {
		return nil, nil
	}
	return &w, nil
}
