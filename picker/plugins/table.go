package plugins

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Notes of types whose work is built in.
const (
	noteParser   = "request forms are recognised by their path"
	noteTokens   = "prompts are matched as text; no tokenizer is called"
	noteLoad     = "load is the in-flight book of all replicas, always kept"
	noteLatency  = "latencies are learned from the response path, always on"
	noteDefaults = "part of what is always there"
	noteHeaders  = "the profile handler sets the headers"
)

// Table is a list of plugin types, in the order of the manual.
type Table []Type

// Builtin is the table of this package. Package pd has more rows.
func Builtin() Table {
	return slices.Concat(filterTypes(), scorerTypes(), policyTypes(), pickerTypes(), handlerTypes(), dataTypes(), flowTypes())
}

// With returns the table with more types, each behind the others of its kind;
// they replace rows of the same name.
func (t Table) With(more ...Type) Table {
	out := slices.DeleteFunc(slices.Clone(t), func(row Type) bool {
		return slices.ContainsFunc(more, func(m Type) bool { return m.Name == row.Name })
	})
	for _, m := range more {
		at := len(out)
		for i, row := range out {
			if row.Kind == m.Kind {
				at = i + 1
			}
		}
		out = slices.Insert(out, at, m)
	}
	return out
}

// Find returns the type of a name or alias.
func (t Table) Find(name string) (Type, bool) {
	for _, row := range t {
		if row.Name == name || slices.Contains(row.Aliases, name) {
			return row, true
		}
	}
	return Type{}, false
}

// Names returns all names, without aliases, in the order of the table.
func (t Table) Names() []string {
	out := make([]string, len(t))
	for i, row := range t {
		out[i] = row.Name
	}
	return out
}

func filterTypes() Table {
	role := func(name string, r endpoint.Role, summary string) Type {
		return Type{Name: name, Kind: KindFilter, Summary: summary, New: Fixed(Plugin{Filter: roleFilter(r)})}
	}
	return Table{
		role("decode-filter", endpoint.RoleDecode, "Keeps endpoints that serve whole requests or decode."),
		role("prefill-filter", endpoint.RolePrefill, "Keeps endpoints that prefill for others."),
		role("encode-filter", endpoint.RoleEncode, "Keeps endpoints that encode images and sound."),
		{Name: "label-selector-filter", Aliases: []string{"by-label-selector"}, Kind: KindFilter,
			Summary: "Keeps endpoints whose labels match a selector.", New: WithParams(selectorParams{}, newSelector)},
		{Name: "by-label", Kind: KindFilter,
			Summary: "Keeps endpoints whose label has one of the given values.", New: WithParams(byLabelParams{}, newByLabel)},
		{Name: "prefix-cache-affinity-filter", Kind: KindFilter,
			Summary: "Keeps endpoints that hold most of the prompt, unless they are much later.",
			New:     WithParams(affinityParams{AffinityThreshold: .8, ExplorationProbability: .01, MaxTTFTPenaltyMs: 5000}, newPrefixAffinity)},
		{Name: "slo-headroom-tier-filter", Kind: KindFilter,
			Summary: "Keeps endpoints that are expected to meet the request's latency targets.",
			New:     WithParams(sloTierParams{EpsilonExploreNeg: .01}, newSLOTier)},
		{Name: "session-affinity-filter", Kind: KindFilter,
			Summary: "Keeps the endpoint of the session's last request alone.", New: WithParams(sessionParams{}, newSessionFilter)},
		{Name: "utilization-filter", Kind: KindFilter,
			Summary: "Leaves out endpoints over bounds of requests, queue or KV use.",
			New:     WithParams(utilizationFilterParams{}, newUtilizationFilter)},
		{Name: "topology-affinity-filter", Kind: KindFilter,
			Summary: "Keeps endpoints near the peer chosen before.", New: WithParams(topologyParams{MinAffinity: "host"}, newTopology)},
		{Name: "header-based-testing-filter", Kind: KindFilter,
			Summary: "Keeps the endpoints that a test header names.",
			New:     Fixed(Plugin{Filter: headerTesting{}, Scorer: headerTesting{}})},
	}
}

func scorerTypes() Table {
	return Table{
		{Name: "predicted-ttft-scorer", Kind: KindScorer,
			Summary: "Predicted time to first token and what the request costs others, in seconds. The default.",
			New:     WithParams(predictedDefaults, newPredicted)},
		{Name: "prefix-cache-scorer", Aliases: []string{"prefix-cache"}, Kind: KindScorer,
			Summary: "The part of the prompt that the endpoint holds.", New: WithParams(prefixParams{}, newPrefixScorer)},
		{Name: "precise-prefix-cache-scorer", Kind: KindScorer,
			Summary: "Matched tokens, relative to the other holders.", New: WithParams(usualPrecise, newPreciseScorer)},
		{Name: "queue-scorer", Aliases: []string{"queue-depth-scorer"}, Kind: KindScorer,
			Summary: "Fewest waiting requests, by min-max.", New: WithParams(queueParams{}, newQueue)},
		{Name: "kv-cache-utilization-scorer", Aliases: []string{"kv-cache-scorer"}, Kind: KindScorer,
			Summary: "The free part of the KV cache.", New: Fixed(Plugin{Scorer: kvUseScorer{}})},
		{Name: "running-requests-size-scorer", Aliases: []string{"running-requests-scorer"}, Kind: KindScorer,
			Summary: "Fewest running requests, by min-max.", New: Fixed(Plugin{Scorer: fewest(running)})},
		{Name: "active-request-scorer", Kind: KindScorer,
			Summary: "Fewest requests in flight.", New: WithParams(activeParams{MaxBusyScore: 1}, newActive)},
		{Name: "token-load-scorer", Kind: KindScorer,
			Summary: "Fewest tokens in flight, against a threshold.", New: WithParams(tokenLoadParams{QueueThresholdTokens: 4194304}, newTokenLoad)},
		{Name: "load-aware-scorer", Kind: KindScorer,
			Summary: "Short queues, 0.5 at most.", New: WithParams(loadAwareParams{Threshold: 128}, newLoadAware)},
		{Name: "lora-affinity-scorer", Kind: KindScorer,
			Summary: "Endpoints that have the request's adapter at hand.", New: Fixed(Plugin{Scorer: loraScorer{}})},
		{Name: "session-affinity-scorer", Kind: KindScorer,
			Summary: "The endpoint of the session's last request.", New: WithParams(sessionParams{}, newSessionScorer)},
		{Name: "no-hit-lru-scorer", Kind: KindScorer,
			Summary: "Spreads requests of which nobody holds anything.", New: WithParams(noHitParams{LRUSize: 1024}, newNoHit)},
		{Name: "context-length-aware", Aliases: []string{"context-length-aware-scorer"}, Kind: KindScorer,
			Summary: "Endpoints labelled for inputs of this length.", New: WithParams(contextParams{Label: labelContext}, newContextLength)},
		{Name: "transfer-cost-scorer", Kind: KindScorer,
			Summary: "Time that a prompt's blocks take to the endpoint chosen before, in seconds.", New: WithParams(transferDefaults(), newTransfer)},
		{Name: "latency-scorer", Kind: KindScorer,
			Summary: "Headroom under the request's latency targets.",
			New: WithParams(latencyParams{TTFTWeight: .8, TPOTWeight: .2, HeadroomSelectionStrategy: "least",
				CompositeKVWeight: 1, CompositeQueueWeight: 1, CompositePrefixWeight: 1}, newLatency)},
	}
}

func policyTypes() Table {
	ready := func(name, summary string, s picker.Scorer) Type {
		return Type{Name: name, Kind: KindPolicy, Summary: summary, New: Fixed(Plugin{Scorer: s, Picker: firstScore(fallbacks)})}
	}
	return Table{
		ready("lmetric-policy", "Least (pending + new prefill) × requests.", lmetric{}),
		ready("load-only-policy", "Fewest requests.", loadOnly{}),
		ready("sticky-policy", "A session stays where it began.", sticky{}),
		{Name: "unified-policy", Kind: KindPolicy, Summary: "A session stays while that pays, else lmetric.",
			New: WithParams(unifiedParams{HitThreshold: .5, LoadFactor: 2}, newUnified)},
		{Name: "dynamo-cost-policy", Kind: KindPolicy, Summary: "The cost rule of NVIDIA Dynamo's KV router.",
			New: WithParams(dynamoParams{OverlapScoreWeight: 1, BlockSize: 16}, newDynamo)},
		{Name: "cache-aware-policy", Kind: KindPolicy, Summary: "The rule of SGLang's router with balance thresholds.",
			New: WithParams(cacheAwareParams{CacheThreshold: .3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5}, newCacheAware)},
	}
}

func pickerTypes() Table {
	p := pickerParams{MaxNumOfEndpoints: fallbacks}
	return Table{
		{Name: "max-score-picker", Aliases: []string{"max-score"}, Kind: KindPicker,
			Summary: "The best total, ties at random.", New: WithParams(p, newMaxScore)},
		{Name: "random-picker", Aliases: []string{"random"}, Kind: KindPicker, Summary: "Anybody.", New: WithParams(p, newRandom)},
		{Name: "weighted-random-picker", Aliases: []string{"weighted-random"}, Kind: KindPicker,
			Summary: "At random, in proportion to the totals.", New: WithParams(p, newWeightedRandom)},
	}
}

func handlerTypes() Table {
	return Table{
		{Name: "single-profile-handler", Aliases: []string{"single-profile", "simple-profile-handler"}, Kind: KindHandler,
			Summary: "One profile for every request.", New: Fixed(Plugin{Handler: newSingle})},
		{Name: "data-parallel-profile-handler", Kind: KindHandler,
			Summary: "One profile over ranks that are reached at one port.", New: WithParams(dataParallelParams{PrimaryPort: 8000}, newDataParallel)},
		{Name: "header-profile-handler", Kind: KindHandler, Summary: "The profile that a request header names.",
			New: WithParams(headerProfileParams{"EPP-Profile", "decode"}, newHeaderProfile)},
		{Name: "predicted-pd-decider", Kind: KindDecider, Summary: "Splits requests whose first token is then expected earlier.",
			New: WithParams(predictedDeciderParams{transferDefaults(), .06}, newPredictedDecider)},
	}
}

func dataTypes() Table {
	done := func(kind Kind, name, note string, aliases ...string) Type {
		return Type{Name: name, Aliases: aliases, Kind: kind, Summary: "Built in.", Note: note, New: builtIn}
	}
	return Table{
		{Name: "approx-prefix-cache-producer", Kind: KindProducer, Summary: "Settings of the approximate prefix index.",
			New: WithParams(IndexParams{}, newApproxProducer)},
		{Name: "precise-prefix-cache-producer", Kind: KindProducer, Summary: "Settings of the precise prefix index.",
			New: WithParams(usualPrecise, newPreciseProducer)},
		{Name: "session-id-producer", Kind: KindProducer, Summary: "Where requests carry their session key.",
			New: WithParams(sessionIDParams{}, newSessionID)},
		done(KindProducer, "token-producer", noteTokens, "tokenizer"),
		done(KindProducer, "inflight-load-producer", noteLoad),
		done(KindProducer, "predicted-latency-producer", noteLatency),
		done(KindProducer, "disagg-headers-handler", noteHeaders, "prefill-header-handler"),
		{Name: "metrics-data-source", Kind: KindSource, Summary: "Where engines' metrics pages are.",
			New: WithParams(metricsSourceParams{"http", "/metrics", true}, newMetricsSource)},
		{Name: "core-metrics-extractor", Aliases: []string{"model-server-protocol-metrics"}, Kind: KindSource,
			Summary: "How engines' metrics pages are read.", New: WithParams(extractorParams{}, newExtractor)},
		done(KindSource, "models-data-source", noteDefaults),
		done(KindSource, "models-data-extractor", noteDefaults),
		done(KindSource, "endpoint-notification-source", noteDefaults),
		done(KindSource, "topology-extractor", noteDefaults),
		done(KindParser, "openai-parser", noteParser),
		done(KindParser, "anthropic-parser", noteParser),
		done(KindParser, "vllmhttp-parser", noteParser, "vllm-http-parser"),
		done(KindParser, "sglang-parser", noteParser),
		done(KindParser, "passthrough-parser", noteParser),
		{Name: "file-discovery", Aliases: []string{"file-discovery-plugin"}, Kind: KindDiscovery,
			Summary: "Endpoints from a file.", New: WithParams(fileDiscoveryParams{WatchFile: true}, newFileDiscovery)},
	}
}

func flowTypes() Table {
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
