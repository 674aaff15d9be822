package sim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestFleet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	f, err := OpenFleet(FleetOptions{
		Engines: 24, Host: "127.0.9.250", Spread: true, EndpointsFile: file, Labels: map[string]string{"zone": "a"},
		Engine:    fast(Options{Events: &EventOptions{Topic: "kv"}, Core: smallCore()}),
		Customize: func(i int, o *Options) { o.Ranks = 1 + i%2 },
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
		if ep.Address != want || ep.Port == 0 || ep.Namespace != "default" || ep.Labels["zone"] != "a" || ep.Labels[LabelEngineType] != "vllm" ||
			ep.Events == nil || ep.Events.Port == 0 || ep.Events.ReplayPort == 0 || ep.Events.Topic != "kv" || (ep.Events.Ranks == 2) != (i%2 == 1) {
			t.Errorf("endpoint %d: %+v", i, ep)
		}
		e := f.Engines()[i]
		if r := do(t, e, "GET", "/health", ""); r.status != 200 || r.header.Get(HeaderEngine) != ep.Name {
			t.Errorf("engine %d: %+v", i, r)
		}
	}
}

func TestFleetFails(t *testing.T) {
	taken := open(t, fast(Options{Core: smallCore()}))
	_, port := splitAddr(taken.Addr())
	for name, o := range map[string]FleetOptions{
		"port taken": {Engines: 3, Port: port - 1, Engine: Options{Core: smallCore()}},
		"host":       {Host: "10.0.0.1", Spread: true},
		"end":        {Engines: 2, Host: "127.255.255.254", Spread: true, Engine: Options{Core: smallCore()}},
		"options":    {Engine: Options{Speed: -1}},
		"file":       {EndpointsFile: "/nonexistent/endpoints.yaml", Engine: Options{Core: smallCore()}},
	} {
		f, err := OpenFleet(o)
		if err == nil {
			t.Errorf("%s: no error, %v", name, f.Close())
		}
		if name == "options" && !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
