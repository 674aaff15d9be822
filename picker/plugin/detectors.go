package plugin

// DetectorTypes returns saturation detectors and queueing policies, in the manual's order.
func DetectorTypes() Table {
	return append(Table{
		{Name: "utilization-detector", Kind: KindDetector, Summary: "Saturation by gauges.",
			New: WithParams(utilizationParams{QueueDepthThreshold: 5, KVCacheUtilThreshold: .8, MetricsStalenessThreshold: "200ms"}, newUtilization)},
		{Name: "concurrency-detector", Kind: KindDetector, Summary: "Saturation by requests or tokens in flight.",
			New: WithParams(concurrencyParams{ConcurrencyMode: "requests", MaxConcurrency: 100, MaxTokenConcurrency: 1_000_000}, newConcurrency)},
	}, policies()...)
}
