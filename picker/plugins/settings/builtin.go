package settings

import "github.com/grapevine-epp/grapevine/picker/plugin"

// Notes of types whose work is built in.
const (
	noteParser   = "request forms are recognised by their path"
	noteTokens   = "prompts are matched as text; no tokenizer is called"
	noteLoad     = "load is the in-flight book of all replicas, always kept"
	noteLatency  = "latencies are learned from the response path, always on"
	noteAdmit    = "requests of a negative priority whose latency target nobody meets are always refused, with 429"
	noteServed   = "answers name the endpoint that served"
	noteDefaults = "part of what is always there"
	noteHeaders  = "the profile handler sets the headers"
)

// builtIn is the factory of types whose work this program does anyway: any
// parameters are accepted.
func builtIn(p *plugin.Params) (plugin.Plugin, error) {
	return plugin.Plugin{}, p.Read(&map[string]plugin.Loose{})
}

type fileDiscoveryParams struct {
	Path      string `json:"path"`
	WatchFile bool   `json:"watchFile"`
}

func newFileDiscovery(p fileDiscoveryParams) (plugin.Plugin, error) {
	return plugin.Plugin{File: &plugin.FileDiscovery{Path: p.Path, Watch: p.WatchFile}}, plugin.Require(p.Path != "", "path", "is needed")
}

// Types returns the rows of this package, in the order of the manual.
func Types() plugin.Table {
	done := func(kind plugin.Kind, name, note string, aliases ...string) plugin.Type {
		return plugin.Type{Name: name, Aliases: aliases, Kind: kind, Summary: "Built in.", Note: note, New: builtIn}
	}
	return plugin.Table{
		{Name: "session-id-producer", Kind: plugin.KindProducer, Summary: "Where requests carry their session key.",
			New: plugin.WithParams(sessionIDParams{}, newSessionID)},
		done(plugin.KindProducer, "token-producer", noteTokens, "tokenizer"),
		done(plugin.KindProducer, "inflight-load-producer", noteLoad),
		done(plugin.KindProducer, "predicted-latency-producer", noteLatency),
		done(plugin.KindProducer, "latency-slo-admitter", noteAdmit),
		done(plugin.KindProducer, "destination-endpoint-served-verifier", noteServed),
		done(plugin.KindProducer, "disagg-headers-handler", noteHeaders, "prefill-header-handler"),
		{Name: "metrics-data-source", Kind: plugin.KindSource, Summary: "Where engines' metrics pages are.",
			New: plugin.WithParams(metricsSourceParams{Scheme: "http", Path: "/metrics", InsecureSkipVerify: true}, newMetricsSource)},
		{Name: "core-metrics-extractor", Aliases: []string{"model-server-protocol-metrics"}, Kind: plugin.KindSource,
			Summary: "How engines' metrics pages are read.", New: plugin.WithParams(extractorParams{}, newExtractor)},
		done(plugin.KindSource, "models-data-source", noteDefaults),
		done(plugin.KindSource, "models-data-extractor", noteDefaults),
		done(plugin.KindSource, "endpoint-notification-source", noteDefaults),
		done(plugin.KindSource, "topology-extractor", noteDefaults),
		done(plugin.KindParser, "openai-parser", noteParser),
		done(plugin.KindParser, "anthropic-parser", noteParser),
		done(plugin.KindParser, "vllmhttp-parser", noteParser, "vllm-http-parser"),
		done(plugin.KindParser, "sglang-parser", noteParser, "sglanghttp-parser"),
		done(plugin.KindParser, "passthrough-parser", noteParser),
		{Name: "file-discovery", Aliases: []string{"file-discovery-plugin"}, Kind: plugin.KindDiscovery,
			Summary: "Endpoints from a file.", New: plugin.WithParams(fileDiscoveryParams{WatchFile: true}, newFileDiscovery)},
	}
}
