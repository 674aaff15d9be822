package plugins

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins/policies"
)

// Builtin returns the table of this package. Package pd adds more types.
func Builtin() plugin.Table {
	return slices.Concat(filterTypes(), scorerTypes(), policyTypes(), pickerTypes(), handlerTypes(), producerTypes(), plugin.SettingTypes(), plugin.DetectorTypes())
}

func filterTypes() plugin.Table {
	role := func(name string, r endpoint.Role, summary string) plugin.Type {
		return plugin.Type{Name: name, Kind: plugin.KindFilter, Summary: summary, New: plugin.Fixed(plugin.Plugin{Filter: roleFilter(r)})}
	}
	return plugin.Table{
		role("decode-filter", endpoint.RoleDecode, "Keeps endpoints that serve whole requests or decode."),
		role("prefill-filter", endpoint.RolePrefill, "Keeps endpoints that prefill for others."),
		role("encode-filter", endpoint.RoleEncode, "Keeps endpoints that encode images and sound."),
		{Name: "label-selector-filter", Aliases: []string{"by-label-selector"}, Kind: plugin.KindFilter,
			Summary: "Keeps endpoints whose labels match a selector.", New: plugin.WithParams(selectorParams{}, newSelector)},
		{Name: "by-label", Kind: plugin.KindFilter,
			Summary: "Keeps endpoints whose label has one of the given values.", New: plugin.WithParams(byLabelParams{}, newByLabel)},
		{Name: "prefix-cache-affinity-filter", Kind: plugin.KindFilter,
			Summary: "Keeps endpoints that hold most of the prompt, unless they are much later.",
			New:     newAffinityType},
		{Name: "slo-headroom-tier-filter", Kind: plugin.KindFilter,
			Summary: "Keeps endpoints that are expected to meet the request's latency targets.",
			New:     plugin.WithParams(sloTierParams{EpsilonExploreNeg: .01}, newSLOTier)},
		{Name: "session-affinity-filter", Kind: plugin.KindFilter,
			Summary: "Keeps the endpoint of the session's last request alone.", Aliases: []string{"multicluster-session-affinity-filter"},
			New: plugin.WithParams(sessionParams{}, newSessionFilter)},
		{Name: "utilization-filter", Aliases: []string{"active-request-filter"}, Kind: plugin.KindFilter,
			Summary: "Leaves out endpoints over bounds of requests, queue or KV use.",
			New:     plugin.WithParams(utilizationFilterParams{}, newUtilizationFilter)},
		{Name: "topology-affinity-filter", Kind: plugin.KindFilter,
			Summary: "Keeps endpoints near the peer chosen before.", New: plugin.WithParams(topologyParams{MinAffinity: "host"}, newTopology)},
		{Name: "low-queue-filter", Aliases: []string{"low-queue"}, Kind: plugin.KindFilter,
			Summary: "Keeps endpoints whose queue is not over a threshold.", New: plugin.WithParams(usualLowQueue, newLowQueue)},
		{Name: "least-queue-filter", Aliases: []string{"least-queue"}, Kind: plugin.KindFilter,
			Summary: "Keeps the endpoints with the shortest queues.", New: plugin.Fixed(plugin.Plugin{Filter: firstRange{waiting, true}})},
		{Name: "least-kv-cache-filter", Aliases: []string{"least-kv-cache"}, Kind: plugin.KindFilter,
			Summary: "Keeps the endpoints with the most free KV cache.", New: plugin.Fixed(plugin.Plugin{Filter: firstRange{kvUse, false}})},
		{Name: "lora-affinity-filter", Aliases: []string{"lora-affinity"}, Kind: plugin.KindFilter,
			Summary: "Keeps endpoints that have the request's adapter at hand, or room for it.", New: plugin.WithParams(usualLoRAFilter, newLoRAFilter)},
		{Name: "decision-tree-filter", Aliases: []string{"decision-tree"}, Kind: plugin.KindFilter,
			Summary: "Applies a filter, and then another one by its result.", New: plugin.WithParams(treeParams{}, newTree)},
		{Name: "model-affinity-filter", Kind: plugin.KindFilter,
			Summary: "Keeps endpoints whose label equals the request's model.",
			New:     plugin.WithParams(modelAffinityParams{LabelKey: "model", ModelHeader: "x-gateway-model-name"}, newModelAffinity)},
		{Name: "endpoint-attribute-filter", Kind: plugin.KindFilter,
			Summary: "Compares a custom gauge of the engine, or a number in a label, with a threshold.", New: plugin.WithParams(attributeFilterParams{OnMissing: "Pass"}, newAttributeFilter)},
		{Name: "expression-filter", Kind: plugin.KindFilter,
			Summary: "Keeps endpoints for which an expression is true.",
			New:     plugin.WithParams(expressionFilterParams{}, newExpressionFilter)},
		{Name: "wasm-filter", Kind: plugin.KindFilter,
			Summary: "Keeps endpoints for which a WebAssembly module decides so.", New: newWasmFilter},
		{Name: "endpoint-pin-screener", Kind: plugin.KindFilter,
			Summary: "Keeps the endpoint that the header " + headerEndpointPin + " names, in every profile.", New: newPin(headerEndpointPin)},
		{Name: "prefill-pin-screener", Kind: plugin.KindFilter,
			Summary: "Keeps the endpoint that the header " + headerPrefillPin + " names, in every profile.", New: newPin(headerPrefillPin)},
		{Name: "disaggregatedset-rollout-screener", Kind: plugin.KindFilter,
			Summary: "Keeps the endpoints of one revision for each request, in proportion to the revisions' endpoints.",
			New:     plugin.WithParams(usualRollout(), newRollout)},
		{Name: "header-based-testing-filter", Kind: plugin.KindFilter,
			Summary: "Keeps the endpoints that a test header names.",
			New:     plugin.Fixed(plugin.Plugin{Filter: plugin.HeaderTesting{}, Scorer: plugin.HeaderTesting{}})},
	}
}

func scorerTypes() plugin.Table {
	return plugin.Table{
		{Name: "predicted-ttft-scorer", Kind: plugin.KindScorer,
			Summary: "Predicted time to first token and what the request costs others, in seconds. The default.",
			New:     plugin.WithParams(predictedDefaults, newPredicted)},
		{Name: "prefix-cache-scorer", Aliases: []string{"prefix-cache", "multicluster-prefix-cache-scorer"}, Kind: plugin.KindScorer,
			Summary: "The part of the prompt that the endpoint holds.", New: plugin.WithParams(prefixParams{}, newPrefixScorer)},
		{Name: "precise-prefix-cache-scorer", Kind: plugin.KindScorer,
			Summary: "The part of the prompt that the endpoint holds.", New: plugin.WithParams(usualPrecise, newPreciseScorer)},
		{Name: "queue-scorer", Aliases: []string{"queue-depth-scorer"}, Kind: plugin.KindScorer,
			Summary: "Fewest waiting requests, by min-max.", New: plugin.WithParams(queueParams{}, newQueue)},
		{Name: "kv-cache-utilization-scorer", Aliases: []string{"kv-cache-scorer"}, Kind: plugin.KindScorer,
			Summary: "The free part of the KV cache.", New: plugin.Fixed(plugin.Plugin{Scorer: kvUseScorer{}})},
		{Name: "running-requests-size-scorer", Aliases: []string{"running-requests-scorer"}, Kind: plugin.KindScorer,
			Summary: "Fewest running requests, by min-max.", New: plugin.Fixed(plugin.Plugin{Scorer: fewest(running)})},
		{Name: "active-request-scorer", Kind: plugin.KindScorer,
			Summary: "Fewest requests in flight.", New: plugin.WithParams(activeParams{MaxBusyScore: 1}, newActive)},
		{Name: "token-load-scorer", Kind: plugin.KindScorer,
			Summary: "Fewest tokens to be computed before first tokens, against a threshold.", New: plugin.WithParams(tokenLoadParams{QueueThresholdTokens: defaultQueueTokens}, newTokenLoad)},
		{Name: "lmetric-scorer", Kind: plugin.KindScorer,
			Summary: "Least uncached tokens × requests in flight, by min-max.", New: plugin.WithParams(lmetricParams{}, newLMetric)},
		{Name: "load-aware-scorer", Kind: plugin.KindScorer,
			Summary: "Short queues, 0.5 at most.", New: plugin.WithParams(loadAwareParams{Threshold: defaultLoadThreshold}, newLoadAware)},
		{Name: "lora-affinity-scorer", Kind: plugin.KindScorer,
			Summary: "Endpoints that have the request's adapter at hand.", New: plugin.Fixed(plugin.Plugin{Scorer: loraScorer{}})},
		{Name: "session-affinity-scorer", Kind: plugin.KindScorer,
			Summary: "The endpoint of the session's last request.", New: plugin.WithParams(sessionParams{}, newSessionScorer)},
		{Name: "no-hit-lru-scorer", Kind: plugin.KindScorer,
			Summary: "Spreads requests that have no cached prefix at any endpoint.", New: plugin.WithParams(noHitParams{LRUSize: defaultNoHit}, newNoHit)},
		{Name: "context-length-aware", Aliases: []string{"context-length-aware-scorer"}, Kind: plugin.KindScorer,
			Summary: "Endpoints labelled for inputs of this length.", New: plugin.WithParams(contextParams{Label: labelContext}, newContextLength)},
		{Name: "accelerator-capability-aware", Kind: plugin.KindScorer,
			Summary: "Endpoints labelled for requests of this size.", New: plugin.WithParams(contextParams{Label: labelCapability}, newContextLength)},
		{Name: "endpoint-attribute-weight-scorer", Kind: plugin.KindScorer,
			Summary: "Weights of the values of an endpoint label.", New: plugin.WithParams(attributeWeightParams{}, newAttributeWeight)},
		{Name: "endpoint-attribute-scorer", Kind: plugin.KindScorer,
			Summary: "A custom gauge of the engine or a number in a label, on a linear scale.", New: plugin.WithParams(attributeScorerParams{}, newAttributeScorer)},
		{Name: "multicluster-queue-scorer", Kind: plugin.KindScorer,
			Summary: "Shortest queue in the mean of a cluster's engines, by min-max.",
			New:     plugin.Fixed(clusterScorer(plugin.GaugeClusterQueue, attributeScorer{lower: true}))},
		{Name: "multicluster-kv-cache-utilization-scorer", Kind: plugin.KindScorer,
			Summary: "The free part of the KV caches of a cluster's engines, in the mean.",
			New:     plugin.Fixed(clusterScorer(plugin.GaugeClusterKVUse, attributeScorer{lower: true, fixed: true, high: 1}))},
		{Name: "expression-scorer", Kind: plugin.KindScorer,
			Summary: "The value of an expression.", New: plugin.WithParams(expressionScorerParams{}, newExpressionScorer)},
		{Name: "wasm-scorer", Kind: plugin.KindScorer,
			Summary: "The score of a WebAssembly module.", New: newWasmScorer},
		{Name: "transfer-cost-scorer", Kind: plugin.KindScorer,
			Summary: "Time that a prompt's blocks take to the endpoint chosen before, in seconds.", New: plugin.WithParams(TransferDefaults(), newTransfer)},
		{Name: "header-label-affinity-scorer", Kind: plugin.KindScorer,
			Summary: "Endpoints whose label equals a request header.", New: plugin.WithParams(headerLabelParams{}, newHeaderLabel)},
		{Name: "topology-affinity-scorer", Kind: plugin.KindScorer,
			Summary: "Endpoints near the one chosen before.", New: plugin.WithParams(topologyScorerParams{}, newTopologyScorer)},
		{Name: "latency-scorer", Kind: plugin.KindScorer,
			Summary: "Headroom under the request's latency targets.",
			New: plugin.WithParams(latencyParams{TTFTWeight: .8, TPOTWeight: .2, HeadroomSelectionStrategy: "least",
				CompositeKVWeight: 1, CompositeQueueWeight: 1, CompositePrefixWeight: 1}, newLatency)},
	}
}

func policyTypes() plugin.Table {
	ready := func(name, summary string, s cycle.Scorer) plugin.Type {
		return plugin.Type{Name: name, Kind: plugin.KindPolicy, Summary: summary, New: plugin.Fixed(plugin.Plugin{Scorer: s, Picker: policies.FirstScore(fallbacks)})}
	}
	return plugin.Table{
		ready("lmetric-policy", "Least (pending + new prefill) × requests.", policies.LMetric{}),
		ready("load-only-policy", "Fewest requests.", policies.LoadOnly{}),
		ready("sticky-policy", "A session stays where it began.", policies.Sticky{}),
		{Name: "unified-policy", Kind: plugin.KindPolicy, Summary: "A session stays while that pays, else lmetric.",
			New: plugin.WithParams(policies.UnifiedParams{HitThreshold: .5, LoadFactor: 2}, newUnified)},
		{Name: "dynamo-cost-policy", Kind: plugin.KindPolicy, Summary: "The cost rule of NVIDIA Dynamo's KV router.",
			New: plugin.WithParams(policies.DynamoParams{OverlapScoreWeight: 1, BlockSize: 16}, newDynamo)},
		{Name: "cache-aware-policy", Kind: plugin.KindPolicy, Summary: "The rule of SGLang's router with balance thresholds.",
			New: plugin.WithParams(policies.CacheAwareParams{CacheThreshold: .3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5}, newCacheAware)},
	}
}

func pickerTypes() plugin.Table {
	p := pickerParams{MaxNumOfEndpoints: fallbacks}
	return plugin.Table{
		{Name: "max-score-picker", Aliases: []string{"max-score"}, Kind: plugin.KindPicker,
			Summary: "The best total, ties at random.", New: plugin.WithParams(p, newMaxScore)},
		{Name: "random-picker", Aliases: []string{"random"}, Kind: plugin.KindPicker, Summary: "Anybody.", New: plugin.WithParams(p, newRandom)},
		{Name: "weighted-random-picker", Aliases: []string{"weighted-random"}, Kind: plugin.KindPicker,
			Summary: "At random, in proportion to the totals.", New: plugin.WithParams(p, newWeightedRandom)},
	}
}

func handlerTypes() plugin.Table {
	return plugin.Table{
		{Name: "single-profile-handler", Aliases: []string{"single-profile", "simple-profile-handler"}, Kind: plugin.KindHandler,
			Summary: "One profile for every request.", New: plugin.Fixed(plugin.Plugin{Handler: newSingle})},
		{Name: "data-parallel-profile-handler", Kind: plugin.KindHandler,
			Summary: "One profile over ranks that are reached at one port.", New: plugin.WithParams(dataParallelParams{PrimaryPort: 8000}, newDataParallel)},
		{Name: "header-profile-handler", Kind: plugin.KindHandler, Summary: "The profile that a request header names.",
			New: plugin.WithParams(headerProfileParams{"EPP-Profile", "decode"}, newHeaderProfile)},
	}
}

func producerTypes() plugin.Table {
	return plugin.Table{
		{Name: "approx-prefix-cache-producer", Aliases: []string{"multicluster-approx-prefix-cache-producer"}, Kind: plugin.KindProducer, Summary: "Settings of the approximate prefix index.",
			New: plugin.WithParams(approxParams{}, newApproxProducer)},
		{Name: "precise-prefix-cache-producer", Kind: plugin.KindProducer, Summary: "Settings of the precise prefix index.",
			New: plugin.WithParams(usualPrecise, newPreciseProducer)},
		{Name: "served-model-filter", Kind: plugin.KindProducer, Summary: "Built in.",
			Note: "every decision uses the endpoints that list the request's model, if there are any",
			New:  plugin.WithParams(servedModelParams{OnMissing: "Pass"}, newServedModel)},
		{Name: "probabilistic-admitter", Kind: plugin.KindProducer, Summary: "Refuses requests of negative priority at random, the more the pool is loaded.",
			New: plugin.WithParams(usualProbabilistic, newProbabilistic)},
		{Name: "p2p-source-producer", Kind: plugin.KindProducer, Summary: "Names the endpoint from which an engine may fetch the blocks of a prompt.",
			New: plugin.WithParams(usualPull, newPull)},
		{Name: "engine-priority-producer", Kind: plugin.KindProducer, Summary: "Writes the priority by which engines order their queues into requests, by predicted prefill.",
			New: plugin.WithParams(urgencyDefaults, newUrgency)},
	}
}
