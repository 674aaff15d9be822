package saturation

import "github.com/grapevine-epp/grapevine/picker/plugin"

// Types returns the rows of this package, in the order of the manual.
func Types() plugin.Table {
	fairness := func(name, summary string) plugin.Type {
		return plugin.Type{Name: name, Kind: plugin.KindFairness, Summary: summary, New: plugin.Fixed(plugin.Plugin{Flow: &plugin.FlowPolicy{Fairness: name}})}
	}
	ordering := func(name, summary string) plugin.Type {
		return plugin.Type{Name: name, Kind: plugin.KindOrdering, Summary: summary, New: plugin.Fixed(plugin.Plugin{Flow: &plugin.FlowPolicy{Ordering: name}})}
	}
	return plugin.Table{
		{Name: "utilization-detector", Kind: plugin.KindDetector, Summary: "Saturation by gauges.",
			New: plugin.WithParams(utilizationParams{QueueDepthThreshold: 5, KVCacheUtilThreshold: .8, MetricsStalenessThreshold: "200ms"}, newUtilization)},
		{Name: "concurrency-detector", Kind: plugin.KindDetector, Summary: "Saturation by requests or tokens in flight.",
			New: plugin.WithParams(concurrencyParams{ConcurrencyMode: "requests", MaxConcurrency: 100, MaxTokenConcurrency: 1_000_000}, newConcurrency)},
		fairness("global-strict-fairness-policy", "Oldest request first, whoever sent it."),
		fairness("round-robin-fairness-policy", "Flows take turns."),
		ordering("fcfs-ordering-policy", "First come, first served."),
		ordering("edf-ordering-policy", "Earliest deadline first."),
		ordering("slo-deadline-ordering-policy", "Earliest latency target first."),
	}
}
