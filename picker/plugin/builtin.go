package plugin

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Notes of types with built-in functions.
const (
	noteParser   = "request forms are recognised by their path"
	noteTokens   = "prompts are matched as text; no tokenizer is called"
	noteLoad     = "the in-flight load of all replicas is always tracked"
	noteLatency  = "latencies are learned from the response path, always on"
	noteAdmit    = "requests of negative priority whose latency target no endpoint meets are always rejected with 429"
	noteEvict    = "with flowControl.enableEviction, requests of negative priority are evicted, lowest priority and newest first"
	noteServed   = "answers name the endpoint that served"
	noteDefaults = "always active"
	noteHeaders  = "the profile handler sets the headers"
	noteModels   = "GET /v1/models is always answered with the models of all endpoints"
	noteHistory  = "no plugin here reads the history of sessions"
)

// builtIn is the factory of types whose function is built in. It accepts any parameters.
func builtIn(p *Params) (Plugin, error) {
	return Plugin{}, p.Read(&map[string]Unchecked{})
}

type fileDiscoveryParams struct {
	Path      string `json:"path"`
	WatchFile bool   `json:"watchFile"`
}

func newFileDiscovery(p fileDiscoveryParams) (Plugin, error) {
	return Plugin{File: &FileDiscovery{Path: p.Path, Watch: p.WatchFile}}, Require(p.Path != "", "path", "is needed")
}

// topologyLabels are the labels with endpoints' locations.
var topologyLabels = []string{"kubernetes.io/hostname", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"}

// newTopologyExtractor rejects other label names: they would leave endpoints without a comparable
// location and change the choice.
func newTopologyExtractor(p *Params) (Plugin, error) {
	names := map[string]string{}
	err := p.Read(&names)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		err = errors.Join(err, Foreign(names[name] != "" && !slices.Contains(topologyLabels, names[name]), name, Replacement{
			Use: "use the labels " + strings.Join(topologyLabels, ", "), Lost: "other label names",
		}))
	}
	return Plugin{}, err
}

// SettingTypes returns the types without a role in scheduling, in the manual's order. Their
// settings reach the rest of the program through [Plugin]. Other pickers' types with built-in
// functions are accepted, and their note names the replacement.
func SettingTypes() Table {
	done := func(kind Kind, name, note string, aliases ...string) Type {
		return Type{Name: name, Aliases: aliases, Kind: kind, Summary: "Built in.", Note: note, New: builtIn}
	}
	return Table{
		{Name: "session-id-producer", Kind: KindProducer, Summary: "Reads the session key of requests.",
			New: WithParams(sessionIDParams{}, newSessionID)},
		{Name: "agent-identity", Kind: KindProducer, Summary: "Reads session and flow names that agents send.",
			New: WithParams(agentParams{}, newAgentIdentity)},
		done(KindProducer, "token-producer", noteTokens, "tokenizer"),
		done(KindProducer, "inflight-load-producer", noteLoad),
		done(KindProducer, "predicted-latency-producer", noteLatency),
		done(KindProducer, "latency-slo-admitter", noteAdmit),
		done(KindProducer, "destination-endpoint-served-verifier", noteServed),
		done(KindProducer, "models-responder", noteModels),
		done(KindProducer, "session-state-producer", noteHistory),
		{Name: "label-producer", Kind: KindProducer, Summary: "Publishes endpoint labels as attributes for the endpoint-attribute plugins.",
			New: WithParams(labelProducerParams{}, newLabelProducer)},
		done(KindProducer, "disagg-headers-handler", noteHeaders, "prefill-header-handler"),
		{Name: "metrics-data-source", Kind: KindSource, Summary: "Sets the location of engines' metrics pages.",
			New: WithParams(metricsSourceParams{Scheme: "http", Path: "/metrics", InsecureSkipVerify: true}, newMetricsSource)},
		{Name: "core-metrics-extractor", Aliases: []string{"model-server-protocol-metrics"}, Kind: KindSource,
			Summary: "Sets how engines' metrics pages are read.", New: WithParams(extractorParams{}, newExtractor)},
		done(KindSource, "models-data-source", noteDefaults),
		done(KindSource, "models-data-extractor", noteDefaults),
		done(KindSource, "endpoint-notification-source", noteDefaults),
		{Name: "topology-extractor", Kind: KindSource, Summary: "Built in.", Note: noteDefaults, New: newTopologyExtractor},
		done(KindProducer, "sheddable-eviction-filter", noteEvict, "eviction-sheddable-filter"),
		done(KindProducer, "priority-then-time-eviction-order-policy", noteEvict, "eviction-priority-then-time-ordering"),
		done(KindParser, "openai-parser", noteParser),
		done(KindParser, "anthropic-parser", noteParser),
		done(KindParser, "vllmhttp-parser", noteParser, "vllm-http-parser"),
		done(KindParser, "sglang-parser", noteParser, "sglanghttp-parser"),
		done(KindParser, "passthrough-parser", noteParser),
		{Name: "file-discovery", Aliases: []string{"file-discovery-plugin"}, Kind: KindDiscovery,
			Summary: "Endpoints from a file.", New: WithParams(fileDiscoveryParams{WatchFile: true}, newFileDiscovery)},
	}
}
