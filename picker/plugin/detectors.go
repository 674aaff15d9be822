package plugin

// DetectorTypes returns the types that say when a pool is full and name how requests
// wait, in the order of the manual.
func DetectorTypes() Table {
	return append(Table{
		{Name: "utilization-detector", Kind: KindDetector, Summary: "Saturation by gauges.",
			New: WithParams(utilizationParams{QueueDepthThreshold: 5, KVCacheUtilThreshold: .8, MetricsStalenessThreshold: "200ms"}, newUtilization)},
		{Name: "concurrency-detector", Kind: KindDetector, Summary: "Saturation by requests or tokens in flight.",
			New: WithParams(concurrencyParams{ConcurrencyMode: "requests", MaxConcurrency: 100, MaxTokenConcurrency: 1_000_000}, newConcurrency)},
	}, policies()...)
}
