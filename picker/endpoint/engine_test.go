package endpoint

import (
	"slices"
	"testing"
)

// TestEngineTypes: every engine type has a label that is read back, and no two share a word.
func TestEngineTypes(t *testing.T) {
	want := map[string]EngineType{
		"vllm": EngineVLLM, "sglang": EngineSGLang, "trtllm-serve": EngineTRTLLM, "trtllm": EngineTRTLLM,
		"triton-tensorrt-llm": EngineTriton, "triton": EngineTriton, "": EngineUnknown, "unknown": EngineUnknown, "vLLM": EngineUnknown,
	}
	for label, e := range want {
		if got := EngineOf(label); got != e {
			t.Errorf("EngineOf(%q) = %v, want %v", label, got, e)
		}
	}
	for e := EngineVLLM; e <= EngineTriton; e++ {
		if got := EngineOf(e.String()); got != e {
			t.Errorf("EngineOf(%q) = %v, want the type itself", e, got)
		}
		if !slices.Contains(EngineLabels(), e.String()) {
			t.Errorf("EngineLabels() = %q, lacks %v", EngineLabels(), e)
		}
		if path, _ := e.VersionPage(); path == "" {
			t.Errorf("%v has no page with its version", e)
		}
	}
	if n := len(EngineLabels()); n != int(EngineTriton) {
		t.Errorf("%d labels for %d engine types", n, EngineTriton)
	}
	if beyond := EngineTriton + 1; beyond.String() != "unknown" {
		t.Errorf("an unknown type has the label %q", beyond)
	}
}
