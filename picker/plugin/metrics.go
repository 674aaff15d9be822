package plugin

import (
	"cmp"
	"fmt"
	"slices"
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
			Require(e.QueuedRequests+e.RunningRequests+e.KVUsage != "" || e.adds(), fmt.Sprintf("engineConfigs[%d]", i), "must name at least one gauge"))
		errs = append(errs, e.checkCustom(fmt.Sprintf("engineConfigs[%d].customMetrics", i))...)
		seen[e.Name] = true
	}
	errs = append(errs, Require(p.DefaultEngine == "" || seen[p.DefaultEngine] || known(p.DefaultEngine),
		"defaultEngine", "must be one of engineConfigs, or "+strings.Join(endpoint.EngineLabels(), ", ")))
	var differs []string
	cache := p.CacheFields != CacheFields{}
	for _, e := range p.EngineConfigs {
		cache = cache || e.CacheBlockSizeLabelName+e.CacheNumBlocksLabelName+e.CacheBlockSizeSpec+e.CacheNumBlocksSpec != ""
	}
	if cache {
		differs = append(differs, "known engines report their cache size; for others, set the capacity of approx-prefix-cache-producer")
	}
	return Plugin{Metrics: m, Differs: differs}, Faults(errs...)
}

// adds reports whether the entry adds custom gauges to the built-in names of a known engine.
func (e *EngineNames) adds() bool {
	return known(e.Name) && len(e.CustomMetrics) > 0 && e.LoRA+e.CacheInfo == ""
}

// mostCustom is the maximum number of custom gauges of one engine.
const mostCustom = 32

// checkCustom returns the problems of the custom gauges, which stand at a place of the file.
func (e *EngineNames) checkCustom(at string) []error {
	errs := []error{Require(len(e.CustomMetrics) <= mostCustom, at, fmt.Sprintf("may list %d at most", mostCustom))}
	seen := map[string]bool{}
	for i, m := range e.CustomMetrics {
		at := fmt.Sprintf("%s[%d].", at, i)
		errs = append(errs,
			Require(m.AttributeKey != "", at+"attributeKey", "is required"),
			Require(!seen[m.AttributeKey], at+"attributeKey", "is used twice"),
			Require(m.MetricSpec != "", at+"metricSpec", "is required"),
			Require(slices.Contains([]string{"", "first", "sum", "mean", "max"}, m.Combine), at+"combine", "must be first, sum, mean or max"))
		seen[m.AttributeKey] = true
	}
	return errs
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

// Gauges that multicluster-metrics-extractor reads from the metrics page of a cluster's endpoint picker:
// means over the cluster's engines.
const (
	GaugeClusterQueue = "llm-d.ai/multicluster-queue-size"
	GaugeClusterKVUse = "llm-d.ai/multicluster-kv-cache-utilization"
)

type clusterExtractorParams struct {
	KVUse string `json:"kvCacheUtilizationMetric"`
	Queue string `json:"queueSizeMetric"`
}

// newClusterExtractor configures pages of endpoints that are clusters. Such a page has means of a pool
// instead of an engine's gauges.
func newClusterExtractor(p clusterExtractorParams) (Plugin, error) {
	const name = "cluster"
	return Plugin{Metrics: &EngineMetrics{Default: name, Engines: []EngineNames{{
		Name: name, QueuedRequests: p.Queue, KVUsage: p.KVUse,
		CustomMetrics: []CustomMetric{{AttributeKey: GaugeClusterQueue, MetricSpec: p.Queue}, {AttributeKey: GaugeClusterKVUse, MetricSpec: p.KVUse}},
	}}}}, Faults(Require(p.Queue != "", "queueSizeMetric", "must not be empty"), Require(p.KVUse != "", "kvCacheUtilizationMetric", "must not be empty"))
}

// newClusterSource configures where the metrics pages of clusters are.
func newClusterSource(p metricsSourceParams) (Plugin, error) {
	out, err := newMetricsSource(p)
	out.Metrics.ByLabel = true
	return out, err
}
