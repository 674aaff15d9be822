package plugin

import (
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// policies returns the queueing policies.
func policies() Table {
	ordering := func(name, summary string, o rules.Ordering) Type {
		return Type{Name: name, Kind: KindOrdering, Summary: summary, New: Fixed(Plugin{Flow: &FlowPolicy{Ordering: o}})}
	}
	return Table{
		{Name: "global-strict-fairness-policy", Kind: KindFairness, Summary: "One queue for all flows of a band.",
			New: Fixed(Plugin{Flow: &FlowPolicy{Fairness: rules.Strict}})},
		{Name: "round-robin-fairness-policy", Kind: KindFairness, Summary: "Gives every waiting flow the same number of requests in engines.",
			New: WithParams(weightParams{}, fairness(rules.Places))},
		{Name: "weighted-work-fairness-policy", Kind: KindFairness, Summary: "Gives every waiting flow the same amount of predicted work.",
			New: WithParams(weightParams{}, fairness(rules.Work))},
		{Name: "program-aware-fairness", Kind: KindFairness, Summary: "Serves flows first that received little service recently or have waited long.",
			New: WithParams(serviceParams{Strategy: strategyLAS, EvictionTTLSeconds: 3600, EvictionSweepSeconds: 300,
				WeightService: .8, WeightHeadWait: .2, HalfLifeSeconds: 60, TurnPriorityTimeWeight: .5}, newService)},
		ordering("fcfs-ordering-policy", "First come, first served.", rules.Arrival),
		ordering("edf-ordering-policy", "Dispatches the request with the earliest deadline first.", rules.Deadline),
		ordering("slo-deadline-ordering-policy", "Earliest latency target first.", rules.LatencyTarget),
		ordering("shortest-first-ordering-policy", "Dispatches the request with the least predicted work first, with aging.", rules.ShortestFirst),
		{Name: "static-usage-limit-policy", Kind: KindUsage, Summary: "Lets every priority band use the whole pool.",
			New: Fixed(limit(func() rules.UsageLimit { return rules.StaticLimit{} }))},
		{Name: "priority-holdback-policy", Kind: KindUsage, Summary: "Holds permits back from lower bands.",
			New: WithParams(holdbackParams{MinCeiling: -1, MaxCeiling: 1, Shape: "linear", Domain: "rank"}, newHoldback)},
		{Name: "soft-reflective-ceiling-policy", Kind: KindUsage, Summary: "Closes lower bands gradually as the pool fills.",
			New: Fixed(limit(func() rules.UsageLimit { return &rules.Reflective{} }))},
	}
}

func limit(f func() rules.UsageLimit) Plugin {
	return Plugin{Flow: &FlowPolicy{Limit: f}}
}

// mostWeight is the largest weight of a flow, and its inverse the smallest, so that divisions by
// weight stay finite.
const mostWeight = 1e6

type weightParams struct {
	Weights map[string]float64 `json:"weights,omitempty"`
}

func fairness(f rules.Fairness) func(weightParams) (Plugin, error) {
	return func(p weightParams) (Plugin, error) {
		sane, weights := true, make(map[string]float64, len(p.Weights))
		for id, w := range p.Weights {
			sane = sane && w >= 1/mostWeight && w <= mostWeight
			weights[rules.Name(id)] = w
		}
		return Plugin{Flow: &FlowPolicy{Fairness: f, Weights: weights}},
			Faults(Require(sane, "weights", "must be from 0.000001 to 1000000"))
	}
}

type serviceParams struct {
	Strategy             string  `json:"strategy"`
	EvictionTTLSeconds   float64 `json:"evictionTtlSeconds"`
	EvictionSweepSeconds float64 `json:"evictionSweepSeconds"`
	WeightService        float64 `json:"lasWeightService"`
	WeightHeadWait       float64 `json:"lasWeightHeadWait"`
	HalfLifeSeconds      float64 `json:"lasHalfLifeSeconds"`

	TurnPriorityTimeWeight float64  `json:"turnPriorityTimeWeight"`
	DecayFactor            *float64 `json:"lasDecayFactor,omitempty"`
}

// Values of strategy of program-aware-fairness.
const (
	strategyLAS   = "las"
	strategyTurns = "turn-priority"
)

func newService(p serviceParams) (Plugin, error) {
	s := rules.Service{
		WeightService: p.WeightService, WeightHeadWait: p.WeightHeadWait,
		HalfLife: time.Duration(p.HalfLifeSeconds * float64(time.Second)),
	}
	f := rules.LeastService
	if p.Strategy == strategyTurns {
		f = rules.MostTurns
		s = rules.Service{WeightTime: p.TurnPriorityTimeWeight, Keep: math.MaxInt64} // a TTL of 0 keeps turns for ever
		if p.EvictionTTLSeconds > 0 {
			s.Keep = time.Duration(p.EvictionTTLSeconds * float64(time.Second))
		}
	}
	return Plugin{Flow: &FlowPolicy{Fairness: f, Service: s}}, Faults(
		Require(p.Strategy == strategyLAS || p.Strategy == strategyTurns, "strategy", "must be "+strategyLAS+" or "+strategyTurns),
		Require(p.TurnPriorityTimeWeight >= 0 && p.TurnPriorityTimeWeight <= mostWeight, "turnPriorityTimeWeight", "must be from 0 to 1000000"),
		Foreign(p.DecayFactor != nil, "lasDecayFactor", Replacement{
			Use: "use lasHalfLifeSeconds", Lost: "decay of service by the number of decisions: it decays with time",
		}),
		Require(p.WeightService >= 0 && p.WeightService <= mostWeight, "lasWeightService", "must be from 0 to 1000000"),
		Require(p.WeightHeadWait >= 0 && p.WeightHeadWait <= mostWeight, "lasWeightHeadWait", "must be from 0 to 1000000"),
		Require(p.HalfLifeSeconds >= 0 && p.HalfLifeSeconds < 1e6, "lasHalfLifeSeconds", "must be between 0 and 1000000"),
		Require(p.EvictionTTLSeconds >= 0 && p.EvictionTTLSeconds < 1e9, "evictionTtlSeconds", "must be from 0 to 1000000000"),
		Require(p.EvictionSweepSeconds > 0, "evictionSweepSeconds", "must be positive"))
}

type holdbackParams struct {
	MinCeiling float64 `json:"minCeiling"`
	MaxCeiling float64 `json:"maxCeiling"`
	Shape      string  `json:"shape"`
	Domain     string  `json:"domain"`
}

func newHoldback(p holdbackParams) (Plugin, error) {
	h := rules.Holdback{Min: p.MinCeiling, Max: p.MaxCeiling, ByValue: p.Domain == "value"}
	return limit(func() rules.UsageLimit { return h }), Faults(
		Require(p.MinCeiling >= 0 && p.MinCeiling < 1, "minCeiling", "must be given: from 0 to below 1"),
		Require(p.MaxCeiling > 0 && p.MaxCeiling <= 1, "maxCeiling", "must be above 0 and at most 1"),
		Require(p.MinCeiling < p.MaxCeiling, "minCeiling", "must be below maxCeiling"),
		Require(p.Shape == "linear", "shape", "must be linear"),
		Require(p.Domain == "rank" || p.Domain == "value", "domain", "must be rank or value"))
}
