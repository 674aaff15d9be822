package request

import "testing"

func TestControls(t *testing.T) {
	for path, want := range map[string]bool{
		"/flush_cache": true, "/flush_cache/": true, "/flush_cache?timeout=1": true, "/flush%5Fcache": true, "/llama/flush_cache": true,
		"/v1/load_lora_adapter": true, "/sleep?level=2": true, "/v1/sleep": true, "/collective_rpc": true,
		"/hicache/storage-backend": true, "/hicache/storage-backend/clear": true, "//flush_cache": true,
		"/v1/chat/completions": false, "/v1/messages": false, "/generate": false, "/v1/models": false, "/tokenize": false, "/metrics": false,
		"/v1/responses/resp_1/cancel": false, "/jobs/7/pause": false, "/caches/clear": false, "/": false, "": false, "/flush_cache/v1/completions": false,
		"/v1/files/flush_cache.txt": false,
	} {
		if got := Controls(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}

func BenchmarkControls(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Controls("/v1/chat/completions")
		Controls("/v1/rerank")
	}
}
