package config

import (
	"maps"
	"slices"
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
	"enableInFlightLoadProducer": "load is the in-flight book of all replicas, always kept",
}

func gateNames() []string { return slices.Sorted(maps.Keys(knownGates)) }

// elsewhere are other pickers' plugin types that do not exist here, with the replacement.
var elsewhere = map[string]string{
	"pd-slo-pair-optimizer":                     "the pair is judged together anyway; use disagg-profile-handler",
	"pd-slo-profile-handler":                    "use disagg-profile-handler with latency-scorer",
	"ed-profile-handler":                        "use disagg-profile-handler with deciders.encode",
	"e-pd-profile-handler":                      "use disagg-profile-handler with deciders.encode",
	"slo-request-tracker":                       "use latency-scorer: latencies are learned by themselves",
	"slo-scorer":                                "use latency-scorer",
	"slo-aware-routing":                         "use latency-scorer",
	"predicted-latency-scorer":                  "use latency-scorer",
	"slo-aware-profile-handler":                 "use single-profile-handler with latency-scorer",
	"predicted-latency-profile-handler":         "use single-profile-handler with latency-scorer",
	"prefix-cache-tracking-scorer":              "use precise-prefix-cache-scorer",
	"kvcache-aware-scorer":                      "use precise-prefix-cache-scorer",
	"prefix-aware-scorer":                       "use prefix-cache-scorer",
	"least-queue-filter":                        "use queue-scorer",
	"least-kv-cache-filter":                     "use kv-cache-utilization-scorer",
	"low-queue-filter":                          "use utilization-filter",
	"lora-affinity-filter":                      "use lora-affinity-scorer",
	"decision-tree-filter":                      "use scorers with weights",
	"probabilistic-admitter":                    "saturation and priorities decide on admission; see flowControl",
	"burst-prefix-cache-producer":               "leave it out: a decision counts as cached at once, so a burst with one prefix stays together",
	"mm-embeddings-cache-producer":              "leave it out: use session-affinity-scorer to keep images where they were",
	"mm-embeddings-cache-scorer":                "use session-affinity-scorer to keep images where they were",
	"dp-rank-header-handler":                    "list each rank as an endpoint, and use data-parallel-profile-handler",
	"endpoint-attribute-filter":                 "use utilization-filter",
	"endpoint-attribute-scorer":                 "use kv-cache-utilization-scorer or running-requests-size-scorer",
	"dcgm-data-source":                          "leave it out: load is counted from decisions and the engines' own gauges",
	"dcgm-extractor":                            "leave it out: load is counted from decisions and the engines' own gauges",
	"models-responder":                          "leave it out: GET /v1/models is sent to an endpoint",
	"thunder-agent":                             "use predicted-ttft-scorer",
	"k8s-notification-source":                   "leave it out: endpoints come from the endpoints file",
	"request-attribute-reporter":                "leave it out: see grapevine-lab record",
	"max-saturation-detector":                   "use utilization-detector or concurrency-detector",
	"vllmgrpc-parser":                           "leave it out: what is not understood is placed by load alone",
	"vertexai-parser":                           "leave it out: what is not understood is placed by load alone",
	"multicluster-session-affinity-filter":      federated,
	"multicluster-queue-scorer":                 federated,
	"multicluster-kv-cache-utilization-scorer":  federated,
	"multicluster-prefix-cache-scorer":          federated,
	"multicluster-approx-prefix-cache-producer": federated,
	"multicluster-file-discovery":               federated,
	"multicluster-metrics-data-source":          federated,
	"multicluster-metrics-extractor":            federated,
	"p2p-source-producer":                       "use kvSource: peers of predicted-ttft-scorer: it names the engine to pull from where that pays",
	"disaggregatedset-rollout-screener":         "use label-selector-filter and objectives: revisions are not gated",
	"lmetric-scorer":                            "use lmetric-policy, which is that rule",
	"models-source":                             "leave it out: the lists of models are always read",
}

// federated is the hint for endpoints that are clusters.
const federated = "endpoints that stand for clusters are not scored here: pools of several clusters lend each other capacity by federation (grapevine federation, InferencePoolImport)"
