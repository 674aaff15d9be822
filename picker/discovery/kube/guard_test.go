package kube

import (
	"testing"
	"time"
)

// TestGuard: a selector that would leave less than half of the endpoints is put on hold and
// reported. During the hold, ended pods are removed and new ones added. A corrected selector ends
// the hold.
func TestGuard(t *testing.T) {
	t.Parallel()
	api, server := newFakeAPI(t)
	api.pool("p", "vllm", 8000)
	api.pod("a", "10.0.0.1", "", "")
	api.pod("b", "10.0.0.2", "", "")
	api.pod("c", "10.0.0.3", "", "")
	v := openFake(t, server, Options{Guard: time.Hour})
	v.want("10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000")
	api.pool("p", "typo", 8000)
	v.wantIn(problemsOf, "the selector app=typo has 0 endpoints, not 3: the change is held for another")
	v.want("10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000")
	if n := v.heldEndpoints(); n != 3 {
		t.Errorf("heldEndpoints() = %d, want 3", n)
	}
	api.remove("pods/a")
	v.want("10.0.0.2:8000 10.0.0.3:8000")
	api.pod("b", "10.0.0.2", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`, "")
	v.want("10.0.0.3:8000")
	api.pod("d", "10.0.0.4", "", "")
	v.want("10.0.0.3:8000 10.0.0.4:8000")
	v.wantIn(problemsOf, "the selector app=typo has 0 endpoints, not 2")
	api.pool("p", "vllm", 9000)
	v.want("10.0.0.3:9000 10.0.0.4:9000")
	v.wantOK()
	if n := v.heldEndpoints(); n != 0 {
		t.Errorf("heldEndpoints() = %d after the correction, want 0", n)
	}
}

// TestGuardEnds: a held change is applied when its time is over, when the old pods are gone, and
// when enough endpoints of the new selector are ready. The pool's deletion is never held.
func TestGuardEnds(t *testing.T) {
	for name, x := range map[string]struct {
		guard time.Duration
		then  func(*fakeAPI)
		want  string
	}{
		"time over":    {2 * time.Second, func(*fakeAPI) {}, ""},
		"pods gone":    {time.Hour, func(a *fakeAPI) { a.remove("pods/a"); a.remove("pods/b") }, ""},
		"pool deleted": {time.Hour, func(a *fakeAPI) { a.remove("inferencepools/p") }, ""},
		"replaced": {time.Hour, func(a *fakeAPI) {
			a.put("pods", "n", `{"metadata":{"name":"n","namespace":"prod","uid":"n","labels":{"app":"new"}},"status":{"podIP":"10.0.0.9","conditions":[{"type":"Ready","status":"True"}]}}`)
		}, "10.0.0.9:8000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, server := newFakeAPI(t)
			api.pool("p", "vllm", 8000)
			api.pod("a", "10.0.0.1", "", "")
			api.pod("b", "10.0.0.2", "", "")
			v := openFake(t, server, Options{Guard: x.guard, Grace: time.Second})
			v.want("10.0.0.1:8000 10.0.0.2:8000")
			api.pool("p", "new", 8000)
			v.wantIn(problemsOf, "the change is held")
			x.then(api)
			v.want(x.want)
			if n := v.heldEndpoints(); n != 0 {
				t.Errorf("heldEndpoints() = %d at the end, want 0", n)
			}
		})
	}
}

// TestGuardLetsReplacementsPass: a selector with enough ready endpoints is applied at once.
func TestGuardLetsReplacementsPass(t *testing.T) {
	t.Parallel()
	api, server := newFakeAPI(t)
	api.pool("p", "vllm", 8000)
	api.pod("a", "10.0.0.1", "", "")
	api.put("pods", "n", `{"metadata":{"name":"n","namespace":"prod","uid":"n","labels":{"app":"new"}},"status":{"podIP":"10.0.0.9","conditions":[{"type":"Ready","status":"True"}]}}`)
	v := openFake(t, server, Options{Guard: time.Hour})
	v.want("10.0.0.1:8000")
	api.pool("p", "new", 8000)
	v.want("10.0.0.9:8000")
	v.wantOK()
}
