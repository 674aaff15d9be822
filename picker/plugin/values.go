package plugin

import (
	"encoding/json"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Unchecked is a parameter that is accepted and not looked into.
type Unchecked = json.RawMessage

// Producer is what the configuration says about the making of request data:
// the index, session keys. The daemon's wiring applies it; zero fields mean
// that nothing was said.
type Producer struct {
	Precise       bool               // named a precise index
	BlockTokens   int                // tokens per block of the approximate index
	MatchBlocks   int                // longest match looked for, in blocks
	BlocksPerEP   int                // blocks remembered per endpoint where its own figures are not known
	FixedCapacity bool               // do not size the index by the endpoint's own figures
	Tiers         *cycle.TierWeights // nil means the usual ones
	Events        endpoint.Events    // of endpoints for which nothing is said; zero: the engines are asked
	EventsListen  string             // where engines that dial in publish to; "" for nowhere
	Sessions      []request.SessionSource
	FlowHeaders   []string                                                            // that name flows where there is no fairness id
	SessionTable  int                                                                 // bindings remembered
	Urgency       func(c *cycle.Cycle, endpoints []string, own float64) (int64, bool) // as picker.Rules has it
	UrgencyTold   string                                                              // what it does, in one line
	TokenHeader   string                                                              // in which answers hand out the endpoint's token; "": none is handed out
}

// FileDiscovery is where endpoints come from, when the configuration says so.
type FileDiscovery struct {
	Path  string
	Watch bool
}

// EngineMetrics is what the configuration says about engines' metrics pages.
// Zero fields mean that nothing was said.
type EngineMetrics struct {
	Label   string        // of endpoints, that names their engine
	Default string        // engine of endpoints without the label
	Engines []EngineNames // names of the user's

	Scheme, Path string
	TLS          PageTLS
	Port         int // 0: the endpoint's own
}

// EngineNames are the gauges of one engine: name, or name{label=value}; "" for
// those that it does not have.
type EngineNames struct {
	Name            string `json:"name"`
	QueuedRequests  string `json:"queuedRequestsSpec,omitempty"`
	RunningRequests string `json:"runningRequestsSpec,omitempty"`
	KVUsage         string `json:"kvUsageSpec,omitempty"`
	LoRA            string `json:"loraSpec,omitempty"`
	CacheInfo       string `json:"cacheInfoSpec,omitempty"`

	// Not read; see core-metrics-extractor.
	CacheBlockSizeLabelName string    `json:"cacheBlockSizeLabelName,omitempty"`
	CacheNumBlocksLabelName string    `json:"cacheNumBlocksLabelName,omitempty"`
	CacheBlockSizeSpec      string    `json:"cacheBlockSizeSpec,omitempty"`
	CacheNumBlocksSpec      string    `json:"cacheNumBlocksSpec,omitempty"`
	CustomMetrics           Unchecked `json:"customMetrics,omitempty"`
}

// FlowPolicy is a policy of flow control: what it says depends on the kind of its
// type.
type FlowPolicy struct {
	Fairness rules.Fairness     // of flows within a priority band
	Service  rules.Service      // with rules.LeastService
	Weights  map[string]float64 // of flows, by fairness id
	Ordering rules.Ordering     // of requests within a flow
	// Limit makes the limit of how much of the capacity each band may use.
	Limit func() rules.UsageLimit
}
