package fleet

import (
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
)

var small = engine.Config{Blocks: 100}

func TestFleet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	f, err := Open(Options{
		Engines: 24, Host: "127.0.9.250", Spread: true, EndpointsFile: file, Labels: map[string]string{"zone": "a"},
		Engine:    sim.Options{Events: &sim.EventOptions{Topic: "kv"}, Core: small, Speed: math.Inf(1)},
		Customize: func(i int, o *sim.Options) { o.Ranks = 1 + i%2 },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Endpoints []Endpoint }
	if err := yaml.UnmarshalStrict(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Endpoints) != 24 {
		t.Fatalf("%d endpoints", len(got.Endpoints))
	}
	for i, want := range map[int]string{0: "127.0.9.250", 6: "127.0.10.0", 23: "127.0.10.17"} {
		ep := got.Endpoints[i]
		if ep.Address != want || ep.Port == 0 || ep.Namespace != "default" || ep.Labels["zone"] != "a" || ep.Labels[sim.LabelEngineType] != "vllm" ||
			ep.Events == nil || ep.Events.Port == 0 || ep.Events.ReplayPort == 0 || ep.Events.Topic != "kv" || (ep.Events.Ranks == 2) != (i%2 == 1) {
			t.Errorf("endpoint %d: %+v", i, ep)
		}
		e := f.Engines()[i]
		r, err := http.Get("http://" + e.Addr() + "/health")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != 200 || r.Header.Get(sim.HeaderEngine) != ep.Name {
			t.Errorf("engine %d: %s %s", i, r.Status, r.Header)
		}
	}
}

func TestFleetFails(t *testing.T) {
	taken, err := sim.Open(sim.Options{Core: small})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port := splitAddr(taken.Addr())
	for name, o := range map[string]Options{
		"port taken": {Engines: 3, Port: port - 1, Engine: sim.Options{Core: small}},
		"host":       {Host: "10.0.0.1", Spread: true},
		"end":        {Engines: 2, Host: "127.255.255.254", Spread: true, Engine: sim.Options{Core: small}},
		"options":    {Engine: sim.Options{Speed: -1}},
		"file":       {EndpointsFile: "/nonexistent/endpoints.yaml", Engine: sim.Options{Core: small}},
	} {
		f, err := Open(o)
		if err == nil {
			t.Errorf("%s: no error, %v", name, f.Close())
		}
		if name == "options" && !errors.Is(err, sim.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
