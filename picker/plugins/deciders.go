package plugins

import "github.com/grapevine-epp/grapevine/picker"

// Decider tells whether a request that would be decoded at the candidate at a
// position among all is worth a prefill elsewhere.
type Decider func(c *picker.Cycle, decode int32) bool

type prefixDeciderParams struct {
	NonCachedTokens             int    `json:"nonCachedTokens"`
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName,omitempty"`
}

// newPrefixDecider splits requests with at least so many tokens that the decode
// endpoint does not hold in any tier; 0 never splits.
func newPrefixDecider(p prefixDeciderParams) (Plugin, error) {
	decide := func(c *picker.Cycle, decode int32) bool {
		missing := c.Request.InputTokens - int(c.RunAt(decode).Total())
		return p.NonCachedTokens > 0 && missing >= p.NonCachedTokens
	}
	return Plugin{Decider: decide}, must(p.NonCachedTokens >= 0, "nonCachedTokens", "must not be negative")
}

func always(*picker.Cycle, int32) bool { return true }

// mediaDecider splits requests that hold images or sound.
func mediaDecider(c *picker.Cycle, _ int32) bool { return c.Request.Prompt.Media > 0 }
