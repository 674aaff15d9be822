package plugin

import "github.com/grapevine-epp/grapevine/picker/endpoint"

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
	noteObjects  = "no plugin here reads other objects; pools, objectives and rewrites are always watched"
	noteHistory  = "no plugin here reads the history of sessions"
)

// builtIn is the factory of types whose function is built in. It accepts any parameters.
func builtIn(p *Params) (Plugin, error) {
	return Plugin{}, p.Read(&map[string]Unchecked{})
}

type notificationParams struct {
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func newNotification(p notificationParams) (Plugin, error) {
	return Plugin{}, Faults(Require(p.Version != "", "version", "is required"), Require(p.Kind != "", "kind", "is required"))
}

type fileDiscoveryParams struct {
	Path      string `json:"path"`
	WatchFile bool   `json:"watchFile"`
}

func newFileDiscovery(p fileDiscoveryParams) (Plugin, error) {
	return Plugin{File: &FileDiscovery{Path: p.Path, Watch: p.WatchFile}}, Require(p.Path != "", "path", "is needed")
}

type topologyExtractorParams struct {
	Hostname string `json:"hostname"`
	Rack     string `json:"rack"`
	Zone     string `json:"zone"`
	Region   string `json:"region"`
}

// newTopologyExtractor names the labels by which the topology plugins compare endpoints.
func newTopologyExtractor(p topologyExtractorParams) (Plugin, error) {
	labels := TopologyLabels{p.Hostname, p.Rack, p.Zone, p.Region}
	return Plugin{Topology: &labels}, Faults(Require(p.Hostname != "", "hostname", "must not be empty"), Require(p.Rack != "", "rack", "must not be empty"),
		Require(p.Zone != "", "zone", "must not be empty"), Require(p.Region != "", "region", "must not be empty"))
}

// usualTopology are the default labels.
func usualTopology() topologyExtractorParams {
	l := endpoint.Levels
	return topologyExtractorParams{
		Hostname: l[endpoint.LevelHost].Label, Rack: l[endpoint.LevelRack].Label,
		Zone: l[endpoint.LevelZone].Label, Region: l[endpoint.LevelRegion].Label,
	}
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
		{Name: "program-admission", Kind: KindProducer, Summary: "Keeps new agent runs waiting while the contexts of running ones fill the engines' memory.",
			New: WithParams(programParams{Share: .8, MaxWait: "5m"}, newProgramAdmission)},
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
		{Name: "multicluster-metrics-data-source", Kind: KindSource, Summary: "Sets the location of the metrics pages of clusters' endpoint pickers.",
			New: WithParams(metricsSourceParams{Scheme: "https", Path: "/metrics"}, newClusterSource)},
		{Name: "multicluster-metrics-extractor", Kind: KindSource, Summary: "Sets how the metrics pages of clusters' endpoint pickers are read.",
			New: WithParams(clusterExtractorParams{KVUse: "llm_d_epp_average_kv_cache_utilization", Queue: "llm_d_epp_average_queue_size"}, newClusterExtractor)},
		{Name: "k8s-notification-source", Kind: KindSource, Summary: "Built in.", Note: noteObjects,
			New: WithParams(notificationParams{}, newNotification)},
		done(KindSource, "models-data-source", noteDefaults),
		done(KindSource, "models-data-extractor", noteDefaults),
		done(KindSource, "endpoint-notification-source", noteDefaults),
		{Name: "topology-extractor", Kind: KindSource, Summary: "Names the labels with endpoints' locations for the topology plugins.",
			New: WithParams(usualTopology(), newTopologyExtractor)},
		done(KindProducer, "sheddable-eviction-filter", noteEvict, "eviction-sheddable-filter"),
		done(KindProducer, "priority-then-time-eviction-order-policy", noteEvict, "eviction-priority-then-time-ordering"),
		done(KindParser, "openai-parser", noteParser),
		done(KindParser, "anthropic-parser", noteParser),
		done(KindParser, "vllmhttp-parser", noteParser, "vllm-http-parser"),
		done(KindParser, "sglang-parser", noteParser, "sglanghttp-parser"),
		done(KindParser, "passthrough-parser", noteParser),
		{Name: "file-discovery", Aliases: []string{"file-discovery-plugin", "multicluster-file-discovery"}, Kind: KindDiscovery,
			Summary: "Endpoints from a file.", New: WithParams(fileDiscoveryParams{WatchFile: true}, newFileDiscovery)},
	}
}
