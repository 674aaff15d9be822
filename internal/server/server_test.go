package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// options returns those of a replica on free ports in front of a fleet.
func options(t *testing.T, f sim.FleetOptions) (*sim.Fleet, Options) {
	t.Helper()
	dir := t.TempDir()
	f.EndpointsFile = filepath.Join(dir, "endpoints.yaml")
	fleet, err := sim.OpenFleet(f)
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
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// await fails the test unless ok becomes true within thirty seconds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within 30 s", what)
}

func TestBecomesReadyWithExactKnowledge(t *testing.T) {
	_, o := options(t, sim.FleetOptions{Engines: 3, Engine: sim.Options{Events: &sim.EventOptions{}}})
	s := open(t, o)
	await(t, "ready", func() bool { return s.Status().State == "ready" })
	for _, e := range s.Status().Endpoints {
		if e.Knowledge != "exact" || !e.Up {
			t.Errorf("%+v", e)
		}
	}
}

// Engines that say where they publish need no event ports in the endpoints file.
func TestFindsEventSources(t *testing.T) {
	_, o := options(t, sim.FleetOptions{Engines: 2, Engine: sim.Options{Events: &sim.EventOptions{}, Sources: "sources"}})
	list := filepath.Join(t.TempDir(), "endpoints.yaml")
	stripEvents(t, o.Endpoints, list)
	o.Endpoints = list
	s := open(t, o)
	await(t, "exact knowledge of both", func() bool {
		st := s.Status()
		return len(st.Endpoints) == 2 && st.Endpoints[0].Knowledge == "exact" && st.Endpoints[1].Knowledge == "exact"
	})
}

// stripEvents copies an endpoints file without its events.
func stripEvents(t *testing.T, from, to string) {
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
		delete(e, "events")
	}
	if b, err = yaml.Marshal(list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
