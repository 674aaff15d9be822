package envoyconf

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the rendered examples anew")

// examples are the published example files.
const examples = "../../deploy/envoy"

func exampleParams(k Kind) Params {
	return Params{
		Kind:      k,
		Listen:    "0.0.0.0:8080",
		ExtProc:   []string{"10.0.0.1:9002", "10.0.0.2:9002", "10.0.0.3:9002"},
		Endpoints: []string{"10.0.1.1:8000", "10.0.1.2:8000", "[fd00::13]:8000"},
	}
}

func TestExamplesAreRendered(t *testing.T) {
	for _, k := range []Kind{Resilient, Gateway} {
		got, err := Render(exampleParams(k))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(examples, string(k)+".yaml")
		if *rewrite {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s differs from the renderer (go test ./extproc/envoyconf -rewrite):\n%s", file, d)
		}
	}
}

func TestRenderIsYAML(t *testing.T) {
	for _, p := range []Params{
		{Kind: Gateway}, {Plaintext: true}, {CAFile: "/etc/ca \"x\".pem", SAN: "picker"},
		{RequestBody: "STREAMED", EarlyBody: true, Observe: true},
	} {
		p.ExtProc, p.Endpoints = []string{"picker.example:9002"}, []string{"[::1]:8000"}
		out, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		var tree map[string]any
		if err := yaml.Unmarshal(out, &tree); err != nil {
			t.Errorf("%+v: %v\n%s", p, err, out)
		}
	}
}

func TestBadParams(t *testing.T) {
	good := exampleParams(Resilient)
	for name, change := range map[string]func(*Params){
		"kind":         func(p *Params) { p.Kind = "robust" },
		"no pickers":   func(p *Params) { p.ExtProc = nil },
		"no endpoints": func(p *Params) { p.Endpoints = nil },
		"no port":      func(p *Params) { p.Endpoints = []string{"10.0.0.1"} },
		"port zero":    func(p *Params) { p.Endpoints = []string{"10.0.0.1:0"} },
		"port":         func(p *Params) { p.Listen = "10.0.0.1:70000" },
		"admin":        func(p *Params) { p.Admin = "x" },
		"mode":         func(p *Params) { p.RequestBody = "SOMETIMES" },
		"gateway name": func(p *Params) { p.Gateways = []string{"b.example.org:80"} },
		"gateway":      func(p *Params) { p.Gateways = []string{"192.0.2.1"} },
		"header":       func(p *Params) { p.ResponseHeaders = []string{"x-endpoint"} },
		"header name":  func(p *Params) { p.ResponseHeaders = []string{"x endpoint=1"} },
		"header value": func(p *Params) { p.ResponseHeaders = []string{"x=1\n2"} },
		"subset":       func(p *Params) { p.SubsetHeader = "x: y" },
		"collector":    func(p *Params) { p.OTLP = "collector" },
		"gateway CA":   func(p *Params) { p.GatewayCA = "ca.pem" },
		"no picker":    func(p *Params) { p.Kind, p.Gateways = Plain, []string{"192.0.2.1:80"} },
		"tls":          func(p *Params) { p.Plaintext, p.CAFile = true, "ca.pem" },
	} {
		p := good
		change(&p)
		if _, err := Render(p); !errors.Is(err, ErrParams) {
			t.Errorf("%s: error %v, want ErrParams", name, err)
		}
	}
}
