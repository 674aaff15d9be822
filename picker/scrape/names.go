package scrape

import (
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// what is the meaning of a series.
type what uint8

const (
	whatNothing what = iota
	whatWaiting
	whatRunning
	whatUse
	whatUseOld    // replaced by whatUse if both are present
	whatConfig    // block size and count in labels
	whatBlockSize // tokens per block
	whatBlocks    // number of blocks
	whatLoRA
	whatQueries        // prompt tokens looked up, counter
	whatHits           // prompt tokens found in the cache, counter
	whatGenerated      // tokens generated, counter
	whatEnded          // ended requests, counter
	whatFirstSum       // seconds to first tokens, sum of a histogram
	whatFirstCount     // its count
	whatGapSum         // seconds between tokens, sum of a histogram
	whatGapCount       // its count
	whatStarted        // process start, seconds since the epoch
	whatTritonRequests // by label
	whatTritonBlocks   // by label
	numberOfWhats      = int(whatTritonBlocks) + 1
)

// metric is one name of an engine's metrics page.
type metric struct {
	name   string
	engine endpoint.EngineType // EngineUnknown: common to all
	what   what
}

// named lists the metric names that are read, by engine.
var named = []metric{
	{"process_start_time_seconds", endpoint.EngineUnknown, whatStarted},

	{"vllm:num_requests_waiting", endpoint.EngineVLLM, whatWaiting},
	{"vllm:num_requests_running", endpoint.EngineVLLM, whatRunning},
	{"vllm:kv_cache_usage_perc", endpoint.EngineVLLM, whatUse},
	{"vllm:gpu_cache_usage_perc", endpoint.EngineVLLM, whatUseOld},
	{"vllm:cache_config_info", endpoint.EngineVLLM, whatConfig},
	{"vllm:lora_requests_info", endpoint.EngineVLLM, whatLoRA},
	{"vllm:prefix_cache_queries_total", endpoint.EngineVLLM, whatQueries},
	{"vllm:prefix_cache_hits_total", endpoint.EngineVLLM, whatHits},
	{"vllm:external_prefix_cache_hits_total", endpoint.EngineVLLM, whatHits}, // loaded by a connector after a local cache miss
	{"vllm:generation_tokens_total", endpoint.EngineVLLM, whatGenerated},
	{"vllm:request_success_total", endpoint.EngineVLLM, whatEnded},
	{"vllm:time_to_first_token_seconds_sum", endpoint.EngineVLLM, whatFirstSum},
	{"vllm:time_to_first_token_seconds_count", endpoint.EngineVLLM, whatFirstCount},
	{"vllm:inter_token_latency_seconds_sum", endpoint.EngineVLLM, whatGapSum},
	{"vllm:inter_token_latency_seconds_count", endpoint.EngineVLLM, whatGapCount},
	{"vllm:time_per_output_token_seconds_sum", endpoint.EngineVLLM, whatGapSum},
	{"vllm:time_per_output_token_seconds_count", endpoint.EngineVLLM, whatGapCount},

	{"sglang:num_queue_reqs", endpoint.EngineSGLang, whatWaiting},
	{"sglang:num_running_reqs", endpoint.EngineSGLang, whatRunning},
	{"sglang:token_usage", endpoint.EngineSGLang, whatUse},
	{"sglang:cache_config_info", endpoint.EngineSGLang, whatConfig},
	{"sglang:prompt_tokens_total", endpoint.EngineSGLang, whatQueries},
	{"sglang:cached_tokens_total", endpoint.EngineSGLang, whatHits},
	{"sglang:generation_tokens_total", endpoint.EngineSGLang, whatGenerated},
	{"sglang:num_requests_total", endpoint.EngineSGLang, whatEnded},
	{"sglang:num_aborted_requests_total", endpoint.EngineSGLang, whatEnded},
	{"sglang:time_to_first_token_seconds_sum", endpoint.EngineSGLang, whatFirstSum},
	{"sglang:time_to_first_token_seconds_count", endpoint.EngineSGLang, whatFirstCount},
	{"sglang:inter_token_latency_seconds_sum", endpoint.EngineSGLang, whatGapSum},
	{"sglang:inter_token_latency_seconds_count", endpoint.EngineSGLang, whatGapCount},

	{"trtllm_num_requests_waiting", endpoint.EngineTRTLLM, whatWaiting},
	{"trtllm_num_requests_running", endpoint.EngineTRTLLM, whatRunning},
	{"trtllm_kv_cache_utilization", endpoint.EngineTRTLLM, whatUse},
	{"trtllm_kv_cache_tokens_per_block", endpoint.EngineTRTLLM, whatBlockSize},
	{"trtllm_kv_cache_max_blocks", endpoint.EngineTRTLLM, whatBlocks},
	{"trtllm_prompt_tokens_total", endpoint.EngineTRTLLM, whatQueries},
	{"trtllm_prompt_cached_tokens_total", endpoint.EngineTRTLLM, whatHits},
	{"trtllm_time_to_first_token_seconds_sum", endpoint.EngineTRTLLM, whatFirstSum},
	{"trtllm_time_to_first_token_seconds_count", endpoint.EngineTRTLLM, whatFirstCount},
	{"trtllm_time_per_output_token_seconds_sum", endpoint.EngineTRTLLM, whatGapSum},
	{"trtllm_time_per_output_token_seconds_count", endpoint.EngineTRTLLM, whatGapCount},

	{"nv_trt_llm_request_metrics", endpoint.EngineTriton, whatTritonRequests},
	{"nv_trt_llm_kv_cache_block_metrics", endpoint.EngineTriton, whatTritonBlocks},
}

// Labels and label values that are read.
const (
	labelBlockSize   = "block_size"            // vLLM
	labelBlocks      = "num_gpu_blocks"        // vLLM
	labelCaching     = "enable_prefix_caching" // vLLM
	labelPageSize    = "page_size"             // SGLang
	labelPages       = "num_pages"             // SGLang
	labelEngine      = "engine"                // vLLM: data-parallel rank
	labelRank        = "dp_rank"               // SGLang
	labelMaxLoRA     = "max_lora"
	labelRunningLoRA = "running_lora_adapters"
	labelWaitingLoRA = "waiting_lora_adapters"
	labelRequestType = "request_type"        // Triton
	labelBlockType   = "kv_cache_block_type" // Triton
)

// kind is a label value that distinguishes gauges of one name.
type kind struct {
	value string
	what  what
}

var (
	requestTypes = [...]kind{{"waiting", whatWaiting}, {"scheduled", whatRunning}}
	blockTypes   = [...]kind{{"fraction", whatUse}, {"tokens_per", whatBlockSize}, {"max", whatBlocks}}
)

// family is the set of names with a common prefix, by the byte after it.
type family struct {
	prefix string
	next   [256][]metric // names without the prefix and that byte
}

// families is indexed by the first byte of the prefix. Most lines are rejected after two bytes.
var families = makeFamilies("process_", "vllm:", "sglang:", "trtllm_", "nv_trt_llm_")

func makeFamilies(prefixes ...string) [256]*family {
	var table [256]*family
	for _, prefix := range prefixes {
		f := &family{prefix: prefix}
		for _, m := range named {
			if len(m.name) > len(prefix) && m.name[:len(prefix)] == prefix {
				c := m.name[len(prefix)]
				f.next[c] = append(f.next[c], metric{m.name[len(prefix)+1:], m.engine, m.what})
			}
		}
		table[prefix[0]] = f
	}
	return table
}
