package plugin

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// extractorParams are the parameters of core-metrics-extractor in all generations. The oldest has
// the gauge names of all endpoints at the top level.
type extractorParams struct {
	EngineLabelKey  string        `json:"engineLabelKey,omitempty"`
	DefaultEngine   string        `json:"defaultEngine,omitempty"`
	EngineConfigs   []EngineNames `json:"engineConfigs,omitempty"`
	QueuedRequests  string        `json:"queuedRequestsSpec,omitempty"`
	RunningRequests string        `json:"runningRequestsSpec,omitempty"`
	KVUsage         string        `json:"kvUsageSpec,omitempty"`
	LoRA            string        `json:"loraSpec,omitempty"`
	CacheInfo       string        `json:"cacheInfoSpec,omitempty"`
	CacheFields
}

// CacheFields name the labels or gauges with the cache size. They are not used: each engine's known
// ones are read.
type CacheFields struct {
	CacheBlockSizeLabelName string `json:"cacheBlockSizeLabelName,omitempty"`
	CacheNumBlocksLabelName string `json:"cacheNumBlocksLabelName,omitempty"`
	CacheBlockSizeSpec      string `json:"cacheBlockSizeSpec,omitempty"`
	CacheNumBlocksSpec      string `json:"cacheNumBlocksSpec,omitempty"`
}

// topEngine is the name for gauges at the top level of the oldest generation.
const topEngine = "as-configured"

func newExtractor(p extractorParams) (Plugin, error) {
	m := &EngineMetrics{Label: p.EngineLabelKey, Default: p.DefaultEngine, Engines: p.EngineConfigs}
	top := EngineNames{
		Name: topEngine, QueuedRequests: p.QueuedRequests, RunningRequests: p.RunningRequests,
		KVUsage: p.KVUsage, LoRA: p.LoRA, CacheInfo: p.CacheInfo,
	}
	if top.QueuedRequests+top.RunningRequests+top.KVUsage+top.LoRA+top.CacheInfo != "" {
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
		errs = append(errs, Require(e.Name != "", at, "is needed"), Require(!seen[e.Name], at, "stands there twice: "+e.Name),
			Require(e.QueuedRequests+e.RunningRequests+e.KVUsage != "", fmt.Sprintf("engineConfigs[%d]", i), "must name at least one gauge"))
		seen[e.Name] = true
	}
	errs = append(errs, Require(p.DefaultEngine == "" || seen[p.DefaultEngine] || known(p.DefaultEngine),
		"defaultEngine", "must be one of engineConfigs, or "+strings.Join(engineNames, ", ")))
	var differs []string
	cache, custom := p.CacheFields != CacheFields{}, false
	for _, e := range p.EngineConfigs {
		cache = cache || e.CacheBlockSizeLabelName+e.CacheNumBlocksLabelName+e.CacheBlockSizeSpec+e.CacheNumBlocksSpec != ""
		custom = custom || len(e.CustomMetrics) > 0
	}
	if cache {
		differs = append(differs, "the size of the cache is read where known engines say it; give approx-prefix-cache-producer a capacity for others")
	}
	if custom {
		differs = append(differs, "customMetrics are not read: nothing here reads endpoint attributes")
	}
	return Plugin{Metrics: m, Differs: differs}, Faults(errs...)
}

// engineNames are the engines with known gauges.
var engineNames = []string{
	endpoint.EngineVLLM.String(), endpoint.EngineSGLang.String(), endpoint.EngineTRTLLM.String(), endpoint.EngineTriton.String(),
}

func known(engine string) bool { return endpoint.EngineOf(engine) != endpoint.EngineUnknown }

type metricsSourceParams struct {
	Scheme             string `json:"scheme"`
	Path               string `json:"path"`
	InsecureSkipVerify bool   `json:"insecureSkipVerify"`
	Port               int    `json:"port,omitempty"`
	Interval           string `json:"interval,omitempty"`
	CACertPath         string `json:"caCertPath,omitempty"`
	ClientCertPath     string `json:"clientCertPath,omitempty"`
	ClientKeyPath      string `json:"clientKeyPath,omitempty"`
}

func newMetricsSource(p metricsSourceParams) (Plugin, error) {
	m := &EngineMetrics{Scheme: p.Scheme, Path: p.Path, TLS: PageTLS{p.InsecureSkipVerify, p.CACertPath, p.ClientCertPath, p.ClientKeyPath}, Port: p.Port}
	var differs []string
	if p.Interval != "" {
		differs = append(differs, "load is counted, not scraped: pages are read every --scrape-slow, near saturation every --scrape-fast")
	}
	return Plugin{Metrics: m, Differs: differs}, Faults(
		Require(p.Port >= 0 && p.Port < 1<<16, "port", "must be a port"), Duration("interval", p.Interval),
		Require((p.ClientCertPath == "") == (p.ClientKeyPath == ""), "clientCertPath", "and clientKeyPath belong together"),
		Require(p.Scheme == "http" || p.Scheme == "https", "scheme", "must be http or https"),
		Require(p.Path != "", "path", "must not be empty"))
}
