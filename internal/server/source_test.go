package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestSourceOfEndpoints: a source other than the file may deliver endpoints late. It also delivers
// objectives and rewrites, which apply where the configuration has none. The replica opens without
// endpoints and reports that it waits for them.
func TestSourceOfEndpoints(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2})
	list, problems := discovery.Load(o.Endpoints)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var specs []endpoint.Spec
	for _, e := range list {
		a, _ := e.Addr()
		specs = append(specs, e.Spec(a))
	}
	o.Endpoints = ""
	o.ConfigText = fileHead + "plugins: [{type: queue-scorer}]\nobjectives: [{name: gold, priority: 5}]\n"
	src := newOutage()
	src.set(discovery.Status{})
	o.Source = src.open
	s := open(t, o)
	if st := s.Status(); st.State != "starting" || st.Reason != "pool default/llama has not been read yet" {
		t.Errorf("before the first reading of the source: %s, %s", st.State, st.Reason)
	}
	src.provide(discovery.Found{Specs: specs, Names: request.Names{
		Objectives: map[string]int{"gold": 1, "batch": -1},
		Rewrites:   map[string]request.Rewrite{"chat": {{Model: "a", Weight: 1}}},
	}})
	s.config.mu.Lock()
	names := s.config.rules(s.config.current()).Names
	s.config.mu.Unlock()
	if names.Objectives["gold"] != 5 || names.Objectives["batch"] != -1 || names.Target("chat", 0) != "a" {
		t.Errorf("names in use: %+v", names)
	}
	if s.config.gaugePace() == 0 {
		t.Error("requests may be refused, and gauges are not read more often")
	}
	if st := s.Status(); len(st.Endpoints) != 2 || st.Discovery.From != "pool default/llama" {
		t.Errorf("status: %d endpoints from %q", len(st.Endpoints), st.Discovery.From)
	}
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.config.mu.Lock()
	defer s.config.mu.Unlock()
	if n := s.config.rules(s.config.current()).Names; n.Objectives["batch"] != -1 {
		t.Error("a reload lost the source's endpoints")
	}
}

// TestBrokenEndpointsFileIsReported: a replica that uses an older list than the file
// has is not simply ready.
func TestBrokenEndpointsFileIsReported(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1})
	text, err := os.ReadFile(o.Endpoints)
	if err != nil {
		t.Fatal(err)
	}
	o.Endpoints = filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, o.Endpoints, string(text))
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	write(t, o.Endpoints, "endpoints: 7\n")
	testkit.Await(t, "degraded", func() bool {
		st := s.Status()
		return st.State == "degraded" && strings.Contains(st.Reason, "older than its source") && len(st.Endpoints) == 1
	})
	write(t, o.Endpoints, string(text))
	testkit.Await(t, "ready again", func() bool { return s.Status().State == "ready" })
}
