package request

import (
	"net/url"
	"strings"
)

// Controls reports whether a path is an engine control call. vLLM and SGLang serve these calls on
// the inference port without authentication. One call can empty a cache, abort other clients'
// requests or load other weights. A path prefix is accepted, because gateways route by prefix.
// Ambiguous names (/pause, /resume, /sleep) count only without a prefix or after a version.
func Controls(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	if kind, sure := KindOf(path); kind != KindOther && sure {
		return false
	}
	if strings.IndexByte(path, '%') >= 0 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	path = strings.TrimRight(path, "/")
	before, name := path[:strings.LastIndexByte(path, '/')+1], path[strings.LastIndexByte(path, '/')+1:]
	switch name {
	case "sleep", "wake_up", "pause", "resume", "weight_checker":
		before = strings.Trim(before, "/")
		return before == "" || before == "v1"
	case "storage-backend":
		return strings.HasSuffix(before, "/hicache/")
	case "clear":
		return strings.HasSuffix(before, "/hicache/storage-backend/")
	case "abort_request", "abort_requests", "pause_generation", "continue_generation", // affect other clients' requests
		"flush_cache", "reset_prefix_cache", "reset_mm_cache", "reset_encoder_cache", "clear_hicache_storage_backend", "pin_prefix",
		"release_memory_occupation", "resume_memory_occupation", "release_kv_cache_memory",
		"load_lora_adapter", "load_lora_adapter_from_tensors", "unload_lora_adapter",
		"update_weights", "update_weights_from_disk", "update_weights_from_tensor", "update_weights_from_distributed", "update_weights_from_ipc",
		"update_weight_version", "start_weight_update", "finish_weight_update", "start_draft_weight_update", "get_weights_by_name", "weights_checker",
		"init_weights_update_group", "destroy_weights_update_group", "init_weight_transfer_engine", "shutdown_weight_transfer_engine",
		"init_weights_send_group_for_remote_instance", "send_weights_to_remote_instance",
		"collective_rpc", "scale_elastic_ep", "set_internal_state", "configure_logging", "set_trace_level", "freeze_gc", "slow_down",
		"start_profile", "stop_profile", "start_expert_distribution_record", "stop_expert_distribution_record", "dump_expert_distribution_record",
		"add_external_corpus", "remove_external_corpus":
		return true
	}
	return false
}
