// Package tier routes by the price class of engines. Both plugin types read the endpoint label
// example.com/tier.
package tier

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

const label = "example.com/tier"

// params are the parameters of both types, as a configuration writes them.
type params struct {
	// Tiers are label values. The scorer prefers the first; the filter drops them all.
	Tiers []string `json:"tiers"`
}

// Scorer is the type tier-scorer: 1 for endpoints of the first tier, less for later tiers, 0 for
// endpoints without a listed tier.
func Scorer() plugin.Type {
	return plugin.Type{
		Name: "tier-scorer", Kind: plugin.KindScorer, Summary: "Prefers endpoints by a list of tiers.",
		New: func(p *plugin.Params) (plugin.Plugin, error) {
			v := params{Tiers: []string{"reserved", "spot"}}
			if err := p.Read(&v); err != nil {
				return plugin.Plugin{}, err
			}
			return plugin.Plugin{Scorer: scorer(v)}, nil
		},
	}
}

// Filter is the type tier-filter: it drops endpoints whose tier is listed, unless none would be left.
func Filter() plugin.Type {
	return plugin.Type{
		Name: "tier-filter", Kind: plugin.KindFilter, Summary: "Drops endpoints of some tiers.",
		New: func(p *plugin.Params) (plugin.Plugin, error) {
			var v params
			if err := p.Read(&v); err != nil {
				return plugin.Plugin{}, err
			}
			return plugin.Plugin{Filter: filter(v)}, nil
		},
	}
}

// rank returns the position of an endpoint's tier in the list, len(list) if it is not there.
func rank(list []string, v *cycle.View) int {
	value, _ := v.Label(label)
	for i, tier := range list {
		if tier == value {
			return i
		}
	}
	return len(list)
}

type scorer params

// Score implements [cycle.Scorer].
func (s scorer) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = 1 - float64(rank(s.Tiers, c.At(k)))/float64(len(s.Tiers))
	}
}

type filter params

// Filter implements [cycle.Filter].
func (f filter) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = rank(f.Tiers, c.At(k)) == len(f.Tiers)
	}
	cycle.KeepAllIfNone(keep)
}
