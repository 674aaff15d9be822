package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

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

// TestStatesOfSource: a missing right, a missing pool, a selector without pods, an invalid pool and an
// unreachable server are different states with different explanations.
func TestStatesOfSource(t *testing.T) {
	api, server := newFakeAPI(t)
	api.deny("list inferencepools")
	v := openFake(t, server, Options{})
	is := func(state discovery.State, reason string) {
		t.Helper()
		testkit.Eventually(t, func() string {
			st := v.Status()
			if st.State != state || !strings.Contains(st.Reason(), reason) {
				return fmt.Sprintf("state %q, reason %q; want %q, %q", st.State, st.Reason(), state, reason)
			}
			return ""
		})
	}
	is(discovery.StateForbidden, `verbs ["list"]`)
	api.deny()
	is(discovery.StateMissing, "the source of endpoints does not exist: InferencePool prod/p: there is no such pool")
	api.pool("p", "vllm", 8000)
	is(discovery.StateEmpty, "pods app=vllm: the selector matches no pod of namespace prod")
	api.pod("a", "10.0.0.1", "", "")
	is(discovery.StateCurrent, "")
	api.put("inferencepools", "p", `{"metadata":{"name":"p","namespace":"prod","uid":"uid","generation":9},"spec":{"selector":{"matchLabels":{"app":"vllm"}},"targetPorts":[]}}`)
	is(discovery.StateInvalid, "the pool has no target port")
	api.pool("p", "vllm", 8000)
	is(discovery.StateCurrent, "")
	server.Listener.Close()
	server.CloseClientConnections()
	is(discovery.StateUnreadable, "not readable for")
}
