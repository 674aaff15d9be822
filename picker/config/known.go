package config

import (
	"maps"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// knownGates are other pickers' feature gates and why they have no effect here; "" for gates with
// an effect.
var knownGates = map[string]string{
	gateFlowControl:              "",
	"dataLayer":                  "engine metrics are always read by the built-in poller",
	"prepareDataPlugins":         "data is always prepared before scheduling",
	"enableLegacyMetrics":        "names of all engine generations are read",
	"experimentalDatalayer":      "engine metrics are always read by the built-in poller",
	"experimentalDatalayerV2":    "engine metrics are always read by the built-in poller",
	"experimentalPrepareData":    "data is always prepared before scheduling",
	"experimentalFlowControl":    "write flowControl",
	"enableInFlightLoadProducer": "the in-flight load of all replicas is always tracked",
}

func gateNames() []string { return slices.Sorted(maps.Keys(knownGates)) }

// foreignTypes are other pickers' plugin types that do not exist here.
var foreignTypes = map[string]plugin.Replacement{
	"pd-slo-pair-optimizer":              {Use: "use disagg-profile-handler with predicted-pd-decider", Lost: "pairs chosen by latency targets: pairs are chosen by predicted time"},
	"pd-slo-profile-handler":             {Use: "use disagg-profile-handler with latency-scorer", Lost: "targets for each stage"},
	"ed-profile-handler":                 {Use: "use disagg-profile-handler with deciders.encode", Lost: "nothing"},
	"e-pd-profile-handler":               {Use: "use disagg-profile-handler with deciders.encode", Lost: "nothing"},
	"slo-request-tracker":                {Use: "leave it out, and use latency-scorer: latencies are learned", Lost: "the series of this plugin"},
	"slo-scorer":                         {Use: "use latency-scorer", Lost: "the trained model: latencies are learned from answers"},
	"slo-aware-routing":                  {Use: "use latency-scorer", Lost: "the trained model: latencies are learned from answers"},
	"predicted-latency-scorer":           {Use: "use latency-scorer", Lost: "the trained model: latencies are learned from answers"},
	"slo-aware-profile-handler":          {Use: "use single-profile-handler with latency-scorer", Lost: "the second profile for requests without targets"},
	"predicted-latency-profile-handler":  {Use: "use single-profile-handler with latency-scorer", Lost: "the second profile for requests without targets"},
	"prefix-cache-tracking-scorer":       {Use: "use precise-prefix-cache-scorer", Lost: "nothing"},
	"kvcache-aware-scorer":               {Use: "use precise-prefix-cache-scorer", Lost: "an index in Redis: replicas share theirs"},
	"prefix-aware-scorer":                {Use: "use prefix-cache-scorer", Lost: "nothing"},
	"burst-prefix-cache-producer":        {Use: "leave it out: a decision counts as cached at once", Lost: "the window in which requests wait for others with the same prompt"},
	"mm-embeddings-cache-producer":       {Use: "use session-affinity-scorer, or prefix-cache-scorer: prompts include their images", Lost: "matches of an image that other prompts contain"},
	"mm-embeddings-cache-scorer":         {Use: "use session-affinity-scorer, or prefix-cache-scorer: prompts include their images", Lost: "matches of an image that other prompts contain"},
	"dp-rank-header-handler":             {Use: "use data-parallel-profile-handler, with each rank as an endpoint", Lost: "the rank header of the engine: ranks are chosen by port"},
	"dcgm-data-source":                   {Use: "leave it out: load is counted from decisions and engines' gauges", Lost: "the use of GPUs by processes other than the engine"},
	"dcgm-extractor":                     {Use: "leave it out: load is counted from decisions and engines' gauges", Lost: "the use of GPUs by processes other than the engine"},
	"thunder-agent":                      {Use: "use program-admission, agent-identity and session-affinity-scorer", Lost: "its parameters, and saturation by the footprint of programs"},
	"request-attribute-reporter":         {Use: "use grapevine-lab record, or the metrics of tokens", Lost: "token counts in the proxy's metadata for each request"},
	"max-saturation-detector":            {Use: "use utilization-detector or concurrency-detector", Lost: "the maximum of several detectors"},
	"vllmgrpc-parser":                    {Use: "leave it out: calls that are not understood are placed by load", Lost: "prefix matching of gRPC calls"},
	"vertexai-parser":                    {Use: "leave it out: calls that are not understood are placed by load", Lost: "prefix matching of these calls"},
	"models-source":                      {Use: "leave it out: engines' lists of models are always read", Lost: "nothing"},
	"latency-observer-producer-hub":      {Use: "use predicted-ttft-scorer: first-token times are learned for each endpoint", Lost: "percentiles by load at dispatch"},
	"latency-observation-scorer-hub":     {Use: "use predicted-ttft-scorer, or latency-scorer", Lost: "explorationRate: endpoints without observations are not probed on purpose"},
	"mrl-scorer-hub":                     {Use: "use predicted-ttft-scorer", Lost: "the ranking by residual sojourn time"},
	"reserve-endpoint":                   {Use: "use disagg-profile-handler: it names the prefill endpoint to the decode engine in a header", Lost: "answers that name an endpoint without sending the request there"},
	"session-manager":                    {Use: "use session-id-producer or agent-identity", Lost: "session ids in engines' requests and KV events"},
	"session-interturn-latency-producer": {Use: "leave it out: sessions keep their endpoint by session-affinity-scorer", Lost: "predicted times of a session's next turn"},
	"kv-cache-retention":                 {Use: "leave it out: engines evict by their own rule", Lost: "retention of a session's blocks until its next turn"},
	"kv-cache-hint":                      {Use: "leave it out: engines evict by their own rule", Lost: "retention hints in requests"},
	"kv-cache-hint-v2":                   {Use: "leave it out: engines evict by their own rule", Lost: "retention hints in requests, and their budget"},
	"outlen-bucket":                      {Use: "leave it out: load is counted in prompt tokens until the first token", Lost: "the expected length of answers in token-load-scorer"},
	"no-hit-lru-filter":                  {Use: "use no-hit-lru-scorer", Lost: "the hard cut: a scorer only prefers endpoints that were not used for long"},
	"local-syncer":                       {Use: "leave it out: replicas share their state (--cluster)", Lost: "nothing"},
}
