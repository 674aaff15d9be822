package scrape

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// oracle reads a page with the Prometheus parser and evaluates it in a simple way. ok is false for
// a page that the parser refuses.
func oracle(page []byte, engine endpoint.EngineType) (p Page, known, ok bool) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return p, false, false
	}
	o := reader{families}
	p.Started = o.started()
	for _, d := range dialects {
		if engine != endpoint.EngineUnknown && d.engine != engine {
			continue
		}
		waiting, running := o.series(d.waiting), o.series(d.running)
		use := o.series(d.use)
		if d.engine == endpoint.EngineVLLM && len(use) == 0 {
			use = o.series("vllm:gpu_cache_usage_perc")
		}
		if len(waiting)+len(running)+len(use) == 0 {
			continue
		}
		p.Engine, p.Ranks = d.engine, o.ranks(d.waiting)
		p.Waiting, p.Running, p.KVUse = whole(sum(waiting)), whole(sum(running)), min(mean(use), 1)
		o.cache(&p, d)
		hits := append(o.series(d.hits), o.series(d.more)...)
		p.QueryTokens, p.HitTokens, p.Counts = sum(o.series(d.queries)), sum(hits), len(hits) > 0
		p.Generated = sum(o.series(d.generated))
		ends := append(o.series(d.ended), o.series(d.aborted)...)
		p.Ended, p.EndsCount = sum(ends), len(ends) > 0
		p.LoRA = o.lora(d)
		for _, name := range d.firsts {
			o.addHistogram(&p.Latency.First, name)
		}
		for _, name := range d.gaps {
			o.addHistogram(&p.Latency.Gap, name)
		}
		return p, true, true
	}
	return p, false, true
}

// dialect holds the series names of one engine: a name, or a name with a label value after a slash.
type dialect struct {
	engine                                                endpoint.EngineType
	waiting, running, use, queries, hits, more, generated string
	ended, aborted                                        string
	config, size, blocks                                  string // of labels, or of series when config is ""
	firsts, gaps                                          []string
}

var dialects = []dialect{
	{engine: endpoint.EngineVLLM, waiting: "vllm:num_requests_waiting", running: "vllm:num_requests_running", use: "vllm:kv_cache_usage_perc",
		queries: "vllm:prefix_cache_queries_total", hits: "vllm:prefix_cache_hits_total", more: "vllm:external_prefix_cache_hits_total", generated: "vllm:generation_tokens_total", ended: "vllm:request_success_total", config: "vllm:cache_config_info", size: "block_size", blocks: "num_gpu_blocks",
		firsts: []string{"vllm:time_to_first_token_seconds"}, gaps: []string{"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"}},
	{engine: endpoint.EngineSGLang, waiting: "sglang:num_queue_reqs", running: "sglang:num_running_reqs", use: "sglang:token_usage",
		queries: "sglang:prompt_tokens_total", hits: "sglang:cached_tokens_total", generated: "sglang:generation_tokens_total", ended: "sglang:num_requests_total", aborted: "sglang:num_aborted_requests_total", config: "sglang:cache_config_info", size: "page_size", blocks: "num_pages",
		firsts: []string{"sglang:time_to_first_token_seconds"}, gaps: []string{"sglang:inter_token_latency_seconds"}},
	{engine: endpoint.EngineTRTLLM, waiting: "trtllm_num_requests_waiting", running: "trtllm_num_requests_running", use: "trtllm_kv_cache_utilization",
		queries: "trtllm_prompt_tokens_total", hits: "trtllm_prompt_cached_tokens_total", size: "trtllm_kv_cache_tokens_per_block", blocks: "trtllm_kv_cache_max_blocks",
		firsts: []string{"trtllm_time_to_first_token_seconds"}, gaps: []string{"trtllm_time_per_output_token_seconds"}},
	{engine: endpoint.EngineTriton, waiting: "nv_trt_llm_request_metrics/waiting", running: "nv_trt_llm_request_metrics/scheduled",
		use: "nv_trt_llm_kv_cache_block_metrics/fraction", size: "nv_trt_llm_kv_cache_block_metrics/tokens_per",
		blocks: "nv_trt_llm_kv_cache_block_metrics/max"},
}

type reader struct{ families map[string]*dto.MetricFamily }

// series returns the finite values of a name that are not negative.
func (r reader) series(name string) []float64 {
	name, want, _ := strings.Cut(name, "/")
	var out []float64
	for _, m := range r.families[name].GetMetric() {
		label := map[bool]string{true: "request_type", false: "kv_cache_block_type"}[strings.HasSuffix(name, "request_metrics")]
		if v, ok := valueOf(m); ok && (want == "" || labelOf(m, label) == want) {
			out = append(out, v)
		}
	}
	return out
}

// addHistogram adds the sum and the count of a histogram, whether or not its type is declared.
func (r reader) addHistogram(to *endpoint.LatencySum, name string) {
	for _, m := range r.families[name].GetMetric() {
		if h := m.GetHistogram(); h != nil {
			if v := h.GetSampleSum(); h.SampleSum != nil && v >= 0 && v <= maxNumber {
				to.Seconds += v
			}
			to.Count += float64(h.GetSampleCount())
		}
	}
	to.Seconds += sum(r.series(name + "_sum"))
	to.Count += sum(r.series(name + "_count"))
}

// ranks counts the ranks in the series of a gauge, at least one. Gauges with other distinguishing
// labels (Triton) have no rank.
func (r reader) ranks(name string) int {
	found := map[uint64]bool{}
	for _, m := range r.families[name].GetMetric() {
		if _, ok := valueOf(m); !ok {
			continue
		}
		for _, label := range []string{"engine", "dp_rank"} {
			if n, err := strconv.ParseUint(labelOf(m, label), 10, 10); err == nil {
				found[n] = true
			}
		}
	}
	return max(len(found), 1)
}

func (r reader) started() time.Time {
	if v := r.series("process_start_time_seconds"); len(v) == 1 {
		return time.UnixMilli(int64(math.Round(min(v[0], 1e12) * 1e3)))
	}
	return time.Time{}
}

func (r reader) cache(p *Page, d dialect) {
	if d.config == "" {
		p.BlockSize = whole(mean(r.series(d.size)))
		p.Blocks = whole(sum(r.series(d.blocks)))
		return
	}
	var cached, uncached bool
	defer func() { p.Uncached = uncached && !cached }()
	for _, m := range r.families[d.config].GetMetric() {
		if _, ok := valueOf(m); !ok {
			continue
		}
		switch labelOf(m, "enable_prefix_caching") {
		case "":
		case "False":
			uncached = true
		default:
			cached = true
		}
		size, _ := strconv.ParseUint(labelOf(m, d.size), 10, 31)
		blocks, _ := strconv.ParseUint(labelOf(m, d.blocks), 10, 31)
		p.BlockSize = max(p.BlockSize, int(size))
		if d.engine == endpoint.EngineVLLM {
			p.Blocks = max(p.Blocks, int(blocks)) // each series counts all blocks
		} else {
			p.Blocks += int(blocks)
		}
	}
}

func (r reader) lora(d dialect) *endpoint.LoRA {
	var newest *dto.Metric
	for _, m := range r.families["vllm:lora_requests_info"].GetMetric() {
		v, ok := valueOf(m)
		if !ok || d.engine != endpoint.EngineVLLM {
			continue
		}
		old, _ := valueOf(cmp.Or(newest, m))
		if v >= old {
			newest = m
		}
	}
	if newest == nil {
		return nil
	}
	most, _ := strconv.ParseUint(labelOf(newest, "max_lora"), 10, 31)
	words := func(name string) (out []string) {
		for _, w := range strings.Split(labelOf(newest, name), ",") {
			if w = strings.TrimSpace(w); w != "" {
				out = append(out, w)
			}
		}
		return out
	}
	return &endpoint.LoRA{Max: int(most), Running: words("running_lora_adapters"), Waiting: words("waiting_lora_adapters")}
}

func valueOf(m *dto.Metric) (float64, bool) {
	var v float64
	switch {
	case m.Gauge != nil:
		v = m.Gauge.GetValue()
	case m.Counter != nil:
		v = m.Counter.GetValue()
	case m.Untyped != nil:
		v = m.Untyped.GetValue()
	default:
		return 0, false
	}
	return v, v >= 0 && v <= 1e18
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func sum(vs []float64) (total float64) {
	for _, v := range vs {
		total += v
	}
	return total
}

func mean(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	return sum(vs) / float64(len(vs))
}

// noise adds histograms and counters of a page's usual size around the relevant series.
func noise(b *bytes.Buffer, families int) {
	for f := range families {
		name := []string{"vllm:time_to_first_token_seconds", "vllm:request_prompt_tokens", "vllm:e2e_request_latency_seconds", "http_request_duration_seconds"}[f%4]
		name = fmt.Sprintf("%s_%d", name, f)
		fmt.Fprintf(b, "# HELP %s Histogram of something that takes its time in seconds.\n# TYPE %s histogram\n", name, name)
		for bucket := range 22 {
			fmt.Fprintf(b, "%s_bucket{engine=\"0\",le=\"%d.0\",model_name=\"Qwen/Qwen3-8B-Instruct-2507\"} %d.0\n", name, bucket, bucket*1000)
		}
		fmt.Fprintf(b, "%s_bucket{engine=\"0\",le=\"+Inf\",model_name=\"Qwen/Qwen3-8B-Instruct-2507\"} 22000.0\n", name)
		fmt.Fprintf(b, "%s_count{engine=\"0\",model_name=\"Qwen/Qwen3-8B-Instruct-2507\"} 22000.0\n", name)
		fmt.Fprintf(b, "%s_sum{engine=\"0\",model_name=\"Qwen/Qwen3-8B-Instruct-2507\"} 7.7312e+06\n", name)
	}
}
