package replay

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Apart names the policies with separate prefill engines, for fleets with roles.
const Apart = "pd"

// apartPolicies returns the built-in ones. pd-N, which splits from N missing tokens on, is created
// on demand.
func apartPolicies() []Policy {
	return []Policy{
		pair(Apart, "prefill and decode Apart, the pair by its price", pd.ByPrice()),
		pair(Apart+"-always", "every prompt is computed elsewhere", pd.Always),
		pair(Apart+"-never", "no prompt is computed elsewhere", pd.Never),
	}
}

// apartByName returns the policy pd-N.
func apartByName(name string) (Policy, bool) {
	text, ok := strings.CutPrefix(name, Apart+"-")
	tokens, err := strconv.Atoi(text)
	if !ok || err != nil || tokens < 1 {
		return Policy{}, false
	}
	return pair(name, fmt.Sprintf("prompts of which %d tokens are missing are computed elsewhere", tokens), pd.Missing(tokens, 0)), true
}

// pair returns the policy that runs the default one for both roles.
func pair(name, about string, d plugin.Decider) Policy {
	return Policy{Name: name, About: about, Rules: func() (*picker.Rules, error) {
		profiles := [2]*cycle.Profile{{Name: "decode"}, {Name: "prefill"}}
		for _, profile := range profiles {
			for _, p := range []part{{name: "max-score-picker"}, {name: "predicted-ttft-scorer", weight: 1}} {
				if err := p.addTo(profile); err != nil {
					return nil, fmt.Errorf("replay: policy %s: %w", name, err)
				}
			}
		}
		h, err := pd.New(pd.Options{Decode: profiles[0], Prefill: profiles[1], SplitPrefill: d})
		if err != nil {
			return nil, fmt.Errorf("replay: policy %s: %w", name, err)
		}
		return &picker.Rules{Handler: h}, nil
	}}
}
