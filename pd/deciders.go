package pd

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Deciders without parameters.
var (
	Always = plugin.Decider{Split: func(*cycle.Cycle, int32) bool { return true }} // splits every request
	Never  = plugin.Decider{Split: func(*cycle.Cycle, int32) bool { return false }}
	// Media splits requests that hold images or sound.
	Media = plugin.Decider{Split: func(c *cycle.Cycle, _ int32) bool { return c.Request.Prompt.Media > 0 }}
)

// Missing returns a decider that splits requests of at least prompt tokens of which the serving
// endpoint lacks at least tokens, in any tier.
func Missing(tokens, prompt int) plugin.Decider {
	return plugin.Decider{Split: func(c *cycle.Cycle, serving int32) bool {
		return c.Request.InputTokens >= prompt && missing(c, serving) >= tokens
	}}
}

type prefixDeciderParams struct {
	NonCachedTokens             int    `json:"nonCachedTokens"`
	PromptTokens                int    `json:"promptTokens,omitempty"`
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName,omitempty"`
}

// newPrefixDecider splits requests of which the decode endpoint lacks at least the configured
// number of tokens in any tier; 0 never splits.
func newPrefixDecider(p prefixDeciderParams) (plugin.Plugin, error) {
	decide := Missing(p.NonCachedTokens, p.PromptTokens)
	if p.NonCachedTokens == 0 {
		decide = Never
	}
	return plugin.Plugin{Decider: decide}, plugin.Faults(
		plugin.Require(p.NonCachedTokens >= 0, "nonCachedTokens", "must not be negative"),
		plugin.Require(p.PromptTokens >= 0, "promptTokens", "must not be negative"))
}
