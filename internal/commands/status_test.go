package commands

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// status --wait prints only the last answer.
func TestStatusWait(t *testing.T) {
	var asked atomic.Int32
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		st := server.Status{Name: "a", State: "ready"}
		if asked.Add(1) == 1 {
			st.State, st.Reason = "starting", "4 of 4 endpoints are not exact yet"
			st.Cluster.Fallback = "alone"
			st.Endpoints = []server.EndpointStatus{{Address: "10.0.0.1:8000", Knowledge: "approximate", Reason: "no stream"}}
		} else {
			st.Endpoints = []server.EndpointStatus{{Address: "10.0.0.2:8000", Knowledge: "approximate"}}
		}
		if err := cli.WriteJSON(w, st); err != nil {
			t.Error(err)
		}
	}))
	defer admin.Close()
	var out bytes.Buffer
	cmd := newStatus()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--wait", "--admin", strings.TrimPrefix(admin.URL, "http://")})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"not known exactly", "meanwhile", "no stream"} {
		if strings.Contains(out.String(), old) {
			t.Errorf("%q is from the previous answer:\n%s", old, out.String())
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestDiscoveryLines(t *testing.T) {
	now := time.Unix(1000, 0)
	f := func(d discovery.Status, want string) {
		t.Helper()
		var b strings.Builder
		if writeDiscovery(&b, &d, now); b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	}
	f(discovery.Status{}, "")
	f(discovery.Status{From: "InferencePool a/b", Problems: []discovery.Problem{{File: "InferencePool a/b", Message: "there is no such pool"}}},
		"endpoints: InferencePool a/b, not read yet\n  InferencePool a/b: there is no such pool\n")
	f(discovery.Status{From: "InferencePool a/b", Endpoints: 3, Read: now.Add(-time.Hour)}, "endpoints: 3 from InferencePool a/b, read 1h0m0s ago\n")
	f(discovery.Status{From: "InferencePool a/b", Origin: "peer epp-2", Endpoints: 3, Read: now.Add(-time.Minute)}, "endpoints: 3 of InferencePool a/b from peer epp-2, read 1m0s ago\n")
	f(discovery.Status{From: "a", Read: now, Invalid: []discovery.Problem{{File: "pod b", Message: "events-port must be a number"}}},
		"endpoints: 0 from a, read 0s ago\n  invalid: pod b: events-port must be a number\n")
	f(discovery.Status{From: "a", Read: now, Notes: []discovery.Problem{{File: "rewrites", Message: "not in use"}}}, "endpoints: 0 from a, read 0s ago\n  note: rewrites: not in use\n")
}

func TestModelLine(t *testing.T) {
	f := func(m prefix.ModelStatus, want string) {
		t.Helper()
		if got := modelLine(&m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(prefix.ModelStatus{Name: "a", State: "ready", Rendered: 3}, "model a: ready, rendered 3")
	f(prefix.ModelStatus{Name: "a", State: "ready", Notes: []string{"no chat template", "no encoding"}, Missed: map[string]uint64{"template": 2, "media": 1}},
		"model a: ready (no chat template; no encoding), rendered 0, media 1, template 2")
	f(prefix.ModelStatus{Name: "a", State: "failed", Error: "no tokenizer.json"}, "model a: failed, rendered 0: no tokenizer.json")
}

// An endpoint's reason is printed in every state. So is the basis of predictions where events are
// not trusted, once for all endpoints concerned.
func TestReasonsArePrinted(t *testing.T) {
	var b strings.Builder
	writeEndpointProblems(&b, []server.EndpointStatus{
		{Address: "a:1", Knowledge: "exact", Reason: "chats with tools: R", Health: server.HealthStatus{State: "healthy"}},
		{Address: "b:1", Knowledge: "approximate", Source: "S", Health: server.HealthStatus{State: "healthy"}},
		{Address: "c:1", Knowledge: "approximate", Source: "S", Health: server.HealthStatus{State: "healthy"}},
		{Address: "d:1", Knowledge: "catching-up", Source: "S", Health: server.HealthStatus{State: "healthy"}},
	})
	if want := "a:1 (exact): chats with tools: R\nb:1, c:1 (predicted from): S\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
