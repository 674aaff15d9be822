package plugin

import (
	"encoding/json"
	"github.com/grapevine-epp/grapevine/picker/programs"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Unchecked is a parameter that is accepted without validation.
type Unchecked = json.RawMessage

// Producer is the configuration of request data: the index and session keys. The server applies it;
// zero fields are unset.
type Producer struct {
	Precise       bool               // refers to a precise index
	BlockTokens   int                // tokens per block of the approximate index
	MatchBlocks   int                // longest match, in blocks
	BlocksPerEP   int                // blocks per endpoint if its own size is unknown
	FixedCapacity bool               // do not size the index by the endpoint's own figures
	Tiers         *cycle.TierWeights // nil means the defaults
	Events        endpoint.Events    // default for endpoints; zero: the engines are queried
	EventsListen  string             // address for engines that dial in; "" for none
	Sessions      []request.SessionSource
	FlowHeaders   []string                                                            // headers with the flow if there is no fairness ID
	SessionTable  int                                                                 // size of the session table
	Urgency       func(c *cycle.Cycle, endpoints []string, own float64) (int64, bool) // see picker.Rules
	UrgencyText   string                                                              // description of Urgency in one line
	Programs      *programs.Config                                                    // how agent runs are admitted; nil: they are not
	TokenHeader   string                                                              // response header for the endpoint's token; "": none
	Stamps        []Stamp                                                             // response headers with labels of the endpoint
}

// Stamp is a response header with the value of a label of the endpoint that the request was sent to.
type Stamp struct{ Header, Label string }

// FileDiscovery is the configured endpoints file.
type FileDiscovery struct {
	Path  string
	Watch bool
}

// EngineMetrics is the configuration of engines' metrics pages. Zero fields are unset.
type EngineMetrics struct {
	Label   string        // endpoint label with the engine's name
	Default string        // engine of endpoints without the label
	Engines []EngineNames // user-defined names

	Scheme, Path string
	TLS          PageTLS
	Port         int // 0: the endpoint's own port
	// ByLabel means that the labels metricsAddress and metricsPort of an endpoint replace the host and
	// the port of its page.
	ByLabel bool
}

// EngineNames are the gauges of one engine: name, or name{label=value}; "" for missing ones.
type EngineNames struct {
	Name            string `json:"name"`
	QueuedRequests  string `json:"queuedRequestsSpec,omitempty"`
	RunningRequests string `json:"runningRequestsSpec,omitempty"`
	KVUsage         string `json:"kvUsageSpec,omitempty"`
	LoRA            string `json:"loraSpec,omitempty"`
	CacheInfo       string `json:"cacheInfoSpec,omitempty"`

	// CustomMetrics are further gauges, for scorers, filters and expressions.
	CustomMetrics []CustomMetric `json:"customMetrics,omitempty"`

	// Not used; see core-metrics-extractor.
	CacheBlockSizeLabelName string `json:"cacheBlockSizeLabelName,omitempty"`
	CacheNumBlocksLabelName string `json:"cacheNumBlocksLabelName,omitempty"`
	CacheBlockSizeSpec      string `json:"cacheBlockSizeSpec,omitempty"`
	CacheNumBlocksSpec      string `json:"cacheNumBlocksSpec,omitempty"`
}

// CustomMetric is a gauge of an engine's metrics page under a configured name.
type CustomMetric struct {
	AttributeKey string `json:"attributeKey"`
	MetricSpec   string `json:"metricSpec"`
	// Combine is first, sum, mean or max: the rule for several series, one of each rank for example.
	Combine string `json:"combine,omitempty"`
}

// FlowPolicy is a flow control policy. The fields in use depend on the type's kind.
type FlowPolicy struct {
	Fairness rules.Fairness     // among flows in a priority band
	Service  rules.Service      // for rules.LeastService and rules.MostTurns
	Weights  map[string]float64 // by fairness ID
	Ordering rules.Ordering     // of requests in a flow
	// Limit builds the limit of each band's capacity.
	Limit func() rules.UsageLimit
}
