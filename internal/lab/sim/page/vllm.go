package page

import (
	"fmt"
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// Options describe the engine that the page is of.
type Options struct {
	Model            string
	Ranks            int
	Core             engine.Config
	MaxLoRA          int
	NoProcessMetrics bool // as engines without the Python client's process collector
}

// New lays out the page of an engine with the names and about the size of
// a real one.
func New(o *Options) *Page {
	p := &Page{maxLoRA: o.MaxLoRA}
	if !o.NoProcessMetrics {
		p.python()
	}
	ranks := make([]string, o.Ranks)
	for r := range ranks {
		ranks[r] = fmt.Sprintf(`{engine="%d",model_name=%q}`, r, o.Model)
	}
	p.vllmGauges(ranks)
	p.vllmCounters(ranks)
	p.vllmHistograms(ranks, o.Core)
	p.unusedHistograms(ranks)
	p.cacheConfig(o)
	p.httpFamilies()
	return p
}

// perRank writes one series per rank.
func (p *Page) perRank(name string, ranks []string, read func(*Meter) float64) {
	for r, labels := range ranks {
		p.value(name+labels, func(v *view) float64 { return read(v.cores[r]) })
	}
}

func (p *Page) vllmGauges(ranks []string) {
	gauge := func(name, help string, read func(engine.Stats) float64) {
		p.family(name, "gauge", help)
		p.perRank(name, ranks, func(m *Meter) float64 { return read(m.stats) })
	}
	gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
		func(s engine.Stats) float64 { return float64(s.Running) })
	gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
		func(s engine.Stats) float64 { return float64(s.Waiting) })
	const reasons = "vllm:num_requests_waiting_by_reason"
	p.family(reasons, "gauge", "Number of waiting requests by reason.")
	for _, reason := range []string{"capacity", "deferred"} {
		for r, labels := range ranks {
			p.value(reasons+withLabel(labels, "reason", reason), func(v *view) float64 {
				if reason == "deferred" {
					return 0
				}
				return float64(v.cores[r].stats.Waiting)
			})
		}
	}
	const sleep = "vllm:engine_sleep_state"
	p.family(sleep, "gauge", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake.")
	for _, state := range []string{"awake", "weights_offloaded", "discard_all"} {
		for _, labels := range ranks {
			p.fixed(sleep+withLabel(labels, "sleep_state", state), map[string]float64{"awake": 1}[state])
		}
	}
	gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", engine.Stats.Usage)
}

func withLabel(labels, key, value string) string {
	return fmt.Sprintf("%s,%s=%q}", labels[:len(labels)-1], key, value)
}

func (p *Page) vllmCounters(ranks []string) {
	counter := func(name, help string, read func(*Meter) float64) {
		p.family(name+"_total", "counter", help)
		p.perRank(name+"_total", ranks, read)
		p.family(name+"_created", "gauge", help)
		for _, labels := range ranks {
			p.created(name, labels)
		}
	}
	stat := func(f func(engine.Stats) uint64) func(*Meter) float64 {
		return func(m *Meter) float64 { return float64(f(m.stats)) }
	}
	zero := func(*Meter) float64 { return 0 }
	counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", stat(func(s engine.Stats) uint64 { return s.QueryTokens }))
	counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", stat(func(s engine.Stats) uint64 { return s.HitTokens }))
	counter("vllm:external_prefix_cache_queries", "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.", zero)
	counter("vllm:external_prefix_cache_hits", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.", zero)
	counter("vllm:mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", zero)
	counter("vllm:mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", zero)
	counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", stat(func(s engine.Stats) uint64 { return s.Preemptions }))
	counter("vllm:prompt_tokens", "Number of prefill tokens processed.", stat(func(s engine.Stats) uint64 { return s.QueryTokens }))
	counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens.", stat(func(s engine.Stats) uint64 { return s.HitTokens }))
	counter("vllm:generation_tokens", "Number of generation tokens processed.", stat(func(s engine.Stats) uint64 { return s.GeneratedTokens }))
	moved := func(f func(Transfers) uint64) func(*Meter) float64 {
		return func(m *Meter) float64 { return float64(f(m.moved)) }
	}
	counter("vllm:nixl_num_failed_transfers", "Number of failed NIXL KV Cache transfers.", moved(func(t Transfers) uint64 { return t.Failed }))
	counter("vllm:nixl_num_failed_notifications", "Number of failed NIXL KV Cache notifications.", zero)
	counter("vllm:nixl_num_kv_expired_reqs", "Number of requests that had their KV expire.", moved(func(t Transfers) uint64 { return t.Expired }))
	counter("vllm:nixl_num_notifications_after_expiry", "Number of notifications for requests whose KV had expired.", moved(func(t Transfers) uint64 { return t.Late }))
	const success = "vllm:request_success"
	p.family(success+"_total", "counter", "Count of successfully processed requests.")
	for _, reason := range []string{FinishStop, FinishLength, ReasonAbort, "error", "repetition"} {
		for r, labels := range ranks {
			p.value(success+"_total"+withLabel(labels, "finished_reason", reason),
				func(v *view) float64 { return float64(v.cores[r].finished[reason]) })
		}
	}
}

func (p *Page) vllmHistograms(ranks []string, c engine.Config) {
	shape := NewMeter(c, nil)
	for _, h := range []struct {
		at         int
		name, help string
	}{
		{histIteration, "iteration_tokens_total", "Histogram of number of tokens per engine_step."},
		{histPrompt, "request_prompt_tokens", "Number of prefill tokens processed."},
		{histGenerated, "request_generation_tokens", "Number of generation tokens processed."},
		{histMaxTokens, "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens."},
		{histMaxTokens, "request_params_max_tokens", "Histogram of the max_tokens request parameter."},
		{histTTFT, "time_to_first_token_seconds", "Histogram of time to first token in seconds."},
		{histITL, "inter_token_latency_seconds", "Histogram of inter-token latency in seconds."},
		{histTPOT, "request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request."},
		{histE2E, "e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."},
		{histQueue, "request_queue_time_seconds", "Histogram of time spent in WAITING phase for request."},
		{histInference, "request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request."},
		{histPrefill, "request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request."},
		{histDecode, "request_decode_time_seconds", "Histogram of time spent in DECODE phase for request."},
		{histComputed, "request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens)."},
	} {
		name := "vllm:" + h.name
		p.family(name, "histogram", h.help)
		for r, labels := range ranks {
			p.histogram(name, labels, shape.hists[h.at].bounds, func(v *view) *histogram { return &v.cores[r].hists[h.at] })
		}
	}
}

// unusedHistograms writes the families of parts that this engine does not
// have: they are on every page and stay empty.
func (p *Page) unusedHistograms(ranks []string) {
	blockAge := []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800}
	transfer := []float64{.005, .01, .025, .05, .075, .1, .2, .3, .5, .75, 1, 5}
	for _, h := range []struct {
		name, help string
		bounds     []float64
	}{
		{"request_params_n", "Histogram of the n request parameter.", []float64{1, 2, 5, 10, 20}},
		{"kv_block_lifetime_seconds", "Histogram of KV cache block lifetime from allocation to eviction. Sampled metrics (controlled by --kv-cache-metrics-sample).", blockAge},
		{"kv_block_idle_before_evict_seconds", "Histogram of idle time before KV cache block eviction. Sampled metrics (controlled by --kv-cache-metrics-sample).", blockAge},
		{"kv_block_reuse_gap_seconds", "Histogram of time gaps between consecutive KV cache block accesses. Only the most recent accesses are recorded (ring buffer). Sampled metrics (controlled by --kv-cache-metrics-sample).", blockAge},
		{"nixl_xfer_time_seconds", "Histogram of transfer duration for NIXL KV Cache transfers.", transfer},
		{"nixl_post_time_seconds", "Histogram of transfer post time for NIXL KV Cache transfers.", transfer},
		{"nixl_bytes_transferred", "Histogram of bytes transferred per NIXL KV Cache transfers.", decades(1_000_000_000)[10:]},
		{"nixl_num_descriptors", "Histogram of number of descriptors per NIXL  KV Cache transfers.", decades(500_000)},
	} {
		name := "vllm:" + h.name
		p.family(name, "histogram", h.help)
		empty := newHistogram(h.bounds)
		for _, labels := range ranks {
			p.histogram(name, labels, h.bounds, func(*view) *histogram { return &empty })
		}
	}
}

// cacheConfig writes the info series with the block size and number of blocks. Like vLLM, it
// reports the total blocks of all ranks for each rank.
func (p *Page) cacheConfig(o *Options) {
	const name = "vllm:cache_config_info"
	p.family(name, "gauge", "Information of the LLMEngine CacheConfig")
	caching := "True"
	if o.Core.NoPrefixCache {
		caching = "False"
	}
	for r := range o.Ranks {
		labels := ""
		for _, l := range [][2]string{
			{"block_size", strconv.Itoa(o.Core.BlockSize)}, {"cache_dtype", "auto"}, {"calculate_kv_scales", "False"},
			{"cpu_kvcache_space_bytes", "None"}, {"cpu_offload_gb", "0"}, {"enable_prefix_caching", caching},
			{"engine", strconv.Itoa(r)}, {"gpu_memory_utilization", "0.9"}, {"is_attention_free", "False"},
			{"kv_cache_memory_bytes", "None"}, {"kv_offloading_backend", "native"}, {"kv_offloading_size", "None"},
			{"mamba_cache_dtype", "auto"}, {"num_cpu_blocks", "None"}, {"num_gpu_blocks", strconv.Itoa(o.Core.Blocks * o.Ranks)},
			{"num_gpu_blocks_override", "None"}, {"prefix_caching_hash_algo", "sha256_cbor"}, {"sliding_window", "None"},
			{"swap_space", "4"}, {"user_specified_block_size", "False"},
		} {
			if labels != "" {
				labels += ","
			}
			labels += fmt.Sprintf("%s=%q", l[0], l[1])
		}
		p.fixed(name+"{"+labels+"}", 1)
	}
}

// appendLoRA writes the adapter series, each for one combination of adapters. The value is the time
// at which the combination was last seen.
func appendLoRA(dst []byte, v *view, maxLoRA int) []byte {
	const name = "vllm:lora_requests_info"
	first := true
	for _, m := range v.cores {
		for lists, at := range m.lora {
			if first {
				dst = append(dst, "# HELP "+name+" Running stats on lora requests.\n# TYPE "+name+" gauge\n"...)
				first = false
			}
			dst = fmt.Appendf(dst, "%s{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=%q} ", name, maxLoRA, lists[0], lists[1])
			dst = append(appendFloat(dst, at), '\n')
		}
	}
	return dst
}
