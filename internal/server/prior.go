package server

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker"
)

// enoughToCopy is how many prefills must have been seen of an endpoint before
// others start from its constants.
const enoughToCopy = 3

// lendCosts lets endpoints of which nothing was learned start from the mean
// constants of those that serve the same models. With constants of nowhere in
// particular they would look slow beside engines that are known to be fast, and
// get no request to learn from.
func lendCosts(eps []*picker.Endpoint) {
	for _, ep := range eps {
		if c := ep.Cost(); c.PrefillSeen+c.DecodeSeen > 0 {
			continue
		}
		if prior, ok := meanCost(eps, ep.Models); ok {
			ep.SetPriorCost(prior)
		}
	}
}

// meanCost averages what is known of the endpoints that serve models.
func meanCost(eps []*picker.Endpoint, models []string) (picker.Cost, bool) {
	var sum picker.Cost
	n := 0.0
	for _, ep := range eps {
		c := ep.Cost()
		if c.PrefillSeen < enoughToCopy || !slices.Equal(ep.Models, models) {
			continue
		}
		n++
		sum.Base, sum.PerToken, sum.PerPair = sum.Base+c.Base, sum.PerToken+c.PerToken, sum.PerPair+c.PerPair
		sum.Step, sum.PerSeq, sum.PerContext = sum.Step+c.Step, sum.PerSeq+c.PerSeq, sum.PerContext+c.PerContext
	}
	if n == 0 {
		return picker.Cost{}, false
	}
	return picker.Cost{
		Base: sum.Base / n, PerToken: sum.PerToken / n, PerPair: sum.PerPair / n,
		Step: sum.Step / n, PerSeq: sum.PerSeq / n, PerContext: sum.PerContext / n,
	}, true
}
