package gauge

// Values are the gauges of one sample. Statuses and explanations use the same JSON names.
type Values struct {
	Waiting int     `json:"engine_waiting"` // requests, all ranks
	Running int     `json:"engine_running"` // requests, all ranks
	KVUse   float64 `json:"kv_use"`         // used share of the KV cache, 0 to 1, mean of the ranks
	// Custom holds the gauges that the configuration names, of all ranks. A gauge that the page lacks
	// has no entry. Read-only.
	Custom map[string]float64 `json:"custom_gauges,omitempty"`
}
