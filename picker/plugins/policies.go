package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins/policies"
)

// fallbacks is the default number of endpoints in a plan.
const fallbacks = policies.Fallbacks

type pickerParams struct {
	MaxNumOfEndpoints int `json:"maxNumOfEndpoints"`
}

// count returns the number of endpoints in a plan, at least 1.
func (p pickerParams) count() int { return max(p.MaxNumOfEndpoints, 1) }

func newMaxScore(p pickerParams) (plugin.Plugin, error) {
	return plugin.Plugin{Picker: policies.MaxScore(p.count())}, nil
}

func newRandom(p pickerParams) (plugin.Plugin, error) {
	return plugin.Plugin{Picker: policies.Random(p.count())}, nil
}

func newWeightedRandom(p pickerParams) (plugin.Plugin, error) {
	return plugin.Plugin{Picker: policies.WeightedRandom(p.count())}, nil
}

func newUnified(p policies.UnifiedParams) (plugin.Plugin, error) {
	u := &policies.Unified{UnifiedParams: p}
	return plugin.Plugin{Scorer: u, Picker: u}, plugin.Faults(
		plugin.Require(p.HitThreshold >= 0 && p.HitThreshold <= 1, "hitThreshold", "must be between 0 and 1"),
		plugin.Require(p.LoadFactor > 0, "loadFactor", "must be positive"))
}

func newDynamo(p policies.DynamoParams) (plugin.Plugin, error) {
	d := policies.Dynamo{DynamoParams: p}
	return plugin.Plugin{Scorer: d, Picker: d}, plugin.Faults(
		plugin.Require(p.OverlapScoreWeight >= 0, "overlapScoreWeight", "must not be negative"),
		plugin.Require(p.RouterTemperature >= 0, "routerTemperature", "must not be negative"),
		plugin.Require(p.BlockSize > 0, "blockSize", "must be positive"))
}

func newCacheAware(p policies.CacheAwareParams) (plugin.Plugin, error) {
	return plugin.Plugin{Scorer: policies.CacheAware{CacheAwareParams: p}, Picker: policies.MaxScore(fallbacks)}, plugin.Faults(
		plugin.Require(p.CacheThreshold >= 0 && p.CacheThreshold <= 1, "cacheThreshold", "must be between 0 and 1"),
		plugin.Require(p.BalanceAbsThreshold >= 0, "balanceAbsThreshold", "must not be negative"),
		plugin.Require(p.BalanceRelThreshold >= 1, "balanceRelThreshold", "must be at least 1"))
}
