package kube

import "testing"

// TestInvalidPodAffectsOnlyItself: a mistyped annotation leaves the list current and the other pods
// served. The pod is served with defaults, or left out if none of its ports remain.
func TestInvalidPodAffectsOnlyItself(t *testing.T) {
	api, server := newFakeAPI(t)
	api.pool("p", "vllm", 8000)
	api.pod("good", "10.0.0.1", "", "")
	api.pod("typo", "10.0.0.2", `,"annotations":{"grapevine-epp.github.io/metrics-port":"80O0"}`, "")
	api.pod("empty", "10.0.0.3", `,"annotations":{"llm-d.ai/active-ports":""}`, "")
	api.pod("broken", "10.0.0.4", `,"generation":"many"`, "")
	v := openFake(t, server, Options{})
	v.want("10.0.0.1:8000 10.0.0.2:8000")
	v.wantIn(invalidOf, `pod typo: grapevine-epp.github.io/metrics-port must be a number between 1 and 65535, not "80O0"; the default applies`)
	v.wantIn(invalidOf, "pod empty: llm-d.ai/active-ports lists none of the pool's target ports")
	v.wantIn(invalidOf, "pods: 1 cannot be read")
	v.wantOK()
	if n := v.invalidPods(); n != 3 {
		t.Errorf("invalidPods() = %d, want 3", n)
	}
}
