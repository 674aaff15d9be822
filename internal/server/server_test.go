package server

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd"
)

// options returns the options of a replica on free ports in front of a fleet.
func options(t *testing.T, f fleet.Options) (*fleet.Fleet, Options) {
	t.Helper()
	dir := t.TempDir()
	f.EndpointsFile = filepath.Join(dir, "endpoints.yaml")
	fleet, err := fleet.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fleet.Close() })
	if err := vocab.New().WriteModel(filepath.Join(dir, "model")); err != nil {
		t.Fatal(err)
	}
	return fleet, Options{
		Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: f.EndpointsFile, Linger: -1,
		Models: []ModelOptions{{Name: vocab.Name, Path: filepath.Join(dir, "model")}},
	}
}

func open(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now. Stop would use it to cut open connections and
		// report them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestBecomesReadyWithExactKnowledge(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 3, Engine: sim.Options{Events: &sim.EventOptions{}}})
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	for _, e := range s.Status().Endpoints {
		if e.Knowledge != "exact" || !e.Up {
			t.Errorf("%+v", e)
		}
	}
}

// Engines that say where they publish need no event ports in the endpoints file.
func TestFindsEventSources(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2, Engine: sim.Options{Events: &sim.EventOptions{}, Sources: "sources"}})
	list := filepath.Join(t.TempDir(), "endpoints.yaml")
	stripEvents(t, o.Endpoints, list)
	o.Endpoints = list
	s := open(t, o)
	testkit.Await(t, "exact knowledge of both", func() bool {
		st := s.Status()
		return len(st.Endpoints) == 2 && st.Endpoints[0].Knowledge == "exact" && st.Endpoints[1].Knowledge == "exact"
	})
}

// stripEvents copies an endpoints file without its events.
func stripEvents(t *testing.T, from, to string) {
	t.Helper()
	changeEvents(t, from, to, func(e map[string]any) { delete(e, "events") })
}

// changeEvents copies an endpoints file and changes each endpoint.
func changeEvents(t *testing.T, from, to string, change func(endpoint map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Endpoints []map[string]any `json:"endpoints"`
	}
	if err := yaml.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Endpoints {
		change(e)
	}
	if b, err = yaml.Marshal(list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A warning at startup of flow control reports wait times that exceed the proxy's timeout.
func TestShortWaitsAreLogged(t *testing.T) {
	const config = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
flowControl: {defaultRequestTTL: 30s}
`
	for most, want := range map[time.Duration]bool{0: true, 20 * time.Second: true, time.Hour: false} {
		var said bytes.Buffer
		c, err := parseConfig("test", []byte(config), pd.Table())
		if err != nil {
			t.Fatal(err)
		}
		inUse := &configuration{o: configOptions{MaxMessageTimeout: most, Log: slog.New(slog.NewTextHandler(&said, nil))}}
		inUse.warnShortWait(c.Flow.Gate())
		inUse.warnShortWait(nil)
		if got := strings.Contains(said.String(), "ends before defaultRequestTTL"); got != want || strings.Count(said.String(), "\n") > 1 {
			t.Errorf("the proxy allows %v: logs %q", most, &said)
		}
	}
}
