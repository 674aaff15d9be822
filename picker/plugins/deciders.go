package plugins

import "github.com/grapevine-epp/grapevine/pd"

// Decider tells whether a stage of a request is worth doing at another endpoint
// than the one that serves.
type Decider = pd.Decider

type prefixDeciderParams struct {
	NonCachedTokens             int    `json:"nonCachedTokens"`
	PromptTokens                int    `json:"promptTokens,omitempty"`
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName,omitempty"`
}

// newPrefixDecider splits requests with at least so many tokens that the decode
// endpoint does not hold in any tier; 0 never splits.
func newPrefixDecider(p prefixDeciderParams) (Plugin, error) {
	decide := pd.Missing(p.NonCachedTokens, p.PromptTokens)
	if p.NonCachedTokens == 0 {
		decide = pd.Never
	}
	return Plugin{Decider: decide}, first(
		must(p.NonCachedTokens >= 0, "nonCachedTokens", "must not be negative"),
		must(p.PromptTokens >= 0, "promptTokens", "must not be negative"))
}
