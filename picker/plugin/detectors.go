package plugin

// DetectorTypes returns the types that say when a pool is full and name how requests
// wait, in the order of the manual.
func DetectorTypes() Table {
	fairness := func(name, summary string) Type {
		return Type{Name: name, Kind: KindFairness, Summary: summary, New: Fixed(Plugin{Flow: &FlowPolicy{Fairness: name}})}
	}
	ordering := func(name, summary string) Type {
		return Type{Name: name, Kind: KindOrdering, Summary: summary, New: Fixed(Plugin{Flow: &FlowPolicy{Ordering: name}})}
	}
	return Table{
		{Name: "utilization-detector", Kind: KindDetector, Summary: "Saturation by gauges.",
			New: WithParams(utilizationParams{QueueDepthThreshold: 5, KVCacheUtilThreshold: .8, MetricsStalenessThreshold: "200ms"}, newUtilization)},
		{Name: "concurrency-detector", Kind: KindDetector, Summary: "Saturation by requests or tokens in flight.",
			New: WithParams(concurrencyParams{ConcurrencyMode: "requests", MaxConcurrency: 100, MaxTokenConcurrency: 1_000_000}, newConcurrency)},
		fairness("global-strict-fairness-policy", "Oldest request first, whoever sent it."),
		fairness("round-robin-fairness-policy", "Flows take turns."),
		ordering("fcfs-ordering-policy", "First come, first served."),
		ordering("edf-ordering-policy", "Earliest deadline first."),
		ordering("slo-deadline-ordering-policy", "Earliest latency target first."),
	}
}
