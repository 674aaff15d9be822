package settings

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// extractorParams are those of core-metrics-extractor in its generations. The
// oldest names the gauges of all endpoints at the top.
type extractorParams struct {
	EngineLabelKey  string               `json:"engineLabelKey,omitempty"`
	DefaultEngine   string               `json:"defaultEngine,omitempty"`
	EngineConfigs   []plugin.EngineNames `json:"engineConfigs,omitempty"`
	QueuedRequests  string               `json:"queuedRequestsSpec,omitempty"`
	RunningRequests string               `json:"runningRequestsSpec,omitempty"`
	KVUsage         string               `json:"kvUsageSpec,omitempty"`
	LoRA            string               `json:"loraSpec,omitempty"`
	CacheInfo       string               `json:"cacheInfoSpec,omitempty"`
}

// topEngine names the gauges that stand at the top of the oldest generation.
const topEngine = "as-configured"

func newExtractor(p extractorParams) (plugin.Plugin, error) {
	m := &plugin.EngineMetrics{Label: p.EngineLabelKey, Default: p.DefaultEngine, Engines: p.EngineConfigs}
	top := plugin.EngineNames{
		Name: topEngine, QueuedRequests: p.QueuedRequests, RunningRequests: p.RunningRequests,
		KVUsage: p.KVUsage, LoRA: p.LoRA, CacheInfo: p.CacheInfo,
	}
	if top != (plugin.EngineNames{Name: topEngine}) {
		top.QueuedRequests = cmp.Or(top.QueuedRequests, "vllm:num_requests_waiting")
		top.RunningRequests = cmp.Or(top.RunningRequests, "vllm:num_requests_running")
		top.KVUsage = cmp.Or(top.KVUsage, "vllm:kv_cache_usage_perc")
		top.LoRA = cmp.Or(top.LoRA, "vllm:lora_requests_info")
		top.CacheInfo = cmp.Or(top.CacheInfo, "vllm:cache_config_info")
		m.Engines, m.Default = append(m.Engines[:len(m.Engines):len(m.Engines)], top), topEngine
	}
	seen := map[string]bool{}
	var errs []error
	for i, e := range m.Engines {
		at := fmt.Sprintf("engineConfigs[%d].name", i)
		errs = append(errs, plugin.Require(e.Name != "", at, "is needed"), plugin.Require(!seen[e.Name], at, "stands there twice: "+e.Name),
			plugin.Require(e.QueuedRequests+e.RunningRequests+e.KVUsage != "", fmt.Sprintf("engineConfigs[%d]", i), "must name at least one gauge"))
		seen[e.Name] = true
	}
	errs = append(errs, plugin.Require(p.DefaultEngine == "" || seen[p.DefaultEngine] || known(p.DefaultEngine),
		"defaultEngine", "must be one of engineConfigs, or "+strings.Join(engineNames, ", ")))
	return plugin.Plugin{Metrics: m}, plugin.Faults(errs...)
}

// engineNames are the engines whose gauges are known.
var engineNames = []string{
	endpoint.EngineVLLM.String(), endpoint.EngineSGLang.String(), endpoint.EngineTRTLLM.String(), endpoint.EngineTriton.String(),
}

func known(engine string) bool { return endpoint.EngineOf(engine) != endpoint.EngineUnknown }

type metricsSourceParams struct {
	Scheme             string `json:"scheme"`
	Path               string `json:"path"`
	InsecureSkipVerify bool   `json:"insecureSkipVerify"`
}

func newMetricsSource(p metricsSourceParams) (plugin.Plugin, error) {
	return plugin.Plugin{Metrics: &plugin.EngineMetrics{Scheme: p.Scheme, Path: p.Path, SkipVerify: p.InsecureSkipVerify}}, plugin.Faults(
		plugin.Require(p.Scheme == "http" || p.Scheme == "https", "scheme", "must be http or https"),
		plugin.Require(p.Path != "", "path", "must not be empty"))
}
